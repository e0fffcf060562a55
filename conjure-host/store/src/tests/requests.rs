//! Processes that share a database ask each other, and hear of what others write.

use std::time::Duration;

use crate::row::column;
use crate::tests::{Bed, cases, entry, id, open};
use crate::{Owner, RequestReply, Run, Store, StoreSignal};

cases! {
    a_request_is_taken_once_and_answered
    a_request_that_nobody_takes_is_taken_back
    a_request_of_a_process_that_was_killed_is_deleted_untaken
    who_took_a_request_has_so_long_and_no_longer
    a_request_ends_with_whoever_took_it
    the_owner_of_a_session_says_where_it_is
    what_another_process_writes_is_heard_of
    what_another_process_does_in_sessions_is_heard_of_and_ones_own_is_not
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an answer is waited for where one comes, and where none does.
const SOON: Duration = PATIENCE;
const NOW: Duration = Duration::from_millis(300);

/// A turn of a session that runs in a store.
async fn owned(store: &Store) -> String {
    let session = super::runs::session(store).await;
    store.create_thread(&id("t"), "").await.unwrap();
    let run = Run::new("turn", Some(session.id.clone()), id("t"));
    store.begin_run(run).await.unwrap();
    session.id
}

async fn a_request_is_taken_once_and_answered(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    let session = owned(&one).await;
    let owner = two.session_owner(&session).await.unwrap().unwrap();
    assert_eq!(
        one.session_owner(&session).await.unwrap(),
        None,
        "it is its own"
    );
    let mut signals = one.signals();
    let asking = two.request(&owner, "cancel", SOON);
    let answering = async {
        let taken = loop {
            let taken = one.take_requests().await.unwrap();
            if !taken.is_empty() {
                break taken;
            }
            tokio::time::timeout(PATIENCE, signals.next())
                .await
                .unwrap();
        };
        assert_eq!((taken.len(), taken[0].body.as_str()), (1, "cancel"));
        // What is asked may be private.
        let left = two.one("SELECT body FROM requests", []).await.unwrap();
        let left: String = column(&left.unwrap(), "body").unwrap();
        assert_eq!(left, "", "it is taken and still in the database");
        assert_eq!(one.take_requests().await.unwrap(), []);
        assert_eq!(two.take_requests().await.unwrap(), []);
        one.answer_request(&taken[0].id, "done").await.unwrap();
    };
    let (reply, ()) = tokio::join!(asking, answering);
    assert_eq!(reply.unwrap(), RequestReply::Answer("done".to_owned()));
}

async fn a_request_that_nobody_takes_is_taken_back(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    let session = owned(&one).await;
    let owner = two.session_owner(&session).await.unwrap().unwrap();
    let reply = two.request(&owner, "cancel", SOON).await.unwrap();
    assert_eq!(reply, RequestReply::NotTaken);
    assert_eq!(one.take_requests().await.unwrap(), []);
}

async fn a_request_of_a_process_that_was_killed_is_deleted_untaken(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    let session = owned(&one).await;
    let owner = two.session_owner(&session).await.unwrap().unwrap();
    for (request, at_ms) in [("left", 1), ("fresh", i64::MAX)] {
        let sql = "INSERT INTO requests (id, writer_id, body, taken, at_ms) \
                   VALUES ($1, $2, 'secret', FALSE, $3)";
        let values = vec![request.into(), owner.writer.as_str().into(), at_ms.into()];
        two.db().execute(false, sql, values, "test").await.unwrap();
    }
    let taken = one.take_requests().await.unwrap();
    let taken: Vec<_> = taken.iter().map(|request| request.id.as_str()).collect();
    assert_eq!(taken, ["fresh"]);
    two.drop_untaken_requests().await.unwrap();
    let left = two.all("SELECT id FROM requests", []).await.unwrap();
    assert_eq!(left.len(), 1, "what was asked stays in the database");
}

async fn who_took_a_request_has_so_long_and_no_longer(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    let session = owned(&one).await;
    let owner = two.session_owner(&session).await.unwrap().unwrap();
    let asking = two.request(&owner, "cancel", NOW);
    let (reply, ()) = tokio::join!(asking, taken(&one));
    assert_eq!(reply.unwrap(), RequestReply::NoAnswer);
}

async fn a_request_ends_with_whoever_took_it(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    let session = owned(&one).await;
    let owner = two.session_owner(&session).await.unwrap().unwrap();
    let asking = two.request(&owner, "compact", Duration::from_secs(300));
    let ending = async {
        taken(&one).await;
        one.close().await;
    };
    let both = async { tokio::join!(asking, ending) };
    let (reply, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert_eq!(reply.unwrap(), RequestReply::NoAnswer);
}

/// Takes a request, and leaves it at that.
async fn taken(store: &Store) {
    let mut signals = store.signals();
    while store.take_requests().await.unwrap().is_empty() {
        tokio::time::timeout(PATIENCE, signals.next())
            .await
            .unwrap();
    }
}

async fn the_owner_of_a_session_says_where_it_is(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    one.announce("http://127.0.0.1:1").await.unwrap();
    let session = owned(&one).await;
    let known = two.session_owner(&session).await.unwrap().unwrap();
    let Owner { pid, address, .. } = known;
    assert_eq!(pid, i64::from(std::process::id()));
    assert_eq!(address.as_deref(), Some("http://127.0.0.1:1"));
    let _open = open(&one, "t").await;
    let known = two.thread_owner(&id("t")).await.unwrap().unwrap();
    assert_eq!(known.address.as_deref(), Some("http://127.0.0.1:1"));
}

async fn what_another_process_writes_is_heard_of(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    one.create_thread(&id("t"), "").await.unwrap();
    let mut thread = open(&one, "t").await;
    let mut signals = two.signals();
    // From when it listens.
    let is_heard = async |signals: &mut crate::StoreSignals| {
        let heard = tokio::time::timeout(PATIENCE, signals.next()).await;
        matches!(
            heard.unwrap(),
            StoreSignal::Anywhere | StoreSignal::Thread(_)
        )
    };
    for seq in 1..4 {
        thread.append(&[entry(seq)], true).await.unwrap();
        assert!(is_heard(&mut signals).await);
    }
}

async fn what_another_process_does_in_sessions_is_heard_of_and_ones_own_is_not(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    one.create_thread(&id("t"), "").await.unwrap();
    let (mut own, mut other) = (one.signals(), two.signals());
    let run = |name: &str| Run::new(name, None, id("t"));
    // From when both listen.
    let heard = async |signals: &mut crate::StoreSignals| loop {
        let heard = tokio::time::timeout(PATIENCE, signals.next()).await;
        if let StoreSignal::Anywhere | StoreSignal::Sessions = heard.unwrap() {
            return;
        }
    };
    heard(&mut own).await;
    heard(&mut other).await;
    for name in ["a", "b"] {
        one.begin_run(run(name)).await.unwrap();
        heard(&mut other).await;
        one.set_run_waiting(name, true).await.unwrap();
        heard(&mut other).await;
    }
    // Of what it did itself nothing has come when word of the other's comes.
    two.begin_run(run("c")).await.unwrap();
    heard(&mut own).await;
    let more = tokio::time::timeout(NOW, own.next()).await;
    assert!(!more.is_ok_and(|signal| signal == StoreSignal::Sessions));
}
