//! Events that are not in `events` yet: whatever reads, clears or carries a thread over has them, and
//! so it is when they are moved.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use conjure_core::chat::EventId;

use crate::sql::DatabaseKind;
use crate::{Location, Options, Record, Store};

use super::transfer::same_threads;
use super::{Bed, cases, entry, event, id, open, read};

cases! {
    events_are_read_the_same_before_and_after_they_are_moved
    another_process_reads_and_moves_events_that_it_did_not_write
    a_fork_has_no_recent_events_of_its_ancestor
    a_thread_that_is_cleared_or_removed_has_no_recent_events
    recent_events_are_in_an_export_and_in_a_backup
    events_that_a_killed_process_left_are_moved_by_the_next_writer
    a_check_reads_recent_events
    long_rows_of_events_are_not_written_twice
}

/// A store that moves recent events only where there are too many.
async fn store(bed: &Bed) -> Store {
    let store = bed.open().await;
    store.db().is_mute.store(true, Ordering::SeqCst);
    store
}

async fn rows(store: &Store, table: &str) -> usize {
    let sql = format!("SELECT thread_id FROM {table}");
    store.all(&sql, []).await.unwrap().len()
}

/// Appends events one by one, each in a commit of its own.
async fn append(log: &mut Box<dyn crate::ThreadLog>, seqs: std::ops::RangeInclusive<u64>) {
    for seq in seqs {
        log.append(&[event(log.epoch(), seq)], false).await.unwrap();
    }
}

/// How many of so many rows are recent ones.
fn recent(store: &Store, rows: usize) -> usize {
    match store.db().backend() {
        DatabaseKind::Sqlite => rows,
        DatabaseKind::Postgres => 0,
    }
}

async fn until_moved(store: &Store) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while rows(store, "recent_events").await > 0 {
        assert!(Instant::now() < deadline, "recent events are not moved");
        tokio::task::yield_now().await;
    }
}

fn ids(epoch: u64, seqs: std::ops::RangeInclusive<u64>) -> Vec<EventId> {
    seqs.map(|seq| EventId { epoch, seq }).collect()
}

async fn events_after(store: &Store, seq: u64, limit: usize) -> Vec<EventId> {
    let after = (seq > 0).then_some(EventId { epoch: 1, seq });
    let events = store.events_after(&id("t"), after, limit).await.unwrap();
    events.into_iter().map(|(id, _)| id).collect()
}

async fn events_are_read_the_same_before_and_after_they_are_moved(bed: Bed) {
    let store = store(&bed).await;
    let mut log = open(&store, "t").await;
    let mut other = open(&store, "u").await;
    append(&mut log, 1..=4).await;
    append(&mut other, 1..=4).await;
    until_moved(&store).await;
    log.append(&[entry(1), event(1, 5)], true).await.unwrap();
    append(&mut log, 6..=7).await;
    assert_eq!(rows(&store, "recent_events").await, recent(&store, 3));
    let mut expected: Vec<_> = (1..=7).map(|seq| event(1, seq)).collect();
    expected.insert(4, entry(1));
    let shown = async || {
        assert_eq!(read(&store, "t").await, expected);
        assert_eq!(events_after(&store, 0, 100).await, ids(1, 1..=7));
        assert_eq!(events_after(&store, 2, 3).await, ids(1, 3..=5));
        assert_eq!(events_after(&store, 5, 1).await, ids(1, 6..=6));
        assert_eq!(events_after(&store, 7, 9).await, []);
    };
    shown().await;
    append(&mut other, 5..=9).await;
    until_moved(&store).await;
    assert_eq!(rows(&store, "events").await, 16);
    shown().await;
}

async fn another_process_reads_and_moves_events_that_it_did_not_write(bed: Bed) {
    let (one, two) = (store(&bed).await, store(&bed).await);
    let mut log = open(&one, "t").await;
    let mut other = open(&two, "u").await;
    append(&mut log, 1..=3).await;
    assert_eq!(events_after(&two, 1, 9).await, ids(1, 2..=3));
    append(&mut other, 1..=8).await;
    until_moved(&one).await;
    append(&mut log, 4..=7).await;
    assert_eq!(events_after(&two, 0, 9).await, ids(1, 1..=7));
    assert!(one.check().await.unwrap().is_sound());
}

