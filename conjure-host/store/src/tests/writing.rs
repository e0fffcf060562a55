//! Writers of a thread, and how what waits is written.

use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;

use crate::sql::DatabaseKind;
use crate::{Log as _, Store, StoreError};

use super::threads::notice;
use super::{Bed, cases, entry, event, id, open, read};

cases! {
    appends_that_wait_are_one_group_and_resolve_in_order
    threads_that_are_opened_at_once_are_each_opened_or_refused
    appends_wait_for_few_of_the_transactions_of_others
    a_second_writer_is_told_who_has_the_thread_until_it_is_closed
    a_silent_writer_loses_its_threads_and_can_write_no_more
    two_hosts_that_want_each_others_threads_do_not_stop_each_other
    a_thread_whose_row_another_host_keeps_holds_up_no_other
    a_queue_that_is_full_refuses_and_goes_on_when_there_is_room
}

async fn appends_that_wait_are_one_group_and_resolve_in_order(bed: Bed) {
    let store = bed.open().await;
    let mut logs = Vec::new();
    for thread in ["a", "b", "c"] {
        logs.push(open(&store, thread).await);
    }
    // Nobody writes for as long as this is held: everything waits, or is in the hands of a writer
    // who took the first of it.
    let held = store.db().begin(false, "hold everything up").await.unwrap();
    let mut waiting = Vec::new();
    for seq in 1..=30 {
        for log in &mut logs {
            waiting.push(log.append(&[event(1, seq)], false));
        }
    }
    held.commit().await.unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    let numbered = waiting.into_iter().enumerate().map(|(number, waits)| {
        let order = &order;
        async move {
            waits.await.unwrap();
            order.lock().unwrap().push(number);
        }
    });
    futures_util::future::join_all(numbered).await;
    let order = order.into_inner().unwrap();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(order.len(), 90);
    // A row is what one group had of a thread: what the writer took first, and all that waited.
    let all = crate::recent_events::all_events(store.db().backend());
    let sql = format!("SELECT first_seq FROM {all}");
    let rows = store.all(&sql, []).await.unwrap().len();
    assert!((3..=6).contains(&rows), "{rows} rows");
    for thread in ["a", "b", "c"] {
        assert_eq!(read(&store, thread).await.len(), 30);
    }
}

async fn threads_that_are_opened_at_once_are_each_opened_or_refused(bed: Bed) {
    let (store, other) = (bed.open().await, bed.open().await);
    for seq in 1..=2 {
        let mut log = open(&store, "known").await;
        log.append(&[entry(seq)], true).await.unwrap();
    }
    let _elsewhere = open(&other, "elsewhere").await;
    let _here = open(&store, "here").await;
    // A thread whose fork keeps its row.
    let mut gone = open(&store, "gone").await;
    gone.append(&[entry(1)], true).await.unwrap();
    drop(gone);
    store.fork(&id("gone"), 1, &id("fork")).await.unwrap();
    store.remove_thread(&id("gone")).await.unwrap();
    let held = store.db().begin(false, "hold everything up").await.unwrap();
    const MANY: i64 = 1_000_000;
    store.db().crash.after(MANY);
    let mut names: Vec<String> = (0..150).map(|number| format!("new{number}")).collect();
    names.extend(["known", "elsewhere", "here", "gone", "twice", "twice"].map(str::to_owned));
    let threads: Vec<_> = names.iter().map(|name| id(name)).collect();
    let opening = futures_util::future::join_all(threads.iter().map(|thread| store.open(thread)));
    let release = async {
        tokio::task::yield_now().await;
        held.commit().await.unwrap();
    };
    let (opened, ()) = futures_util::future::join(opening, release).await;
    let statements = MANY - store.db().crash.left();
    let mut twice = Vec::new();
    for (name, opened) in names.iter().zip(opened) {
        match (name.as_str(), opened) {
            ("elsewhere" | "here", Err(StoreError::Busy { .. }))
            | ("gone", Err(StoreError::NoThread { .. })) => {}
            ("twice", opened) => twice.push(opened.is_ok()),
            ("known", Ok(log)) => assert_eq!((log.epoch(), log.last_seq()), (3, 2)),
            (_, Ok(mut log)) => {
                assert_eq!((log.epoch(), log.last_seq()), (1, 0));
                log.append(&[entry(1)], false).await.unwrap();
            }
            (name, Err(error)) => panic!("{name}: {error}"),
        }
    }
    assert_eq!(twice, [true, false]);
    // The first alone, then all that came meanwhile.
    let each = i64::try_from(names.len()).unwrap();
    assert!(statements < each / 4, "{statements} statements");
}

async fn appends_wait_for_few_of_the_transactions_of_others(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    for number in 0..40 {
        store
            .create_thread(&id(&number.to_string()), "")
            .await
            .unwrap();
    }
    let held = store.db().begin(false, "hold everything up").await.unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    let names: Vec<_> = (0..40).map(|number| id(&number.to_string())).collect();
    let others = futures_util::future::join_all(names.iter().map(async |thread| {
        store.rename_thread(thread, "other").await.unwrap();
        order.lock().unwrap().push("other");
    }));
    let append = async {
        // Behind all of them.
        tokio::task::yield_now().await;
        let asked = || store.db().asked_ahead.load(Ordering::SeqCst);
        let before = asked();
        let written = log.append(&[event(1, 1)], false);
        // The writer asks for the connection in a thread of its own.
        while asked() == before {
            tokio::task::yield_now().await;
        }
        held.commit().await.unwrap();
        written.await.unwrap();
        order.lock().unwrap().push("append");
    };
    futures_util::future::join(others, append).await;
    let order = order.into_inner().unwrap();
    let before = order.iter().position(|who| *who == "append").unwrap();
    assert!(before < 20, "{before} of 40 were written before it");
}

