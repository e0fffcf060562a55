//! How runs end: cancelled, over budget, lost, with the host, and after a crash.

use std::time::Duration;

use conjure_core::chat::Message as Said;
use conjure_mock_llm::{Message, Script, Step};
use serde_json::json;

use super::stage::{Stage, always, call, held, object, options};
use crate::manager::requests::ActorRequest;
use crate::manager::{ManagerError, ManagerOptions, NewSession, SessionState};
use conjure_store::{Run, RunState};

#[tokio::test]
async fn a_shutdown_lets_what_runs_end_and_begins_nothing() {
    let stage = Stage::new(Script::new().reply(held("Nearly there", "middle"))).await;
    let session = stage.session().await;
    let turn = stage
        .manager
        .say(&session.id, Said::user("hello"), None)
        .await
        .unwrap();
    let queued = stage
        .manager
        .say(&session.id, Said::user("and then"), None)
        .await
        .unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let (manager, id) = (stage.manager.clone(), session.id.clone());
    let down = tokio::spawn(async move { manager.shutdown(Duration::from_secs(10)).await });
    stage.manager.inner.closing.cancelled().await;
    let refused = stage.manager.say(&id, Said::user("more"), None).await;
    assert!(matches!(refused, Err(ManagerError::Closing)), "{refused:?}");
    stage.model.release("middle");
    tokio::time::timeout(super::stage::PATIENCE, down)
        .await
        .unwrap()
        .unwrap();
    let run = stage.manager.run(&turn.id).await.unwrap();
    assert_eq!(run.state, RunState::Completed);
    let queued = stage.manager.run(&queued.id).await.unwrap();
    assert_eq!(queued.state, RunState::Interrupted, "it never began");
    assert_eq!(stage.model.requests().len(), 1);
}

#[tokio::test]
async fn a_shutdown_ends_what_takes_longer_and_keeps_what_came() {
    let stage = Stage::new(Script::new().reply(held("Nearly there", "middle"))).await;
    let session = stage.session().await;
    let turn = stage
        .manager
        .say(&session.id, Said::user("hello"), None)
        .await
        .unwrap();
    let later = stage
        .manager
        .say(&session.id, Said::user("later"), None)
        .await
        .unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let thread = session.thread.unwrap().id;
    stage
        .until(&thread, None, |event| {
            matches!(event, conjure_core::chat::Event::Content { .. })
        })
        .await;
    stage.manager.shutdown(Duration::from_millis(100)).await;
    assert_eq!(
        stage.manager.run(&turn.id).await.unwrap().state,
        RunState::Cancelled
    );
    assert_eq!(
        stage.manager.run(&later.id).await.unwrap().state,
        RunState::Interrupted
    );
    let said = stage.said(&thread).await;
    assert!(said[1].starts_with("Assistant: Near"), "{said:?}");
    assert_eq!(said[2..], ["User: later"], "what waited is kept");
}

#[tokio::test]
async fn a_session_that_does_not_end_holds_no_shutdown_up() {
    let stage = Stage::new(Script::new().reply(held("Nearly there", "middle"))).await;
    let session = stage.session().await;
    let turn = stage.manager.say(&session.id, Said::user("hello"), None);
    turn.await.unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let thread = session.thread.unwrap().id;
    stage.ask(&thread, ActorRequest::Hang).await;
    let down = stage.manager.shutdown(Duration::from_millis(10));
    tokio::time::timeout(super::stage::PATIENCE, down)
        .await
        .expect("it ends without that session");
    assert!(!stage.manager.inner.tasks.is_empty());
}

#[tokio::test]
async fn what_ran_in_a_process_that_is_gone_is_interrupted_and_what_waited_runs_in_order() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let store = stage.manager.store();
    for said in ["ran", "first", "second"] {
        let run = Run::new(said, Some(session.id.clone()), thread.clone());
        let run = run.with_message(Some(Said::user(said)));
        store.begin_run(run).await.unwrap();
    }
    let ran = store.update_run("ran", RunState::Running, None);
    assert!(ran.await.unwrap());
    let stage = stage.again(options()).await;
    let run = stage.manager.run("ran").await.unwrap();
    assert_eq!(run.state, RunState::Interrupted);
    assert_eq!(
        stage.say(&session, "newest").await.state,
        RunState::Completed
    );
    for waited in ["first", "second"] {
        assert_eq!(stage.wait(waited).await.state, RunState::Completed);
    }
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!(view.state, SessionState::Idle);
    let said = stage.said(&thread).await;
    let asked: Vec<&str> = said
        .iter()
        .filter_map(|said| said.strip_prefix("User: "))
        .collect();
    assert_eq!(asked, ["ran", "first", "second", "newest"]);
    assert_eq!(stage.model.requests().len(), 3);
}