async fn a_fork_has_no_recent_events_of_its_ancestor(bed: Bed) {
    let store = store(&bed).await;
    let mut log = open(&store, "t").await;
    log.append(&[entry(1), event(1, 1)], true).await.unwrap();
    store.fork(&id("t"), 1, &id("f")).await.unwrap();
    let mut fork = open(&store, "f").await;
    append(&mut fork, 1..=1).await;
    assert_eq!(rows(&store, "recent_events").await, recent(&store, 2));
    assert_eq!(read(&store, "f").await, [entry(1), event(1, 1)]);
    append(&mut log, 2..=2).await;
    let of_thread = [entry(1), event(1, 1), event(1, 2)];
    assert_eq!(read(&store, "t").await, of_thread);
}

async fn a_thread_that_is_cleared_or_removed_has_no_recent_events(bed: Bed) {
    let store = store(&bed).await;
    let mut log = open(&store, "t").await;
    let mut other = open(&store, "u").await;
    append(&mut other, 1..=1).await;
    append(&mut log, 1..=2).await;
    store.clear_thread(&id("t")).await.unwrap();
    assert_eq!(read(&store, "t").await, []);
    assert_eq!(rows(&store, "recent_events").await, recent(&store, 1));
    append(&mut log, 3..=3).await;
    assert_eq!(read(&store, "t").await, [event(1, 3)]);
    drop(log);
    store.remove_thread(&id("t")).await.unwrap();
    assert_eq!(rows(&store, "recent_events").await, recent(&store, 1));
    assert_eq!(read(&store, "u").await, [event(1, 1)]);
}

async fn recent_events_are_in_an_export_and_in_a_backup(bed: Bed) {
    let store = store(&bed).await;
    let mut log = open(&store, "t").await;
    log.append(&[entry(1), event(1, 1)], true).await.unwrap();
    append(&mut log, 2..=3).await;
    assert_eq!(rows(&store, "recent_events").await, recent(&store, 3));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("all.jsonl");
    store.export(&file).await.unwrap();
    let options = Options::default();
    let copy = Store::open(&Location::Memory, &options).await.unwrap();
    copy.import(&file).await.unwrap();
    same_threads(&store, &copy).await;
    assert_eq!(read(&copy, "t").await.len(), 4);
    let file = dir.path().join("copy.db");
    store.backup(&file).await.unwrap();
    if store.db().backend() == DatabaseKind::Sqlite {
        let copy = Store::open(&Location::File(file), &options).await.unwrap();
        same_threads(&store, &copy).await;
        copy.close().await;
    }
}

async fn events_that_a_killed_process_left_are_moved_by_the_next_writer(bed: Bed) {
    let killed = store(&bed).await;
    let mut log = open(&killed, "t").await;
    append(&mut log, 1..=2).await;
    killed.db().crash.after(0);
    drop(log);
    killed.close().await;
    // This one gives signs of life, and moves events with the first.
    let next = bed.open().await;
    assert_eq!(rows(&next, "recent_events").await, recent(&next, 2));
    let mut log = open(&next, "t").await;
    assert_eq!(log.epoch(), 2);
    append(&mut log, 1..=1).await;
    until_moved(&next).await;
    let all: [Record; 3] = [event(1, 1), event(1, 2), event(2, 1)];
    assert_eq!(read(&next, "t").await, all);
}

async fn a_check_reads_recent_events(bed: Bed) {
    let store = store(&bed).await;
    if store.db().backend() == DatabaseKind::Postgres {
        // There are none.
        return;
    }
    let mut log = open(&store, "t").await;
    append(&mut log, 1..=2).await;
    let check = store.check().await.unwrap();
    assert!(check.is_sound(), "{check:?}");
    assert_eq!(check.events, 2);
    let tx = store.db().begin(false, "test").await.unwrap();
    let sql = "UPDATE recent_events SET first_seq = 3, last_seq = 3, body = X'7b' \
               WHERE last_seq = 2";
    tx.execute(sql, []).await.unwrap();
    tx.commit().await.unwrap();
    let problems = store.check().await.unwrap().problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("before event 1.3"), "{problems:?}");
    assert!(
        problems[1].contains("events 1.3 to 3 of thread t"),
        "{problems:?}"
    );
}

async fn long_rows_of_events_are_not_written_twice(bed: Bed) {
    let store = store(&bed).await;
    let mut log = open(&store, "t").await;
    let long: Vec<_> = (1..=40).map(|seq| event(1, seq)).collect();
    log.append(&long, false).await.unwrap();
    assert_eq!(rows(&store, "events").await, 1);
    append(&mut log, 41..=41).await;
    assert_eq!(rows(&store, "recent_events").await, recent(&store, 1));
    assert_eq!(read(&store, "t").await.len(), 41);
}
