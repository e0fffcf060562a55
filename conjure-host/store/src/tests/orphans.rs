//! Turns that waited in a process that is gone.

use conjure_core::chat::Message;

use crate::tests::{Bed, cases, id};
use crate::{Run, RunState, Store};

cases! {
    what_waited_in_a_process_that_is_gone_is_taken_over_once_and_in_order
    what_waits_in_a_process_that_lives_stays_there
}

async fn begun(store: &Store, session: &str, name: &str) -> Run {
    let run = Run::new(name, Some(session.to_owned()), id("t"));
    let run = run.with_message(Some(Message::user(name)));
    let run = run.with_terms(Some("{}".to_owned()));
    store.begin_run(run).await.unwrap()
}

async fn what_waited_in_a_process_that_is_gone_is_taken_over_once_and_in_order(bed: Bed) {
    let (gone, one, two) = (bed.open().await, bed.open().await, bed.open().await);
    gone.create_thread(&id("t"), "").await.unwrap();
    let session = super::runs::session(&gone).await.id;
    for name in ["running", "c", "a", "b"] {
        begun(&gone, &session, name).await;
    }
    let runs = gone.update_run("running", RunState::Running, None);
    assert!(runs.await.unwrap());
    gone.close().await;
    let over = one.take_over_runs().await.unwrap();
    let over: Vec<&str> = over.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(over, ["running"]);
    assert_eq!(
        one.orphaned_sessions().await.unwrap(),
        std::slice::from_ref(&session)
    );
    let taken = one.adopt_runs(&session).await.unwrap();
    let named: Vec<&str> = taken.iter().map(|run| run.id.as_str()).collect();
    let mut expected = taken.clone();
    expected.sort_by_key(|run| (run.queued_at_ms, run.id.clone()));
    assert_eq!(taken, expected);
    assert_eq!(named.len(), 3);
    assert_eq!(taken[0].terms.as_deref(), Some("{}"));
    assert_eq!(two.adopt_runs(&session).await.unwrap(), []);
    assert_eq!(two.orphaned_sessions().await.unwrap(), [""; 0]);
    let now = two.run("a").await.unwrap();
    assert_eq!((now.state, &now.owner), (RunState::Queued, &taken[0].owner));
}

async fn what_waits_in_a_process_that_lives_stays_there(bed: Bed) {
    let (lives, other) = (bed.open().await, bed.open().await);
    lives.create_thread(&id("t"), "").await.unwrap();
    let session = super::runs::session(&lives).await.id;
    begun(&lives, &session, "waits").await;
    assert_eq!(other.orphaned_sessions().await.unwrap(), [""; 0]);
    assert_eq!(other.adopt_runs(&session).await.unwrap(), []);
    assert_eq!(lives.adopt_runs(&session).await.unwrap(), []);
}
