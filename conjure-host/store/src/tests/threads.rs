//! Threads: appending, reading, forking, clearing.

use conjure_core::chat::{CallAnnounced, Event, EventId, FunctionCallOutput, Message, Meta, Usage};
use conjure_core::log::{CallEnd, Entry, EntryBody};

use crate::sql::DatabaseKind;
use crate::{Log as _, Record, StoreError, Window};

use super::{Bed, cases, entry, event, id, of_turn, open, read};

cases! {
    what_is_appended_is_read_after_a_restart_and_the_epoch_grows
    an_append_that_leaves_a_hole_is_refused_and_writes_nothing
    events_come_back_from_any_number_on_exactly_once
    a_fork_copies_nothing_and_both_branches_go_on
    a_page_is_what_it_says_across_forks
    a_page_ends_where_it_has_4_mib_and_the_next_goes_on
    clearing_deletes_what_no_fork_shows_and_keeps_numbers
    removing_a_thread_keeps_what_its_forks_show_until_they_go
    the_ledger_knows_each_call
    threads_are_found_by_a_part_of_their_label
    an_old_thread_that_grew_last_comes_first
    long_bodies_and_odd_text_come_back
    bodies_of_some_mebibytes_come_back
    numbers_come_back_to_their_last_digit
    totals_are_summed
}

async fn what_is_appended_is_read_after_a_restart_and_the_epoch_grows(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    assert_eq!((log.epoch(), log.last_seq()), (1, 0));
    log.append(
        &[entry(1), event(1, 1), event(1, 2), entry(2), event(1, 3)],
        true,
    )
    .await
    .unwrap();
    drop(log);
    store.close().await;
    let error = store.open(&id("t")).await.err().unwrap();
    assert!(matches!(error, StoreError::Closed), "{error}");

    let store = bed.open().await;
    let log = open(&store, "t").await;
    assert_eq!((log.epoch(), log.last_seq()), (2, 2));
    assert_eq!(
        read(&store, "t").await,
        [entry(1), event(1, 1), event(1, 2), entry(2), event(1, 3)]
    );
    assert_eq!(store.threads().await.unwrap(), [id("t")]);
    let error = store.read(&id("other")).await.unwrap_err();
    assert!(matches!(error, StoreError::NoThread { .. }), "{error}");
}

async fn an_old_thread_that_grew_last_comes_first(bed: Bed) {
    let store = bed.open().await;
    let mut old = open(&store, "old").await;
    store.create_thread(&id("empty"), "Named").await.unwrap();
    let mut unused = open(&store, "unused").await;
    unused.append(&[of_turn(1, 0)], true).await.unwrap();
    for thread in ["a", "b"] {
        let mut log = open(&store, thread).await;
        log.append(&[entry(1)], true).await.unwrap();
    }
    old.append(&[entry(1)], true).await.unwrap();
    let mut opened = open(&store, "opened").await;
    opened.append(&[of_turn(1, 0)], true).await.unwrap();
    let latest = store.latest_threads(9).await.unwrap();
    let latest: Vec<&str> = latest.iter().map(|thread| thread.id.as_str()).collect();
    assert_eq!(latest, ["old", "b", "a"]);
    assert_eq!(store.latest_threads(1).await.unwrap()[0].id, id("old"));
}

async fn an_append_that_leaves_a_hole_is_refused_and_writes_nothing(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    log.append(&[entry(1), event(1, 1)], false).await.unwrap();
    for records in [
        vec![entry(3)],
        vec![entry(1)],
        vec![event(1, 3)],
        vec![event(2, 2)],
        vec![entry(2), event(1, 3)],
        vec![entry(2), entry(4)],
        vec![event(1, 2), event(1, 4)],
    ] {
        // The one behind it would fit only if that one had been written.
        let first = log.append(&records, false);
        let second = log.append(&[entry(9), event(1, 9)], false);
        for error in [first.await.unwrap_err(), second.await.unwrap_err()] {
            assert!(matches!(error, StoreError::Gap { .. }), "{error}");
        }
    }
    assert_eq!(read(&store, "t").await, [entry(1), event(1, 1)]);
    log.append(&[entry(2), event(1, 2)], false).await.unwrap();
}

