//! Settings that change while a session runs.

use std::sync::Arc;

use conjure_core::chat::Message as Said;
use conjure_core::turn::EffectiveFrom;
use conjure_mock_llm::{Message, Script, Step, Wire};
use conjure_vault::Credential;
use serde_json::{Value, json};

use super::stage::{Stage, always, call, held, object};
use crate::manager::requests::TurnOrigin;
use crate::manager::running_turn::RunningTurnEvent;
use crate::manager::session_row::SessionRow;
use crate::manager::turn_queue::{QueuedTurn, TurnQueue};
use crate::manager::turn_runner::{RunnerEvent, TurnRunner};
use crate::manager::{NewSession, PersonaCopy, SessionPatch, SessionView, lock};
use crate::session::TurnResult;
use conjure_store::{Location, Options, Run, RunState, Store, StoreError};

fn openai() -> SessionPatch {
    SessionPatch {
        auth: Some("other".to_owned()),
        model: Some("gpt-5".to_owned()),
        ..SessionPatch::default()
    }
}

#[tokio::test]
async fn apply_now_restarts_the_stream_with_another_auth_and_keeps_the_partial_text() {
    let script = Script::new()
        .reply(held("Half an answer", "middle"))
        .step(Step::new(Message::new().text("From the other.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let turn = stage.say_until(&session, "hello", "middle").await;
    let view = stage
        .manager
        .update(&session.id, openai(), EffectiveFrom::Now)
        .await
        .unwrap();
    assert_eq!(view.auth.provider, "openai");
    stage.model.release("middle");
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    let said = stage.said(&session.thread.unwrap().id).await;
    assert_eq!(said[0], "User: hello");
    assert!(said[1].starts_with("Assistant: Half"), "{said:?}");
    assert_eq!(said[2], "Assistant: From the other.");
    let last = stage.model.requests().last().unwrap().clone();
    assert_eq!(last.wire(), Some(Wire::Responses));
    assert_eq!(stage.model.violations(), []);
}

#[tokio::test]
async fn apply_on_next_turn_lets_the_stream_end() {
    let script = Script::new()
        .reply(held("A whole answer", "middle"))
        .step(Step::new(Message::new().text("From the other.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let turn = stage.say_until(&session, "hello", "middle").await;
    stage
        .manager
        .update(&session.id, openai(), EffectiveFrom::NextTurn)
        .await
        .unwrap();
    stage.model.release("middle");
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    stage.say(&session, "and?").await;
    let said = stage.said(&session.thread.unwrap().id).await;
    assert_eq!(
        said,
        [
            "User: hello",
            "Assistant: A whole answer",
            "User: and?",
            "Assistant: From the other."
        ]
    );
}

#[tokio::test]
async fn tools_that_change_now_restart_the_turn_with_them() {
    let script = Script::new()
        .reply(held("Half an answer", "middle"))
        .step(Step::new(Message::new().text("With less.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    stage.say_until(&session, "hello", "middle").await;
    let less = SessionPatch {
        tools: Some(object(
            json!({ "backend": [{ "kind": "native", "skills": ["free"] }] }),
        )),
        ..SessionPatch::default()
    };
    stage
        .manager
        .update(&session.id, less, EffectiveFrom::Now)
        .await
        .unwrap();
    let thread = session.thread.clone().unwrap().id;
    let done = |event: &conjure_core::chat::Event| matches!(event, conjure_core::chat::Event::Done { text, .. } if text == "With less.");
    stage.until(&thread, None, done).await;
    let requests = stage.model.requests();
    assert!(requests[0].tool_names().contains(&"careful_execute"));
    assert_eq!(requests[1].tool_names(), ["free_execute"]);
    let said = stage.said(&thread).await;
    assert!(said[1].starts_with("Assistant: Half"), "{said:?}");
    assert_eq!(said.len(), 3, "nothing is said for the person: {said:?}");
    assert_eq!(stage.model.violations(), []);
}

#[tokio::test]
async fn the_model_is_told_persona_memory_and_another_working_directory() {
    let stage = Stage::new(always("Yes.")).await;
    let new = NewSession {
        persona: PersonaCopy {
            name: "pirate".to_owned(),
            version: "1".to_owned(),
            persona_text: "You are a pirate.".to_owned(),
        },
        memory: object(json!({ "memory_text": "Ada has a parrot.", "ships": 2 })),
        ..stage.new_session()
    };
    let session = stage.manager.create(new).await.unwrap();
    stage.say(&session, "hello").await;
    let other = stage.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let moved = SessionPatch {
        working_dir: Some(other.clone()),
        ..SessionPatch::default()
    };
    stage
        .manager
        .update(&session.id, moved, EffectiveFrom::NextTurn)
        .await
        .unwrap();
    stage.say(&session, "and now?").await;
    let requests = stage.model.requests();
    let system = |index: usize| serde_json::to_string(&requests[index].body["system"]).unwrap();
    for said in ["You are a pirate.", "Ada has a parrot.", "ships"] {
        assert!(system(0).contains(said), "{}", system(0));
    }
    assert!(system(1).contains(other.to_str().unwrap()), "{}", system(1));
    let asked = serde_json::to_string(requests[1].messages()).unwrap();
    assert!(asked.contains("The working directory is"), "{asked}");
    assert!(asked.contains(stage.work().to_str().unwrap()), "{asked}");
    let entries = stage
        .manager
        .host()
        .entries(&session.thread.unwrap().id)
        .await
        .unwrap();
    let snapshots = entries.iter().filter_map(|entry| match &entry.body {
        conjure_core::log::EntryBody::SettingsChanged { settings, .. } => Some(settings),
        _ => None,
    });
    let snapshots: Vec<_> = snapshots.collect();
    assert_eq!(
        snapshots.len(),
        2,
        "once at its beginning, once with the change"
    );
    assert_eq!(snapshots[0]["persona"], "You are a pirate.");
    assert_eq!(snapshots[0]["memory"]["ships"], 2);
}

#[tokio::test]
async fn a_change_that_cannot_be_changes_nothing() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    stage.say(&session, "hello").await;
    let before = stage.manager.get(&session.id).await.unwrap();
    for patch in [
        SessionPatch {
            auth: Some("nobody".to_owned()),
            ..SessionPatch::default()
        },
        SessionPatch {
            working_dir: Some("/no/such".into()),
            ..SessionPatch::default()
        },
        SessionPatch {
            tools: Some(object(json!({ "x": 1 }))),
            ..SessionPatch::default()
        },
        // What only shows when the provider is made.
        SessionPatch {
            tools: Some(object(json!({
                "backend": [{ "kind": "native" }], "policy": { "allow": ["free_*"] },
                "providers": { "anthropic": { "headers": { "no name": "x" } } },
            }))),
            mcps: Some(object(
                json!({ "m": { "command": "x", "env": { "TOKEN": "sk-typed-secret" } } }),
            )),
            ..SessionPatch::default()
        },
    ] {
        stage
            .manager
            .update(&session.id, patch, EffectiveFrom::Now)
            .await
            .unwrap_err();
    }
    assert_eq!(stage.manager.get(&session.id).await.unwrap(), before);
    let saved = stage.manager.store().auths(None, 10).await.unwrap();
    assert_eq!(saved.len(), 2, "no secret of it is saved: {saved:?}");
    // And the next one is none the worse for them.
    let memory = SessionPatch {
        memory: Some(object(json!({ "ships": 3 }))),
        ..SessionPatch::default()
    };
    let updated = stage
        .manager
        .update(&session.id, memory, EffectiveFrom::Now);
    assert_eq!(updated.await.unwrap().memory["ships"], 3);
}

#[tokio::test]
async fn a_credential_that_was_replaced_is_used_from_the_next_turn_on() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    stage.say(&session, "one").await;
    let key = Credential::ApiKey("sk-replaced".to_owned().into());
    let auth = "anthropic/api_key/key".parse().unwrap();
    stage.auths.replace(&auth, key).await.unwrap();
    stage.say(&session, "two").await;
    let keys: Vec<String> = stage
        .model
        .requests()
        .iter()
        .map(|request| request.header("x-api-key").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(keys, ["sk-test", "sk-replaced"]);
}

/// The session's tools with this under `plugins`.
fn plugins(stage: &Stage, plugins: Value) -> SessionPatch {
    let mut tools = stage.new_session().tools;
    tools.insert("plugins".to_owned(), plugins);
    SessionPatch {
        tools: Some(tools),
        ..SessionPatch::default()
    }
}

#[tokio::test]
async fn what_plugins_are_granted_no_more_they_do_not_keep_while_nobody_says_anything() {
    let stage = Stage::new(always("Here.")).await;
    let session = stage.session().await;
    stage.say(&session, "hello").await;
    let thread = session.thread.clone().unwrap().id;
    let is_open = || lock(&stage.manager.inner.active_threads).contains_key(&thread);
    assert!(is_open());
    // What takes nothing from anybody keeps the thread open.
    let nothing = plugins(&stage, json!({}));
    let same = stage
        .manager
        .update(&session.id, nothing, EffectiveFrom::NextTurn);
    same.await.unwrap();
    assert!(is_open());
    let less = plugins(&stage, json!({ "free": { "permissions": {} } }));
    let less = stage
        .manager
        .update(&session.id, less, EffectiveFrom::NextTurn);
    less.await.unwrap();
    assert!(!is_open());
}

#[tokio::test]
async fn what_plugins_are_granted_no_more_while_a_turn_runs_they_have_until_its_end_at_most() {
    let script = Script::new().reply(held("A whole answer", "middle"));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let turn = stage.say_until(&session, "hello", "middle").await;
    let thread = session.thread.clone().unwrap().id;
    let is_open = || lock(&stage.manager.inner.active_threads).contains_key(&thread);
    let less = plugins(&stage, json!({ "free": { "permissions": {} } }));
    let less = stage
        .manager
        .update(&session.id, less, EffectiveFrom::NextTurn);
    less.await.unwrap();
    assert!(is_open());
    stage.model.release("middle");
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    // What is asked for then is answered when all is done at the end of the turn.
    let waiting = stage.manager.approvals(&session.id).await.unwrap();
    assert!(waiting.is_empty() && !is_open());
}

#[tokio::test]
async fn what_plugins_are_granted_no_more_while_a_summary_is_written_they_have_until_its_end() {
    let script = Script::new()
        .reply(Message::new().text("word ".repeat(40_000)))
        .reply(Message::new().text("Yes."))
        .reply(held("They wrote a lot of words.", "summary"));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    for words in ["Write a lot", "Is that all?"] {
        assert_eq!(stage.say(&session, words).await.state, RunState::Completed);
    }
    let thread = session.thread.clone().unwrap().id;
    let (manager, id) = (stage.manager.clone(), thread.clone());
    let compacted = tokio::spawn(async move { manager.compact(&id, None).await });
    stage.model.wait_for_gate("summary").await.unwrap();
    let is_open = || lock(&stage.manager.inner.active_threads).contains_key(&thread);
    let less = plugins(&stage, json!({ "free": { "permissions": {} } }));
    let less = stage
        .manager
        .update(&session.id, less, EffectiveFrom::NextTurn);
    less.await.unwrap();
    assert!(is_open());
    stage.model.release("summary");
    compacted.await.unwrap().unwrap();
    let waiting = stage.manager.approvals(&session.id).await.unwrap();
    assert!(waiting.is_empty() && !is_open());
}

/// What opens a session's threads and runs their turns, the turns that wait, and one that did and that
/// another process asked for.
async fn runner_and_turn(
    stage: &Stage,
    session: &SessionView,
) -> (TurnRunner, TurnQueue, QueuedTurn) {
    let inner = &stage.manager.inner;
    let mut waiting = TurnQueue::new(Arc::clone(inner), &session.id);
    let turn = QueuedTurn {
        turn_id: "first".to_owned(),
        thread: session.thread.clone().unwrap().id,
        message: Some(Said::user("hello")),
        terms: Box::default(),
        origin: TurnOrigin::OtherProcess,
    };
    waiting.add(turn, false).await.unwrap();
    let runner = TurnRunner::new(Arc::clone(inner), &session.id);
    let turn = waiting.pop().unwrap();
    (runner, waiting, turn)
}

/// Lets the turn that runs come to its end.
async fn answer_of(runner: &mut TurnRunner) -> TurnResult {
    loop {
        match runner.next().await {
            RunnerEvent::Turn(RunningTurnEvent::Over(answer)) => return answer,
            RunnerEvent::Thread(event) => {
                runner.handle_thread_event(event).await;
            }
            RunnerEvent::Turn(RunningTurnEvent::PresenceChanged(_)) | RunnerEvent::Opened(_) => {}
        }
    }
}

#[tokio::test]
async fn what_is_saved_while_a_thread_opens_holds_from_the_next_turn_on() {
    let stage = Stage::new(always("Here.")).await;
    let session = stage.session().await;
    let (mut runner, _, turn) = runner_and_turn(&stage, &session).await;
    runner.begin_or_open(turn).await;
    let RunnerEvent::Opened(opened) = runner.next().await else {
        panic!("nothing else happens");
    };
    // It has read what was saved before.
    let less = plugins(&stage, json!({ "free": { "permissions": {} } }));
    let row = SessionRow::new(Arc::clone(&stage.manager.inner), &session.id);
    let less = Box::pin(row.save(&less, None)).await.unwrap();
    runner
        .take_over(less, EffectiveFrom::NextTurn)
        .await
        .unwrap();
    let (turn, saved) = runner.finish_opening(opened).await.unwrap();
    runner.begin_or_open(turn).await;
    assert!(runner.is_running());
    runner.apply_saved_settings(saved.unwrap()).await;
    let open = runner.open().unwrap();
    assert!(open.is_outdated && open.has_other_grants);
    let answer = answer_of(&mut runner).await;
    let finished = runner.finish(answer).unwrap();
    assert!(finished.continuation().is_none());
    runner.note_over(finished).await;
    assert!(runner.open().is_none());
    assert_eq!(stage.wait("first").await.state, RunState::Completed);
}

#[tokio::test]
async fn no_other_process_takes_a_session_whose_turn_goes_on_with_other_settings() {
    let stage = Stage::new(Script::new().reply(held("Half an answer", "middle"))).await;
    let session = stage.session().await;
    let (mut runner, mut waiting, turn) = runner_and_turn(&stage, &session).await;
    let thread = turn.thread.clone();
    runner.begin_or_open(turn).await;
    let RunnerEvent::Opened(opened) = runner.next().await else {
        panic!("nothing else happens");
    };
    let (turn, _) = runner.finish_opening(opened).await.unwrap();
    runner.begin_or_open(turn).await;
    let reached = stage.model.wait_for_gate("middle");
    runner.drive_while(reached).await.unwrap();
    let less = plugins(&stage, json!({ "free": { "permissions": {} } }));
    let row = SessionRow::new(Arc::clone(&stage.manager.inner), &session.id);
    let less = Box::pin(row.save(&less, None)).await.unwrap();
    runner.take_over(less, EffectiveFrom::Now).await.unwrap();
    let answer = answer_of(&mut runner).await;
    let finished = runner.finish(answer).unwrap();
    let next = finished.continuation().unwrap();
    assert_eq!(next.origin, TurnOrigin::OtherProcess);
    let place = Location::File(stage.dir.path().join("conjure.db"));
    let other = Store::open(&place, &Options::default()).await.unwrap();
    let begun = async || {
        let late = Run::new("late", Some(session.id.clone()), thread.clone());
        other.begin_run(late).await
    };
    waiting.add(next, true).await.unwrap();
    runner.note_over(finished).await;
    assert_eq!(stage.wait("first").await.state, RunState::Cancelled);
    let refused = begun().await.unwrap_err();
    assert!(
        matches!(refused, StoreError::SessionBusy { .. }),
        "{refused}"
    );
    waiting.drop_all(RunState::Cancelled, "the test ends").await;
    begun().await.unwrap();
}

#[tokio::test]
async fn a_permission_that_is_taken_away_between_two_turns_is_gone_in_the_second() {
    let script = Script::new()
        .reply(call("1", "free_execute", "secret"))
        .reply(Message::new().text("Told."))
        .reply(call("2", "free_execute", "secret"))
        .reply(Message::new().text("Not told."));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    stage.say(&session, "the word?").await;
    let less = plugins(&stage, json!({ "free": { "permissions": {} } }));
    let less = stage
        .manager
        .update(&session.id, less, EffectiveFrom::NextTurn);
    less.await.unwrap();
    let run = stage.say(&session, "and now?").await;
    assert_eq!(run.state, RunState::Completed, "{run:?}");
    let requests = stage.model.requests();
    let told = requests[1].tool_result_text("1").unwrap();
    assert!(told.contains("sesame"), "{told}");
    let refused = requests[3].tool_result_text("2").unwrap();
    assert!(!refused.contains("sesame"), "{refused}");
    let to_blame = "the session's `plugins.free.permissions`";
    assert!(refused.contains(to_blame), "{refused}");
}
