//! The newest settings that threads tell.

use std::collections::BTreeMap;

use conjure_core::log::{Entry, EntryBody};
use serde_json::json;

use crate::settings_entries::newest_settings_sql;
use crate::sql::{DatabaseKind, Value};
use crate::tests::{Bed, cases, entry, id, open, other_program};
use crate::{Record, Store, StoreError, ThreadId};

cases! {
    the_newest_settings_are_found_however_long_ago_and_in_ancestors
    the_newest_settings_of_many_threads_are_those_of_each
    an_index_that_is_missing_is_made_when_the_database_is_opened
    an_index_is_made_where_nobody_waits_for_it
    an_index_that_was_not_finished_is_made_anew
}

fn settings(seq: u64) -> Record {
    Record::Entry(Entry {
        seq,
        turn: 1,
        at_ms: 0,
        body: EntryBody::SettingsChanged {
            summary: String::new(),
            settings: json!({ "seq": seq }),
        },
    })
}

async fn newest(store: &Store, thread: &str) -> Option<u64> {
    let newest = store.newest_settings(&[id(thread)]).await.unwrap();
    newest.get(&id(thread)).map(|entry| entry.seq)
}

async fn the_newest_settings_are_found_however_long_ago_and_in_ancestors(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "a").await;
    assert_eq!(newest(&store, "a").await, None);
    let mut records = vec![settings(1), entry(2), settings(3)];
    records.extend((4..=300).map(entry));
    log.append(&records, false).await.unwrap();
    drop(log);
    assert_eq!(newest(&store, "a").await, Some(3));
    // A fork shows what was told before it, and what it tells itself.
    store.fork(&id("a"), 2, &id("before")).await.unwrap();
    assert_eq!(newest(&store, "before").await, Some(1));
    store.fork(&id("a"), 200, &id("behind")).await.unwrap();
    assert_eq!(newest(&store, "behind").await, Some(3));
    let mut log = open(&store, "behind").await;
    log.append(&[settings(201), entry(202)], false)
        .await
        .unwrap();
    drop(log);
    assert_eq!(newest(&store, "behind").await, Some(201));
    assert_eq!(newest(&store, "a").await, Some(3));
    store.clear_thread(&id("a")).await.unwrap();
    assert_eq!(newest(&store, "a").await, None);
    assert_eq!(newest(&store, "none").await, None);
}