async fn events_come_back_from_any_number_on_exactly_once(bed: Bed) {
    let store = bed.open().await;
    let mut written = Vec::new();
    for epoch in 1..=3 {
        let mut log = open(&store, "t").await;
        let mut seq = 0;
        for size in [1, 7, 300] {
            let records: Vec<_> = (0..size)
                .map(|_| {
                    seq += 1;
                    event(epoch, seq)
                })
                .collect();
            written.extend((1..=size).map(|n| EventId {
                epoch,
                seq: seq - size + n,
            }));
            log.append(&records, false).await.unwrap();
        }
        drop(log);
    }
    let t = id("t");
    for (at, limit) in [
        (0_usize, 1_000),
        (1, 3),
        (5, 10),
        (8, 400),
        (307, 9),
        (615, 309),
        (924, 5),
    ] {
        let after = at.checked_sub(1).map(|at| written[at]);
        let events = store.events_after(&t, after, limit).await.unwrap();
        let ids: Vec<_> = events.iter().map(|(id, _)| *id).collect();
        let expected: Vec<_> = written[at..].iter().copied().take(limit).collect();
        assert_eq!(ids, expected, "behind {at}");
        for (id, event) in events {
            let delta = format!("Grüße {}\n", id.seq);
            assert_eq!(event, Event::Content { delta });
        }
    }
}

async fn a_fork_copies_nothing_and_both_branches_go_on(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    log.append(
        &[entry(1), of_turn(2, 2), event(1, 1), of_turn(3, 3)],
        false,
    )
    .await
    .unwrap();
    store.fork(&id("t"), 2, &id("f")).await.unwrap();
    store.fork(&id("f"), 1, &id("g")).await.unwrap();
    let rows = |table: &'static str| {
        let store = store.clone();
        async move {
            let sql = format!("SELECT COUNT(*) AS n FROM {table}");
            let row = store.one(&sql, []).await.unwrap().unwrap();
            crate::row::number(&row, "n").unwrap()
        }
    };
    assert_eq!((rows("entries").await, rows("threads").await), (3, 3));
    let mut fork = open(&store, "f").await;
    assert_eq!((fork.epoch(), fork.last_seq()), (1, 2));
    log.append(&[of_turn(4, 3)], false).await.unwrap();
    fork.append(&[of_turn(3, 2), event(1, 1)], false)
        .await
        .unwrap();
    assert_eq!(
        read(&store, "f").await,
        [entry(1), of_turn(2, 2), of_turn(3, 2), event(1, 1)]
    );
    assert_eq!(read(&store, "g").await, [entry(1)]);
    assert_eq!(
        read(&store, "t").await,
        [
            entry(1),
            of_turn(2, 2),
            event(1, 1),
            of_turn(3, 3),
            of_turn(4, 3)
        ]
    );
    let thread = store.thread(&id("f")).await.unwrap();
    assert_eq!(
        (thread.parent, thread.fork_from_seq, thread.last_turn),
        (Some(id("t")), 2, 2)
    );
    let forks = store.forks(&id("t")).await.unwrap();
    assert_eq!(forks.iter().map(|t| &t.id).collect::<Vec<_>>(), [&id("f")]);
    for (from, fork, expected) in [(0, "x", "NoEntry"), (5, "x", "NoEntry"), (1, "g", "Exists")] {
        let error = store.fork(&id("t"), from, &id(fork)).await.unwrap_err();
        assert!(format!("{error:?}").contains(expected), "{error:?}");
    }
}

async fn a_page_is_what_it_says_across_forks(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "a").await;
    log.append(&(1..=10).map(entry).collect::<Vec<_>>(), false)
        .await
        .unwrap();
    store.fork(&id("a"), 6, &id("b")).await.unwrap();
    let mut log = open(&store, "b").await;
    log.append(&(7..=9).map(entry).collect::<Vec<_>>(), false)
        .await
        .unwrap();
    store.fork(&id("b"), 8, &id("c")).await.unwrap();
    let mut log = open(&store, "c").await;
    log.append(&(9..=12).map(entry).collect::<Vec<_>>(), false)
        .await
        .unwrap();
    let c = id("c");
    let page = |window, limit| {
        let (store, c) = (store.clone(), c.clone());
        async move {
            let page = store.entries(&c, window, limit).await.unwrap();
            let seqs: Vec<_> = page.entries.iter().map(|entry| entry.seq).collect();
            (seqs, page.has_earlier(), page.has_later())
        }
    };
    assert_eq!(page(Window::Last, 3).await, (vec![10, 11, 12], true, false));
    assert_eq!(
        page(Window::Last, 5).await,
        (vec![8, 9, 10, 11, 12], true, false)
    );
    assert_eq!(page(Window::Last, 99).await.0, (1..=12).collect::<Vec<_>>());
    assert_eq!(
        page(Window::Before(9), 4).await,
        (vec![5, 6, 7, 8], true, true)
    );
    assert_eq!(page(Window::Before(1), 4).await.0, Vec::<u64>::new());
    assert_eq!(
        page(Window::After(0), 3).await,
        (vec![1, 2, 3], false, true)
    );
    assert_eq!(
        page(Window::After(5), 4).await,
        (vec![6, 7, 8, 9], true, true)
    );
    assert_eq!(page(Window::After(12), 4).await.0, Vec::<u64>::new());
}

