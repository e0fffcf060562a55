//! Followers of threads in one process, as the others see them.

use std::collections::BTreeSet;

use crate::tests::{Bed, cases, id};
use crate::{Store, ThreadId};

cases! {
    others_see_who_follows_here_until_they_leave_or_it_ends
}

async fn follows(store: &Store, threads: &[Option<ThreadId>]) {
    let followed: BTreeSet<_> = threads.iter().cloned().collect();
    store.set_followed(&followed).await.unwrap();
}

async fn others_see_who_follows_here_until_they_leave_or_it_ends(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    let (a, b) = (id("a"), id("b"));
    follows(&one, &[Some(a.clone())]).await;
    assert!(two.is_followed(&a).await.unwrap());
    assert!(!two.is_followed(&b).await.unwrap(), "it is another thread");
    assert!(!one.is_followed(&a).await.unwrap(), "it knows of its own");
    follows(&one, &[Some(b.clone())]).await;
    assert!(!two.is_followed(&a).await.unwrap());
    assert!(two.is_followed(&b).await.unwrap());
    follows(&one, &[None]).await;
    assert!(two.is_followed(&a).await.unwrap());
    follows(&one, &[]).await;
    assert!(!two.is_followed(&a).await.unwrap());
    follows(&one, &[None]).await;
    one.close().await;
    assert!(!two.is_followed(&a).await.unwrap(), "its process has ended");
}
