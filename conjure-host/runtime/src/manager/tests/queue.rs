//! Turns that wait for others: taken out of the queue, and said otherwise in their place.

use std::time::Duration;

use conjure_core::chat::Message as Said;
use conjure_mock_llm::{Message, Script, Step};

use super::stage::{Stage, always, held, options};
use crate::manager::{ManagerError, ManagerOptions, SessionView};
use crate::uploads;
use conjure_store::{Location, Options, Run, RunState, Store};

/// A session with a turn that is held in its middle, and two that wait. Their ids.
async fn waiting() -> (Stage, SessionView, [String; 3]) {
    let script = Script::new()
        .reply(held("The first answer", "middle"))
        .step(Step::new(Message::new().text("Later.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        let turn = stage.manager.say(&session.id, Said::user(text), None);
        ids.push(turn.await.unwrap().id);
    }
    stage.model.wait_for_gate("middle").await.unwrap();
    let ids = ids.try_into().unwrap();
    (stage, session, ids)
}

#[tokio::test]
async fn a_turn_that_waits_is_cancelled_and_one_that_runs_goes_on() {
    let (stage, session, [first, second, third]) = waiting().await;
    let manager = &stage.manager;
    manager.cancel_queued(&session.id, &second).await.unwrap();
    assert_eq!(stage.wait(&second).await.state, RunState::Cancelled);
    manager.cancel_queued(&session.id, &first).await.unwrap();
    let run = manager.run(&first).await.unwrap();
    assert_eq!(run.state, RunState::Running, "only what waits is cancelled");
    stage.model.release("middle");
    assert_eq!(stage.wait(&first).await.state, RunState::Completed);
    assert_eq!(stage.wait(&third).await.state, RunState::Completed);
    let said = stage.said(&session.thread.clone().unwrap().id).await;
    let people: Vec<&String> = said
        .iter()
        .filter(|said| said.starts_with("User"))
        .collect();
    assert_eq!(people, ["User: one", "User: three"]);
}

#[tokio::test]
async fn a_turn_that_is_reworded_keeps_its_place() {
    let (stage, session, [first, second, third]) = waiting().await;
    let mut changes = stage.manager.changes();
    let other = || Said::user("another two");
    stage.manager.reword(&second, other()).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), changes.of(&session.id));
    told.await.expect("whoever follows the session is told");
    let kept = stage.manager.run(&second).await.unwrap();
    assert_eq!(kept.message, Some(other()), "it is written down");
    let error = stage.manager.reword(&first, other()).await.unwrap_err();
    assert!(matches!(error, ManagerError::Conflict { .. }), "{error}");
    stage.model.release("middle");
    assert_eq!(stage.wait(&third).await.state, RunState::Completed);
    let said = stage.said(&session.thread.clone().unwrap().id).await;
    let people: Vec<&String> = said
        .iter()
        .filter(|said| said.starts_with("User"))
        .collect();
    assert_eq!(people, ["User: one", "User: another two", "User: three"]);
    let error = stage.manager.reword(&second, other()).await.unwrap_err();
    assert!(matches!(error, ManagerError::Conflict { .. }), "{error}");
}

#[tokio::test]
async fn a_turn_that_waits_behind_many_that_are_over_is_still_seen() {
    let by_hand = ManagerOptions {
        heartbeat_interval: Duration::from_secs(3_600),
        ..options()
    };
    let stage = Stage::with(Script::new(), by_hand).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let store = stage.manager.store();
    let begin = async |id: &str| {
        let run = Run::new(id, Some(session.id.clone()), thread.clone());
        store.begin_run(run).await.unwrap();
    };
    begin("waits").await;
    for number in 0..25 {
        let id = format!("over-{number}");
        begin(&id).await;
        let over = store.end_run(&id, RunState::Completed, None, None);
        assert!(over.await.unwrap());
    }
    assert!(stage.manager.runs_in(&thread).await.unwrap());
    let over = store.end_run("waits", RunState::Completed, None, None);
    assert!(over.await.unwrap());
    assert!(!stage.manager.runs_in(&thread).await.unwrap());
}

#[tokio::test]
async fn a_thread_that_is_named_or_cleared_is_told_whoever_does_it() {
    use crate::manager::SessionChange;
    let stage =
        Stage::new(Script::new().step(Step::new(Message::new().text("Yes.")).always())).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    stage.say(&session, "is it so").await;
    let mut changes = stage.manager.changes();
    let mut told = async |wanted: &dyn Fn(&str, u64) -> bool| {
        let found = async {
            loop {
                match changes.next().await.unwrap() {
                    SessionChange::Thread {
                        thread: of,
                        label,
                        cleared_upto,
                        removed: false,
                    } if of == thread && wanted(&label, cleared_upto) => return,
                    _ => {}
                }
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(20), found);
        told.await.expect("it is told");
    };
    let store = stage.manager.store();
    store.rename_thread(&thread, "Here").await.unwrap();
    told(&|label, _| label == "Here").await;
    // Another process, which only writes into the same file: heard while somebody follows.
    let _followed = stage.manager.events(&thread, None).await.unwrap();
    let place = Location::File(stage.dir.path().join("conjure.db"));
    let other = Store::open(&place, &Options::default()).await.unwrap();
    other.rename_thread(&thread, "Elsewhere").await.unwrap();
    told(&|label, _| label == "Elsewhere").await;
    stage.manager.clear_thread(&thread).await.unwrap();
    told(&|label, cleared| label == "Elsewhere" && cleared > 0).await;
    other.close().await;
}

#[tokio::test]
async fn files_of_a_turn_that_waited_elsewhere_and_is_not_understood_are_free_again() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let data_dir = stage.dir.path();
    let upload = uploads::keep(data_dir, "lamp.txt", None, b"lamp").unwrap();
    let said = uploads::message(Some("Look"), std::slice::from_ref(&upload));
    uploads::claim(data_dir, "left", &said).unwrap();
    let place = Location::File(data_dir.join("conjure.db"));
    let other = Store::open(&place, &Options::default()).await.unwrap();
    let run = Run::new("left", Some(session.id.clone()), thread).with_message(Some(said));
    let run = run.with_terms(Some("nonsense".to_owned()));
    other.begin_run(run).await.unwrap();
    other.close().await;
    assert_eq!(stage.wait("left").await.state, RunState::Failed);
    // The session takes this once it is done with that turn.
    let asked = stage.manager.cancel_queued(&session.id, "left");
    asked.await.unwrap();
    assert_eq!(uploads::find(data_dir, &upload.id, None).unwrap(), upload);
}