/// The newest settings of each thread, out of all that it shows.
async fn one_by_one(store: &Store, threads: &[ThreadId]) -> BTreeMap<ThreadId, Entry> {
    let mut newest = BTreeMap::new();
    for thread in threads {
        let entries = match store.all_entries(thread).await {
            Ok(entries) => entries,
            Err(StoreError::NoThread { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        let is_it = |entry: &Entry| matches!(entry.body, EntryBody::SettingsChanged { .. });
        if let Some(entry) = entries.into_iter().rev().find(is_it) {
            newest.insert(thread.clone(), entry);
        }
    }
    newest
}

async fn the_newest_settings_of_many_threads_are_those_of_each(bed: Bed) {
    let store = bed.open().await;
    let mut threads = vec![id("none")];
    for number in 0..20 {
        let name = format!("t{number}");
        let mut log = open(&store, &name).await;
        let records: Vec<Record> = (1..=40)
            .map(|seq| {
                let tells = number % 5 != 4 && (seq == 1 || seq % (number + 2) == 0);
                if tells { settings(seq) } else { entry(seq) }
            })
            .collect();
        log.append(&records, false).await.unwrap();
        drop(log);
        threads.push(id(&name));
        // Forks of forks, at places between which the ones above tell settings.
        let (mut above, mut at) = (id(&name), 40);
        for fork in 0..3 {
            at -= number / 2;
            let below = id(&format!("t{number}-{fork}"));
            store.fork(&above, at, &below).await.unwrap();
            if number % 3 == fork {
                let mut log = store_log(&store, &below).await;
                let own = [settings(at + 1), entry(at + 2)];
                log.append(&own, false).await.unwrap();
                at += 2;
            }
            threads.push(below.clone());
            above = below;
        }
        // What is cleared before a fork, and what is cleared behind it.
        if number % 4 == 1 {
            store.clear_thread(&above).await.unwrap();
            let mut log = store_log(&store, &above).await;
            log.append(&[entry(at + 1)], false).await.unwrap();
            drop(log);
            let late = id(&format!("t{number}-late"));
            store.fork(&above, at + 1, &late).await.unwrap();
            threads.push(late);
        }
        if number % 4 == 2 {
            store.clear_thread(&id(&name)).await.unwrap();
        }
    }
    let expected = one_by_one(&store, &threads).await;
    assert!(expected.len() > 40, "{}", expected.len());
    assert!(expected.len() < threads.len() - 10, "{}", expected.len());
    assert_eq!(store.newest_settings(&threads).await.unwrap(), expected);
    assert!(store.newest_settings(&[]).await.unwrap().is_empty());
}

async fn store_log(store: &Store, thread: &ThreadId) -> Box<dyn crate::ThreadLog> {
    open(store, thread.as_str()).await
}

/// How SQLite finds the newest settings of three threads.
async fn plan(store: &Store) -> String {
    let ids: Vec<Value> = ["a", "b", "c"].map(Value::from).into();
    let sql = format!("EXPLAIN QUERY PLAN {}", newest_settings_sql(ids.len()));
    let rows = store.db().reader().all(&sql, ids).await.unwrap();
    let lines = rows.iter().map(|row| row.get::<String>("detail").unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

const INDEX: &str = "entries_with_settings";

/// Has another program execute a statement.
async fn elsewhere(bed: &Bed, sql: &str) {
    let other = other_program(&super::faults::url(bed)).await;
    other.execute_raw(sql).await.unwrap();
    other.close().await;
}

/// Drops the index; fails where there is none.
async fn drop_index(bed: &Bed) {
    elsewhere(bed, &format!("DROP INDEX {INDEX}")).await;
}

/// Whether queries can use the index.
async fn has_index(store: &Store) -> bool {
    let sql = match store.db().backend() {
        DatabaseKind::Postgres => {
            "SELECT 1 AS one FROM pg_index WHERE indisvalid \
             AND indexrelid = to_regclass('entries_with_settings')"
        }
        DatabaseKind::Sqlite => {
            "SELECT 1 AS one FROM sqlite_master WHERE name = 'entries_with_settings'"
        }
    };
    let rows = store.db().reader().all(sql, Vec::new()).await.unwrap();
    !rows.is_empty()
}

async fn an_index_is_made_where_nobody_waits_for_it(bed: Bed) {
    let other = bed.open().await;
    let log = open(&other, "a").await;
    drop_index(&bed).await;
    // A file has one writer at a time, so one that others write is left as it is.
    let store = bed.open().await;
    let is_server = store.db().backend() == DatabaseKind::Postgres;
    assert_eq!(has_index(&store).await, is_server);
    store.close().await;
    drop(log);
    other.close().await;
    let store = bed.open().await;
    assert!(has_index(&store).await);
    // It waits for others as ever.
    if !is_server {
        let connection = store.db().write_connection().await;
        let rows = connection.all("PRAGMA busy_timeout", Vec::new()).await;
        let timeout: i64 = rows.unwrap()[0].get("timeout").unwrap();
        assert_eq!(timeout, 5000);
    }
    store.close().await;
}

async fn an_index_that_was_not_finished_is_made_anew(bed: Bed) {
    let store = bed.open().await;
    let is_server = store.db().backend() == DatabaseKind::Postgres;
    store.close().await;
    // SQLite makes an index in a transaction, whole or not at all.
    if is_server {
        let sql = format!(
            "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = '{INDEX}'::regclass"
        );
        elsewhere(&bed, &sql).await;
    }
    let store = bed.open().await;
    assert!(has_index(&store).await);
    store.close().await;
}

async fn an_index_that_is_missing_is_made_when_the_database_is_opened(bed: Bed) {
    bed.open().await.close().await;
    drop_index(&bed).await;
    let store = bed.open().await;
    let mut log = open(&store, "a").await;
    log.append(&[settings(1), entry(2)], false).await.unwrap();
    drop(log);
    assert_eq!(newest(&store, "a").await, Some(1));
    // What PostgreSQL uses depends on how much there is.
    if store.db().backend() == DatabaseKind::Sqlite {
        let plan = plan(&store).await;
        assert!(plan.contains(INDEX), "{plan}");
        assert!(!plan.contains("SCAN e"), "{plan}");
    }
    store.close().await;
    drop_index(&bed).await;
}