async fn clearing_deletes_what_no_fork_shows_and_keeps_numbers(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    let mut records: Vec<_> = (1..=6).map(entry).collect();
    records.push(event(1, 1));
    log.append(&records, false).await.unwrap();
    store.fork(&id("t"), 3, &id("f")).await.unwrap();
    let keeping = store.forks_keeping(&id("t")).await.unwrap();
    assert_eq!(
        keeping.iter().map(|t| &t.id).collect::<Vec<_>>(),
        [&id("f")]
    );

    store.clear_thread(&id("t")).await.unwrap();
    assert_eq!(read(&store, "t").await, []);
    assert_eq!(read(&store, "f").await, [entry(1), entry(2), entry(3)]);
    let rows = store
        .all("SELECT seq FROM entries ORDER BY seq", [])
        .await
        .unwrap();
    assert_eq!(rows.len(), 3);
    let error = store.fork(&id("t"), 3, &id("x")).await.unwrap_err();
    assert!(matches!(error, StoreError::NoEntry { .. }), "{error}");

    log.append(&[entry(7), event(1, 2)], false).await.unwrap();
    assert_eq!(read(&store, "t").await, [entry(7), event(1, 2)]);
    // A fork of what came after shows nothing of what was cleared.
    store.fork(&id("t"), 7, &id("g")).await.unwrap();
    assert_eq!(read(&store, "g").await, [entry(7)]);
    // The last fork that kept something goes.
    store.clear_thread(&id("f")).await.unwrap();
    let rows = store.all("SELECT seq FROM entries", []).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(read(&store, "t").await, [entry(7), event(1, 2)]);
    assert!(store.forks_keeping(&id("f")).await.unwrap().is_empty());
}

async fn removing_a_thread_keeps_what_its_forks_show_until_they_go(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    log.append(&[entry(1), entry(2)], false).await.unwrap();
    store.fork(&id("t"), 1, &id("f")).await.unwrap();
    let error = store.remove_thread(&id("t")).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    drop(log);
    store.remove_thread(&id("t")).await.unwrap();
    for error in [
        store.thread(&id("t")).await.unwrap_err(),
        store.read(&id("t")).await.unwrap_err(),
        store.open(&id("t")).await.err().unwrap(),
        store.fork(&id("t"), 1, &id("x")).await.unwrap_err(),
        store.rename_thread(&id("t"), "x").await.unwrap_err(),
        store.remove_thread(&id("t")).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::NoThread { .. }), "{error}");
    }
    assert_eq!(store.threads().await.unwrap(), [id("f")]);
    assert_eq!(read(&store, "f").await, [entry(1)]);
    store.remove_thread(&id("f")).await.unwrap();
    for table in ["threads", "entries"] {
        let rows = store
            .all(&format!("SELECT 1 AS n FROM {table}"), [])
            .await
            .unwrap();
        assert!(rows.is_empty(), "{table}");
    }
}

fn call_entry(seq: u64, body: EntryBody) -> Record {
    Record::Entry(Entry {
        seq,
        turn: 1,
        at_ms: 1_000 + i64::try_from(seq).unwrap(),
        body,
    })
}

