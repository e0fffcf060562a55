//! Turns that waited in a process that is gone.

use std::time::Duration;

use conjure_core::chat::Message;

use crate::tests::postgres::Server;
use crate::tests::{Bed, cases, id, runtime};
use crate::{Run, RunState, Store, StoreError};

cases! {
    what_waited_in_a_process_that_is_gone_is_taken_over_once_and_in_order
    what_waits_in_a_process_that_lives_stays_there
    a_session_has_its_turns_in_one_process_at_a_time
    what_waited_goes_to_the_process_that_has_turns_of_its_session
    what_a_process_lets_go_of_is_taken_over_while_it_lives
    a_turn_that_waited_in_a_process_that_is_gone_is_cancelled_alone
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

/// A session on a thread that is there.
async fn on_a_thread(store: &Store) -> String {
    store.create_thread(&id("t"), "").await.unwrap();
    super::runs::session(store).await.id
}

async fn completed(store: &Store, name: &str) {
    let over = store.end_run(name, RunState::Completed, None, None);
    assert!(over.await.unwrap());
}

async fn a_session_has_its_turns_in_one_process_at_a_time(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    let session = on_a_thread(&one).await;
    begun(&one, &session, "first").await;
    let run = |name: &str| Run::new(name, Some(session.clone()), id("t"));
    let refused = two.begin_run(run("second")).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::SessionBusy { .. }),
        "{refused}"
    );
    begun(&one, &session, "third").await;
    assert!(one.run_owner("first").await.unwrap().is_none());
    assert!(two.run_owner("first").await.unwrap().is_some());
    for name in ["first", "third"] {
        completed(&one, name).await;
    }
    assert!(two.run_owner("first").await.unwrap().is_none());
    begun(&two, &session, "second").await;
    two.close().await;
    begun(&one, &session, "fourth").await;
    // Of two at the same moment one has it.
    completed(&one, "fourth").await;
    let other = bed.open().await;
    let (here, there) = tokio::join!(one.begin_run(run("here")), other.begin_run(run("there")));
    assert_ne!(here.is_ok(), there.is_ok(), "{here:?} {there:?}");
}

async fn what_waited_goes_to_the_process_that_has_turns_of_its_session(bed: Bed) {
    let (gone, owner, other) = (bed.open().await, bed.open().await, bed.open().await);
    let session = on_a_thread(&gone).await;
    begun(&gone, &session, "waits").await;
    gone.close().await;
    begun(&owner, &session, "runs").await;
    assert_eq!(other.orphaned_sessions().await.unwrap(), [""; 0]);
    assert!(!other.has_orphans(&session).await.unwrap());
    assert_eq!(other.adopt_runs(&session).await.unwrap(), []);
    assert!(owner.has_orphans(&session).await.unwrap());
    assert_eq!(owner.adopt_runs(&session).await.unwrap().len(), 1);
    assert!(!owner.has_orphans(&session).await.unwrap());
}

async fn what_a_process_lets_go_of_is_taken_over_while_it_lives(bed: Bed) {
    let (owner, other) = (bed.open().await, bed.open().await);
    let session = on_a_thread(&owner).await;
    for name in ["stays", "goes"] {
        begun(&owner, &session, name).await;
    }
    owner.release_runs(&["goes".to_owned()]).await.unwrap();
    assert!(!other.has_orphans(&session).await.unwrap());
    assert!(!other.is_orphan("stays").await.unwrap());
    assert!(other.is_orphan("goes").await.unwrap());
    completed(&owner, "stays").await;
    assert!(other.has_orphans(&session).await.unwrap());
    let known = other.orphaned_sessions().await.unwrap();
    assert_eq!(known, std::slice::from_ref(&session));
    let taken = other.adopt_runs(&session).await.unwrap();
    let taken: Vec<&str> = taken.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(taken, ["goes"]);
    for store in [&owner, &other] {
        assert!(!store.is_orphan("goes").await.unwrap());
    }
    // It is not its own any more.
    owner.release_runs(&["goes".to_owned()]).await.unwrap();
    assert!(!owner.has_orphans(&session).await.unwrap());
}

async fn a_turn_that_waited_in_a_process_that_is_gone_is_cancelled_alone(bed: Bed) {
    let (owner, other) = (bed.open().await, bed.open().await);
    let session = on_a_thread(&owner).await;
    for name in ["one", "two"] {
        begun(&owner, &session, name).await;
    }
    assert_eq!(other.cancel_orphan("one", "why").await.unwrap(), None);
    assert_eq!(other.cancel_orphan("unknown", "why").await.unwrap(), None);
    owner.close().await;
    let cancelled = other.cancel_orphan("one", "why").await.unwrap().unwrap();
    assert_eq!(cancelled.message, Some(Message::user("one")));
    let now = other.run("one").await.unwrap();
    assert_eq!(
        (now.state, now.message, now.error.as_deref()),
        (RunState::Cancelled, None, Some("why"))
    );
    assert_eq!(other.cancel_orphan("one", "why").await.unwrap(), None);
    assert_eq!(other.run("two").await.unwrap().state, RunState::Queued);
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until somebody waits for a row that somebody else keeps.
async fn waits_for_a_row(store: &Store) {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
               AND wait_event_type = 'Lock'";
    let waiting = async {
        while store.one(sql, []).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waiting = tokio::time::timeout(PATIENCE, waiting);
    waiting.await.expect("the row is waited for");
}

/// Takes over what waits while a third process keeps the row of the one that is gone, as one that looks
/// after all runs does, and wants the row of the one that takes over next.
async fn taken_over_in_the_order_of_ids(bed: Bed) {
    let (gone, adopts, looks) = (bed.open().await, bed.open().await, bed.open().await);
    let session = on_a_thread(&gone).await;
    let waits = begun(&gone, &session, "waits").await;
    let own = adopts.writer().await.unwrap();
    assert!(waits.owner < own, "they were made in this order");
    let sql = "UPDATE writers SET lost = TRUE WHERE id = $1";
    let values = vec![waits.owner.as_str().into()];
    let lost = looks.db().execute(false, sql, values, "test").await;
    assert_eq!(lost.unwrap(), 1);
    let keep = "SELECT id FROM writers WHERE id = $1 FOR UPDATE";
    let tx = looks.db().begin(false, "test").await.unwrap();
    let kept = tx.one(keep, [waits.owner.as_str().into()]).await;
    assert!(kept.unwrap().is_some());
    let looking = async {
        waits_for_a_row(&looks).await;
        let kept = tx.one(keep, [own.as_str().into()]).await;
        assert!(kept.expect("nobody waits for the other").is_some());
        tx.commit().await.unwrap();
    };
    let (adopted, ()) = tokio::join!(adopts.adopt_runs(&session), looking);
    assert_eq!(adopted.unwrap().len(), 1);
}

#[test]
fn two_that_look_after_the_same_processes_do_not_wait_for_each_other_over_postgres() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async { taken_over_in_the_order_of_ids(server.bed().await).await });
}