async fn a_second_writer_is_told_who_has_the_thread_until_it_is_closed(bed: Bed) {
    let (store, other) = (bed.open().await, bed.open().await);
    let mut log = open(&store, "t").await;
    for store in [&store, &other] {
        let error = store.open(&id("t")).await.err().unwrap();
        let StoreError::Busy { owner, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(owner, "this process");
    }
    let error = other.clear_thread(&id("t")).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    // The other may write its own threads meanwhile.
    let mut elsewhere = open(&other, "u").await;
    let both = (
        log.append(&[entry(1)], true),
        elsewhere.append(&[entry(1)], true),
    );
    both.0.await.unwrap();
    both.1.await.unwrap();
    drop(log);
    store.close().await;
    assert_eq!(open(&other, "t").await.epoch(), 2);
}

async fn a_silent_writer_loses_its_threads_and_can_write_no_more(bed: Bed) {
    let (store, other) = (bed.open().await, bed.open().await);
    store
        .db()
        .is_mute
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let mut log = open(&store, "t").await;
    log.append(&[entry(1), event(1, 1)], true).await.unwrap();
    let silence = |milliseconds: i64| {
        let sql = format!("UPDATE writers SET beat_ms = beat_ms - {milliseconds}");
        let other = &other;
        async move {
            let tx = other.db().begin(false, "test").await.unwrap();
            tx.execute(&sql, []).await.unwrap();
            tx.commit().await.unwrap();
        }
    };
    silence(13_000).await;
    assert!(other.open(&id("t")).await.is_err());
    silence(2_500).await;
    let mut taken = open(&other, "t").await;
    assert_eq!((taken.epoch(), taken.last_seq()), (2, 1));
    for records in [[entry(2)], [event(1, 2)]] {
        let error = log.append(&records, false).await.unwrap_err();
        assert!(matches!(error, StoreError::Lost { .. }), "{error}");
    }
    taken.append(&[entry(2), event(2, 1)], false).await.unwrap();
    assert_eq!(
        read(&store, "t").await,
        [entry(1), event(1, 1), entry(2), event(2, 1)]
    );
    // The one that was silent goes on with other threads.
    let mut again = open(&store, "u").await;
    again.append(&[entry(1)], false).await.unwrap();
}

async fn two_hosts_that_want_each_others_threads_do_not_stop_each_other(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    // Each has its own before it wants the other's.
    let both = tokio::sync::Barrier::new(2);
    let host = async |own: &Store, name: &str, other: &str| {
        let mut log = open(own, name).await;
        both.wait().await;
        for seq in 1..=60 {
            let appended = log.append(&[entry(seq), event(1, seq)], seq.is_multiple_of(3));
            let wanted = id(other);
            let (appended, wanted) = tokio::join!(appended, own.open(&wanted));
            appended.unwrap();
            // The other may have ended already.
            if let Err(error) = wanted {
                assert!(matches!(error, StoreError::Busy { .. }), "{error}");
            }
        }
    };
    tokio::join!(host(&one, "a", "b"), host(&two, "b", "a"));
    for thread in ["a", "b"] {
        assert_eq!(read(&one, thread).await.len(), 120);
    }
}

async fn a_thread_whose_row_another_host_keeps_holds_up_no_other(bed: Bed) {
    let (store, other) = (bed.open().await, bed.open().await);
    if store.db().backend() == DatabaseKind::Sqlite {
        // There a transaction keeps the whole database.
        return;
    }
    let _elsewhere = open(&other, "elsewhere").await;
    drop(open(&store, "known").await);
    let kept = other.db().begin(false, "keep a row").await.unwrap();
    let sql = "UPDATE threads SET updated_at_ms = 1 WHERE id = 'elsewhere'";
    kept.execute(sql, []).await.unwrap();
    // What is asked for from here on is one group, or two.
    let held = store.db().begin(false, "hold everything up").await.unwrap();
    let (elsewhere, others) = (id("elsewhere"), ["first", "known", "new"].map(id));
    let opened = async {
        let others = others.iter().map(|thread| store.open(thread));
        for log in futures_util::future::join_all(others).await {
            log.unwrap();
        }
        kept.commit().await.unwrap();
    };
    let release = async {
        tokio::task::yield_now().await;
        held.commit().await.unwrap();
    };
    let (error, (), ()) =
        futures_util::future::join3(store.open(&elsewhere), opened, release).await;
    let error = error.err().unwrap();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
}

async fn a_queue_that_is_full_refuses_and_goes_on_when_there_is_room(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    let megabyte = |seq| notice(seq, "x".repeat(1 << 20));
    // The writer waits for this transaction.
    let tx = store.db().begin(false, "test").await.unwrap();
    let mut waiting = Vec::new();
    for seq in 1..=60 {
        waiting.push(log.append(&[megabyte(seq)], false));
    }
    let error = loop {
        assert!(waiting.len() < 80, "the queue has a bound");
        let mut next = log.append(&[megabyte(waiting.len() as u64 + 1)], false);
        match (&mut next).now_or_never() {
            Some(answer) => break answer.unwrap_err(),
            None => waiting.push(next),
        }
    };
    assert!(matches!(error, StoreError::Behind { .. }), "{error}");
    drop(tx);
    let written = waiting.len() as u64;
    for waits in waiting {
        waits.await.unwrap();
    }
    log.append(&[entry(written + 1)], false).await.unwrap();
    let large = notice(written + 2, "x".repeat(40 << 20));
    let error = log.append(&[large], false).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    log.append(&[entry(written + 2)], false).await.unwrap();
}
