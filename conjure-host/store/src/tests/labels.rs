//! Labels: given by hand, and numbered where they are not.

use std::collections::BTreeSet;

use crate::{Log as _, StoreError};

use super::{Bed, cases, id};

cases! {
    labels_are_kept_and_the_newest_wins
    threads_of_one_name_are_numbered_without_trying_each_number
}

async fn labels_are_kept_and_the_newest_wins(bed: Bed) {
    let store = bed.open().await;
    store.create_thread(&id("t"), "First").await.unwrap();
    store.rename_thread(&id("t"), "Second").await.unwrap();
    store.rename_thread(&id("t"), "Third").await.unwrap();
    assert_eq!(store.thread(&id("t")).await.unwrap().label, "Third");
    let labels = store.thread_labels(&id("t")).await.unwrap();
    let labels: Vec<_> = labels.iter().map(|(_, label)| label.as_str()).collect();
    assert_eq!(labels, ["First", "Second", "Third"]);
    let error = store.create_thread(&id("t"), "").await.unwrap_err();
    assert!(matches!(error, StoreError::ThreadExists { .. }), "{error}");
    for n in 0..5 {
        store
            .create_thread(&id(&format!("n{n}")), "")
            .await
            .unwrap();
    }
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.thread_page(cursor.as_ref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        cursor = Some(last.cursor());
        all.extend(page.into_iter().map(|thread| thread.id));
    }
    let mut expected = store.threads().await.unwrap();
    expected.reverse();
    assert_eq!(all, expected);
}

async fn threads_of_one_name_are_numbered_without_trying_each_number(bed: Bed) {
    let store = bed.open().await;
    let label = |number: usize| match number {
        1 => "Hello".to_owned(),
        number => format!("Hello {number}"),
    };
    for number in 1..=70 {
        let thread = id(&number.to_string());
        store.open(&thread).await.unwrap();
        store.name_if_nameless(&thread, "Hello").await.unwrap();
        assert_eq!(store.thread(&thread).await.unwrap().label, label(number));
    }
    // One that has a name keeps it, and a name that was given back is free again.
    store.name_if_nameless(&id("3"), "Bye").await.unwrap();
    assert_eq!(store.thread(&id("3")).await.unwrap().label, "Hello 3");
    store.rename_thread(&id("70"), "Bye").await.unwrap();
    store.open(&id("71")).await.unwrap();
    store.name_if_nameless(&id("71"), "Hello").await.unwrap();
    assert_eq!(store.thread(&id("71")).await.unwrap().label, "Hello 70");
    // Whatever is free, no two threads have one label.
    store.rename_thread(&id("5"), "Five").await.unwrap();
    let mut labels = BTreeSet::new();
    for number in 72..=80 {
        let thread = id(&number.to_string());
        store.open(&thread).await.unwrap();
        store.name_if_nameless(&thread, "Hello").await.unwrap();
    }
    for number in 1..=80 {
        let thread = store.thread(&id(&number.to_string())).await.unwrap();
        assert!(labels.insert(thread.label.clone()), "{}", thread.label);
    }
}