async fn a_page_ends_where_it_has_4_mib_and_the_next_goes_on(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    let large = |seq| notice(seq, "ü".repeat(700_000));
    let shown = |seq| Record::Event {
        id: EventId { epoch: 1, seq },
        event: Event::Content {
            delta: "ü".repeat(700_000),
        },
    };
    for seq in 1..=9 {
        log.append(&[large(seq), shown(seq)], true).await.unwrap();
    }
    drop(log);
    store.fork(&id("t"), 8, &id("f")).await.unwrap();
    let mut log = open(&store, "f").await;
    log.append(&[large(9), large(10)], true).await.unwrap();

    // Three are 4.2 MB. A page goes on in the ancestor where there is room.
    let page = async |window| {
        let page = store.entries(&id("f"), window, 100).await.unwrap();
        page.entries.iter().map(|e| e.seq).collect::<Vec<_>>()
    };
    assert_eq!(page(Window::Last).await, [8, 9, 10]);
    assert_eq!(page(Window::Before(8)).await, [5, 6, 7]);
    assert_eq!(page(Window::After(0)).await, [1, 2, 3]);
    assert_eq!(page(Window::After(7)).await, [8, 9, 10]);
    assert_eq!(page(Window::After(9)).await, [10]);
    let page = store.entries(&id("t"), Window::Last, 100).await.unwrap();
    assert!(page.has_earlier() && !page.has_later());

    let mut after = None;
    let mut pages = Vec::new();
    loop {
        let events = store.events_after(&id("t"), after, 100).await.unwrap();
        let Some((last, _)) = events.last() else {
            break;
        };
        after = Some(*last);
        pages.push(events.iter().map(|(id, _)| id.seq).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec![1, 2, 3], vec![4, 5, 6], vec![7, 8, 9]]);
    // A fork has none of its ancestors' events.
    assert_eq!(store.events_after(&id("f"), None, 9).await.unwrap(), []);
    // All of a thread is read whole, and the connections are as good as before.
    assert_eq!(read(&store, "t").await.len(), 18);
    for _ in 0..8 {
        assert_eq!(
            store.events_after(&id("t"), None, 1).await.unwrap().len(),
            1
        );
    }
}

pub(super) fn notice(seq: u64, text: String) -> Record {
    call_entry(seq, EntryBody::notice(text))
}

pub(super) fn began(seq: u64, call_id: &str) -> Record {
    call_entry(
        seq,
        EntryBody::CallStarted {
            call_id: call_id.to_owned(),
            backend: "local".to_owned(),
            plugin: Some("conjure-local 1.0".to_owned()),
        },
    )
}

pub(super) fn ended(seq: u64, call_id: &str, end: CallEnd) -> Record {
    call_entry(
        seq,
        EntryBody::CallEnded {
            output: FunctionCallOutput::text(call_id, "output", end != CallEnd::Done),
            end,
            reason: None,
            duration_ms: 7,
            meta: None,
        },
    )
}

async fn the_ledger_knows_each_call(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    log.append(&[began(1, "a"), began(2, "b"), began(3, "c\0")], false)
        .await
        .unwrap();
    let states = || async {
        let calls = store.tool_calls(&id("t")).await.unwrap();
        calls
            .iter()
            .map(|call| {
                (
                    call.call_id.clone(),
                    call.state.as_str(),
                    call.entry_seq,
                    call.ended_seq,
                )
            })
            .collect::<Vec<_>>()
    };
    let running = |id: &str, seq| (id.to_owned(), "running", seq, None);
    assert_eq!(
        states().await,
        [running("a", 1), running("b", 2), running("c\u{fffd}", 3)]
    );
    log.append(
        &[
            ended(4, "a", CallEnd::Done),
            ended(5, "b", CallEnd::TimedOut),
            ended(6, "never", CallEnd::Refused),
            // A server that counts its calls anew in each turn.
            began(7, "a"),
        ],
        true,
    )
    .await
    .unwrap();
    assert_eq!(
        states().await,
        [
            ("b".to_owned(), "timed_out", 2, Some(5)),
            running("c\u{fffd}", 3),
            ("never".to_owned(), "refused", 6, Some(6)),
            running("a", 7),
        ]
    );
    // An append that fails leaves the ledger as it was.
    let failed = log.append(&[ended(9, "a", CallEnd::Done)], true);
    failed.await.unwrap_err();
    assert_eq!(states().await[3], running("a", 7));
    store.fork(&id("t"), 5, &id("f")).await.unwrap();
    let of_fork = store.tool_calls(&id("f")).await.unwrap();
    assert_eq!(of_fork.len(), 2, "{of_fork:?}");
}

