//! The newest settings that a thread tells.

use conjure_core::log::{Entry, EntryBody};
use serde_json::json;

use crate::tests::{Bed, cases, entry, id, open};
use crate::{Record, Store, StoreError};

cases! {
    the_newest_settings_are_found_however_long_ago_and_in_ancestors
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
    let newest = store.newest_settings(&id(thread)).await.unwrap();
    newest.map(|entry| entry.seq)
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
    let missing = store.newest_settings(&id("none")).await.unwrap_err();
    assert!(matches!(missing, StoreError::NoThread { .. }), "{missing}");
}
