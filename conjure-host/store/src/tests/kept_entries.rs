//! What forks keep of threads that are cleared or removed.

use crate::tests::{Bed, cases, entry, id, open};
use crate::{RetainedEntries, Store};

cases! {
    what_only_forks_show_is_known_with_whose_it_was
}

async fn kept(store: &Store, fork: &str) -> Vec<RetainedEntries> {
    store.retained_entries(&id(fork)).await.unwrap()
}

async fn what_only_forks_show_is_known_with_whose_it_was(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "a").await;
    log.append(&(1..=6).map(entry).collect::<Vec<_>>(), false)
        .await
        .unwrap();
    drop(log);
    store.fork(&id("a"), 4, &id("b")).await.unwrap();
    let mut log = open(&store, "b").await;
    log.append(&[entry(5), entry(6)], false).await.unwrap();
    drop(log);
    store.fork(&id("b"), 5, &id("c")).await.unwrap();
    assert_eq!(kept(&store, "a").await, []);
    assert_eq!(kept(&store, "c").await, [], "both show it themselves");
    store.clear_thread(&id("a")).await.unwrap();
    let of_a = RetainedEntries {
        thread: id("a"),
        after_seq: 0,
        last_seq: 4,
    };
    assert_eq!(kept(&store, "b").await, std::slice::from_ref(&of_a));
    store.remove_thread(&id("b")).await.unwrap();
    let of_b = RetainedEntries {
        thread: id("b"),
        after_seq: 4,
        last_seq: 5,
    };
    assert_eq!(kept(&store, "c").await, [of_b, of_a]);
}
