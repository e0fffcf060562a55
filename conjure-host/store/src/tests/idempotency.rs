//! Requests that may come twice.

use crate::{KeyStatus, StoreError, StoredResponse};

use super::runs::by_hand;
use super::{Bed, cases};

cases! {
    a_request_that_comes_twice_is_answered_once
    a_request_whose_process_is_gone_or_that_was_given_up_begins_anew
}

fn answer() -> StoredResponse {
    StoredResponse {
        status: 201,
        headers: vec![("location".to_owned(), "/api/v1/sessions/s".to_owned())],
        body: vec![0, 255, 40, 181, 47, 253],
    }
}

async fn a_request_that_comes_twice_is_answered_once(bed: Bed) {
    let store = bed.open().await;
    let other = bed.open().await;
    let (one, two) = tokio::join!(
        store.idempotent_begin("k", "POST /turns", "aa"),
        other.idempotent_begin("k", "POST /turns", "aa"),
    );
    let begun = [one.unwrap(), two.unwrap()];
    assert!(
        begun.contains(&KeyStatus::Fresh) && begun.contains(&KeyStatus::InFlight),
        "{begun:?}"
    );
    let ask =
        async |scope: &str, sha256: &str| store.idempotent_begin("k", scope, sha256).await.unwrap();
    assert_eq!(ask("POST /turns", "bb").await, KeyStatus::Mismatch);
    assert_eq!(ask("POST /sessions", "bb").await, KeyStatus::Fresh);
    assert!(
        store
            .idempotent_end("k", "POST /turns", &answer())
            .await
            .unwrap()
    );
    assert_eq!(ask("POST /turns", "aa").await, KeyStatus::Replay(answer()));
    assert_eq!(ask("POST /turns", "bb").await, KeyStatus::Mismatch);
    // The first answer stays.
    let second = StoredResponse {
        status: 500,
        ..answer()
    };
    assert!(
        !store
            .idempotent_end("k", "POST /turns", &second)
            .await
            .unwrap()
    );
    store.idempotent_abandon("k", "POST /turns").await.unwrap();
    assert_eq!(ask("POST /turns", "aa").await, KeyStatus::Replay(answer()));

    store
        .idempotent_abandon("k", "POST /sessions")
        .await
        .unwrap();
    assert_eq!(ask("POST /sessions", "cc").await, KeyStatus::Fresh);
    for bad in ["", "a\0b", &"x".repeat(256)] {
        let error = store.idempotent_begin(bad, "s", "aa").await.unwrap_err();
        assert!(matches!(error, StoreError::BadName { .. }), "{error}");
    }

    assert_eq!(store.idempotent_forget(60_000).await.unwrap(), 0);
    let sql = "UPDATE idempotency_keys SET created_at_ms = created_at_ms - 60001 \
               WHERE scope = 'POST /turns'";
    by_hand(&store, sql).await;
    assert_eq!(store.idempotent_forget(60_000).await.unwrap(), 1);
    assert_eq!(ask("POST /turns", "dd").await, KeyStatus::Fresh);
    assert_eq!(ask("POST /sessions", "cc").await, KeyStatus::InFlight);
}

async fn a_request_whose_process_is_gone_or_that_was_given_up_begins_anew(bed: Bed) {
    let store = bed.open().await;
    let other = bed.open().await;
    for key in ["orphan", "answered"] {
        other.idempotent_begin(key, "s", "aa").await.unwrap();
    }
    other
        .idempotent_end("answered", "s", &answer())
        .await
        .unwrap();
    let ask =
        async |key: &str, sha256: &str| store.idempotent_begin(key, "s", sha256).await.unwrap();
    assert_eq!(ask("orphan", "aa").await, KeyStatus::InFlight);
    other.close().await;
    assert_eq!(ask("orphan", "bb").await, KeyStatus::Mismatch);
    assert_eq!(ask("orphan", "aa").await, KeyStatus::Fresh);
    assert_eq!(ask("orphan", "aa").await, KeyStatus::InFlight);
    assert_eq!(ask("answered", "aa").await, KeyStatus::Replay(answer()));

    let sql = "UPDATE idempotency_keys SET created_at_ms = created_at_ms - 899000 \
               WHERE key = 'orphan'";
    by_hand(&store, sql).await;
    assert_eq!(ask("orphan", "aa").await, KeyStatus::InFlight);
    by_hand(&store, sql).await;
    assert_eq!(ask("orphan", "aa").await, KeyStatus::Fresh);
    assert_eq!(ask("orphan", "aa").await, KeyStatus::InFlight);
}