#[tokio::test]
async fn a_broken_session_takes_no_neighbour_down_and_can_be_asked_again() {
    let script = Script::new()
        .step(
            Step::new(held("Never ends", "never"))
                .when(conjure_mock_llm::Matcher::any().text("hang")),
        )
        .step(Step::new(Message::new().text("Fine.")).always());
    let stage = Stage::new(script).await;
    let (broken, fine) = (stage.session().await, stage.session().await);
    let turn = stage
        .manager
        .say(&broken.id, Said::user("hang"), None)
        .await
        .unwrap();
    stage.model.wait_for_gate("never").await.unwrap();
    let thread = broken.thread.clone().unwrap().id;
    let waits = stage.manager.say(&broken.id, Said::user("hello"), None);
    let waits = waits.await.unwrap();
    stage.ask(&thread, ActorRequest::Panic).await;
    assert_eq!(stage.say(&fine, "hello").await.state, RunState::Completed);
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Interrupted);
    assert_eq!(stage.wait(&waits.id).await.state, RunState::Completed);
    // Also one on which nothing runs.
    stage.ask(&thread, ActorRequest::Panic).await;
    let again = stage.say(&broken, "hello").await;
    assert_eq!(again.state, RunState::Completed, "{again:?}");
    let said = stage.said(&thread).await;
    let asked = said.iter().filter(|said| said.starts_with("User: "));
    assert_eq!(
        asked.collect::<Vec<_>>(),
        ["User: hang", "User: hello", "User: hello"]
    );
}

#[tokio::test]
async fn budgets_of_thread_and_session_end_turns() {
    let stage = Stage::new(always("x")).await;
    for (budget, limit) in [
        (json!({ "thread": { "tokens": 1 } }), "budget.thread.tokens"),
        (
            json!({ "session": { "tokens": 1 } }),
            "budget.session.tokens",
        ),
    ] {
        let mut tools = stage.new_session().tools;
        tools.insert("budget".to_owned(), budget);
        let new = NewSession {
            tools,
            ..stage.new_session()
        };
        let session = stage.manager.create(new).await.unwrap();
        assert_eq!(stage.say(&session, "one").await.state, RunState::Completed);
        let second = stage.say(&session, "two").await;
        assert_eq!(second.state, RunState::Limit, "{second:?}");
        assert!(second.error.unwrap().contains(limit));
        let fresh = stage.manager.start_thread(&session.id).await.unwrap();
        let third = stage.say(&fresh, "three").await;
        let still = limit.contains("session");
        assert_eq!(third.state == RunState::Limit, still, "{third:?}");
    }
}

#[tokio::test]
async fn calls_of_a_thread_are_counted() {
    let script = Script::new()
        .reply(call("1", "free_execute", "say a"))
        .reply(Message::new().text("x"));
    let stage = Stage::new(script).await;
    let mut tools = stage.new_session().tools;
    tools.extend(object(json!({ "budget": { "thread": { "calls": 1 } } })));
    let session = stage
        .manager
        .create(NewSession {
            tools,
            ..stage.new_session()
        })
        .await
        .unwrap();
    let run = stage.say(&session, "go").await;
    assert_eq!(run.state, RunState::Limit);
    assert_eq!(run.spent.calls, 1);
    assert_eq!(stage.model.requests().len(), 1);
}

#[tokio::test]
async fn a_silent_run_is_ended_and_marked() {
    let impatient = ManagerOptions {
        heartbeat_interval: Duration::from_millis(50),
        silence: Duration::from_millis(400),
        ..options()
    };
    let script = Script::new()
        .reply(held("Never ends", "never"))
        .reply(held("Nor does this", "again"));
    let stage = Stage::with(script, impatient).await;
    let session = stage.session().await;
    let turn = stage.say_until(&session, "hello", "never").await;
    let thread = session.thread.clone().unwrap().id;
    stage.ask(&thread, ActorRequest::Panic).await;
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Interrupted);
    let turn = stage.say_until(&session, "again", "again").await;
    // It answers, so it lives, for however long the model says nothing.
    let mut beats = tokio::time::interval(impatient.heartbeat_interval);
    loop {
        beats.tick().await;
        let run = stage.manager.run(&turn.id).await.unwrap();
        assert_eq!(run.state, RunState::Running);
        let silence = i64::try_from(impatient.silence.as_millis()).unwrap();
        if run.beat_ms - run.started_at_ms.unwrap() > 3 * silence {
            break;
        }
    }
    stage.ask(&thread, ActorRequest::Hang).await;
    let run = stage.wait(&turn.id).await;
    assert_eq!(run.state, RunState::Lost);
    assert!(run.error.unwrap().contains("no sign of life"));
}