async fn threads_are_found_by_a_part_of_their_label(bed: Bed) {
    let store = bed.open().await;
    let labels = [
        "Login Page",
        "Größe",
        "The LOGIN bug",
        "100% sure",
        "a_b",
        "GRÖSSE und ÖL",
    ];
    for (number, label) in labels.iter().enumerate() {
        let thread = id(&format!("t{number}"));
        store.create_thread(&thread, label).await.unwrap();
    }
    store.create_thread(&id("gone"), "login").await.unwrap();
    store.remove_thread(&id("gone")).await.unwrap();
    let found = async |text: &str, limit: u64| {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = store.threads_named(text, after.as_ref(), limit);
            let page = page.await.unwrap();
            assert!(page.len() as u64 <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.cursor());
            all.extend(page.into_iter().map(|thread| thread.label));
        }
        all.sort();
        all
    };
    for limit in [1, 2, 9] {
        assert_eq!(found("login", limit).await, ["Login Page", "The LOGIN bug"]);
        assert_eq!(
            found("LOGIN ", limit).await,
            ["Login Page", "The LOGIN bug"]
        );
        assert_eq!(found("größ", limit).await, ["Größe"]);
        assert_eq!(found("öL", limit).await, ["GRÖSSE und ÖL"]);
        assert_eq!(found("ö", limit).await, ["GRÖSSE und ÖL", "Größe"]);
        assert_eq!(found("0%", limit).await, ["100% sure"]);
        assert_eq!(found("A_B", limit).await, ["a_b"]);
        assert_eq!(found("a%b\0", limit).await, Vec::<String>::new());
        assert_eq!(found("", limit).await.len(), 6);
    }
}

async fn long_bodies_and_odd_text_come_back(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    let text = "nul \0 and \u{10ffff} ".repeat(20_000);
    let entry = notice(1, text.clone());
    let event = Record::Event {
        id: EventId { epoch: 1, seq: 1 },
        event: Event::Notice { text },
    };
    let records = [entry, event];
    log.append(&records, true).await.unwrap();
    assert_eq!(read(&store, "t").await, records);
    let rows = store
        .all("SELECT LENGTH(body) AS n FROM entries", [])
        .await
        .unwrap();
    let stored: i64 = match store.db().backend() {
        DatabaseKind::Postgres => i64::from(crate::row::column::<i32>(&rows[0], "n").unwrap()),
        DatabaseKind::Sqlite => crate::row::column(&rows[0], "n").unwrap(),
    };
    assert!(stored < 10_000, "{stored}");
}

async fn bodies_of_some_mebibytes_come_back(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    let plain = "again and again ".repeat(200_000);
    // Compressed once more it would become smaller again.
    let numbers: String = (0..400_000_u64)
        .map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let mut records = Vec::new();
    for (seq, text) in (1..).zip([plain, numbers]) {
        records.push(notice(seq, text.clone()));
        records.push(Record::Event {
            id: EventId { epoch: 1, seq },
            event: Event::Notice { text },
        });
    }
    log.append(&records, true).await.unwrap();
    assert_eq!(read(&store, "t").await, records);
}

async fn numbers_come_back_to_their_last_digit(bed: Bed) {
    let store = bed.open().await;
    // Sums of prices and the like: read with one digit less they are other numbers.
    let numbers = [0.000_104_999_999_999_999_99, 0.1 + 0.2, 1e-7 / 3.0];
    let calls = numbers.map(|number| CallAnnounced {
        id: "call".to_owned(),
        name: "tool".to_owned(),
        arguments: serde_json::json!({ "number": number }),
    });
    let shown = Record::Event {
        id: EventId { epoch: 1, seq: 1 },
        event: Event::FunctionCall {
            calls: calls.to_vec(),
        },
    };
    let mut log = open(&store, "t").await;
    log.append(std::slice::from_ref(&shown), false)
        .await
        .unwrap();
    assert_eq!(read(&store, "t").await, [shown]);
}

async fn totals_are_summed(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    let reply = |seq| {
        let mut message = Message::assistant("yes");
        message.meta = Some(Meta {
            usage: Usage {
                input: 10,
                cache_read: 5,
                output: 3,
                ..Usage::default()
            },
            latency_ms: 100,
            ..Meta::default()
        });
        call_entry(seq, EntryBody::Message { message })
    };
    log.append(&[reply(1), entry(2)], false).await.unwrap();
    log.append(&[reply(3)], false).await.unwrap();
    let totals = store.thread(&id("t")).await.unwrap().totals;
    assert_eq!((totals.replies, totals.latency_ms), (2, 200));
    assert_eq!((totals.usage.input, totals.usage.total()), (20, 36));
}
