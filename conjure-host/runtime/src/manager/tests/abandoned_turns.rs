//! Turns that never begin: what is said in them is lost nowhere, and said once.

use std::time::Duration;

use conjure_core::chat::Message as Said;
use conjure_mock_llm::{Message, Script};

use super::stage::{Stage, always, held, options};
use crate::manager::ManagerOptions;
use conjure_store::{Log as _, Run, RunState};

#[tokio::test]
async fn what_waits_for_a_busy_thread_is_kept_when_the_host_goes_down() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let other = stage.manager.store().open(&thread).await.unwrap();
    let turn = stage.manager.say(&session.id, Said::user("hello"), None);
    let turn = turn.await.unwrap();
    stage.manager.shutdown(Duration::from_millis(10)).await;
    let run = stage.manager.run(&turn.id).await.unwrap();
    assert_eq!(run.state, RunState::Interrupted);
    drop(other);
    let stage = stage.again(options()).await;
    assert_eq!(stage.said(&thread).await, ["User: hello"]);
}

#[tokio::test]
async fn what_a_busy_thread_cannot_take_is_written_when_it_is_free() {
    let quick = ManagerOptions {
        patience: Duration::from_millis(50),
        // It is looked after by hand.
        heartbeat_interval: Duration::from_secs(3_600),
        ..options()
    };
    let stage = Stage::with(always("x"), quick).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let other = stage.manager.store().open(&thread).await.unwrap();
    let run = stage.say(&session, "hello").await;
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(run.message, Some(Said::user("hello")));
    drop(other);
    stage.manager.inner.record_unbegun().await.unwrap();
    assert_eq!(stage.said(&thread).await, ["User: hello"]);
    let named = stage.manager.store().thread(&thread).await.unwrap();
    assert_eq!(
        named.label, "Hello",
        "also a thread in which nothing else was said"
    );
    assert_eq!(stage.say(&session, "more").await.state, RunState::Completed);
}

#[tokio::test]
async fn a_turn_that_was_ended_elsewhere_does_not_begin() {
    let stage = Stage::new(Script::new().reply(held("Nearly there", "middle"))).await;
    let session = stage.session().await;
    let first = stage.manager.say(&session.id, Said::user("hello"), None);
    let first = first.await.unwrap();
    let next = stage.manager.say(&session.id, Said::user("more"), None);
    let next = next.await.unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let store = stage.manager.store();
    let ended = store.end_run(&next.id, RunState::Interrupted, None, None);
    assert!(ended.await.unwrap());
    stage.model.release("middle");
    assert_eq!(stage.wait(&first.id).await.state, RunState::Completed);
    // Whoever ended it says in the thread what came of it; here that is this process.
    stage.manager.shutdown(Duration::from_secs(10)).await;
    let thread = session.thread.unwrap().id;
    let said = stage.said(&thread).await;
    assert_eq!(said.len(), 3, "{said:?}");
    assert_eq!(said[2], "User: more");
    assert_eq!(stage.model.requests().len(), 1);
}

#[tokio::test]
async fn what_was_to_be_written_goes_with_a_thread_that_is_cleared() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let run = Run::new("orphan", Some(session.id.clone()), thread.clone());
    let store = stage.manager.store();
    let run = run.with_message(Some(Said::user("forget this")));
    store.begin_run(run).await.unwrap();
    let ended = store.end_run("orphan", RunState::Lost, None, None);
    assert!(ended.await.unwrap());
    stage.manager.clear_thread(&thread).await.unwrap();
    stage.manager.inner.record_unbegun().await.unwrap();
    assert_eq!(stage.said(&thread).await, [""; 0]);
    assert_eq!(store.run("orphan").await.unwrap().message, None);
}

#[tokio::test]
async fn a_cancel_right_behind_a_turns_beginning_finds_it() {
    let script = Script::new()
        .reply(Message::new().text("x"))
        .reply(held("Nearly there", "middle"));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    // Opened, so that the next turn begins at once.
    assert_eq!(
        stage.say(&session, "hello").await.state,
        RunState::Completed
    );
    let turn = stage.manager.say(&session.id, Said::user("more"), None);
    let turn = turn.await.unwrap();
    stage.manager.cancel(&session.id, false).await.unwrap();
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Cancelled);
}
