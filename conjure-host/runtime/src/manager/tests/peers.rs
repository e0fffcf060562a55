//! Processes that share a store: a session's turns are in one of them, and what waits there when it goes
//! down or is gone is run by those who said it.

use conjure_core::chat::Message as Said;
use conjure_core::turn::EffectiveFrom;
use conjure_mock_llm::{Message, Script, Step};
use serde_json::json;

use super::stage::{PATIENCE, Stage, always, held, options};
use crate::manager::{Manager, ManagerOptions, SessionPatch, SessionView, Turn};
use conjure_store::{Location, Options, Run, RunState, Store};

/// A process that takes over what waits only where it said something itself.
fn command_line() -> ManagerOptions {
    ManagerOptions {
        adopts: false,
        ..options()
    }
}

/// The first turn of a session is held in its middle, and others are not.
fn script() -> Script {
    Script::new()
        .reply(held("The first answer", "middle"))
        .step(Step::new(Message::new().text("Later.")).always())
}

/// A process whose turn is held.
async fn held_turn(options: ManagerOptions) -> (Stage, SessionView, Turn) {
    let stage = Stage::with(script(), options).await;
    let session = stage.session().await;
    let turn = stage.say_until(&session, "one", "middle").await;
    (stage, session, turn)
}

async fn say(manager: &Manager, session: &SessionView, text: &str) -> Turn {
    let turn = manager.say(&session.id, Said::user(text), None);
    turn.await.unwrap()
}

/// Waits for the end of a turn in the process that said it.
async fn over(manager: &Manager, turn: &str) -> Run {
    let over = tokio::time::timeout(PATIENCE, manager.wait(turn));
    over.await.expect("the turn ends").unwrap()
}

async fn completed(manager: &Manager, turn: &str) -> Run {
    let run = over(manager, turn).await;
    assert_eq!(run.state, RunState::Completed, "{run:?}");
    run
}

#[tokio::test]
async fn two_that_say_something_at_the_same_moment_have_one_queue() {
    let stage = Stage::new(script()).await;
    let peer = stage.peer(options()).await;
    let session = stage.session().await;
    let here = say(&stage.manager, &session, "here");
    let (here, there) = tokio::join!(here, say(&peer, &session, "there"));
    stage.model.wait_for_gate("middle").await.unwrap();
    let open = stage.manager.open_runs(&session.id).await.unwrap();
    assert_eq!(open.len(), 2, "{open:?}");
    assert_eq!(open[0].owner, open[1].owner, "{open:?}");
    stage.model.release("middle");
    completed(&stage.manager, &there.id).await;
    completed(&peer, &here.id).await;
    assert_eq!(stage.model.requests().len(), 2);
}

#[tokio::test]
async fn what_others_said_in_a_process_that_goes_down_is_run_by_them() {
    let (stage, session, first) = held_turn(command_line()).await;
    let peer = stage.peer(command_line()).await;
    let own = say(&stage.manager, &session, "own").await;
    let second = say(&peer, &session, "two").await;
    let manager = stage.manager.clone();
    let down = tokio::spawn(async move { manager.shutdown(PATIENCE).await });
    stage.manager.inner.closing.cancelled().await;
    // It says that it goes down, and is asked again until it is.
    let (asking, of) = (peer.clone(), session.clone());
    let late = tokio::spawn(async move { say(&asking, &of, "three").await });
    stage.model.release("middle");
    tokio::time::timeout(PATIENCE, down).await.unwrap().unwrap();
    completed(&peer, &first.id).await;
    let own = over(&peer, &own.id).await;
    assert_eq!(own.state, RunState::Interrupted, "as its client knows it");
    completed(&peer, &second.id).await;
    let late = tokio::time::timeout(PATIENCE, late).await.unwrap();
    completed(&peer, &late.unwrap().id).await;
}

#[tokio::test]
async fn a_program_that_ends_with_its_turn_leaves_what_others_said_to_them() {
    let for_one_turn = ManagerOptions {
        begins_for_others: false,
        ..command_line()
    };
    let (stage, session, first) = held_turn(for_one_turn).await;
    let peer = stage.peer(command_line()).await;
    let second = say(&peer, &session, "two").await;
    let third = say(&stage.manager, &session, "three").await;
    let fourth = say(&peer, &session, "four").await;
    stage.model.release("middle");
    let first = completed(&peer, &first.id).await;
    let mut owners = Vec::new();
    for turn in [&second, &third, &fourth] {
        owners.push(completed(&peer, &turn.id).await.owner);
    }
    assert_eq!(owners[..2], [first.owner.clone(), first.owner.clone()]);
    assert_ne!(owners[2], first.owner, "nothing of its own waited any more");
}

#[tokio::test]
async fn what_waited_in_a_process_that_is_gone_is_run_by_those_who_said_it() {
    let (stage, session, first) = held_turn(command_line()).await;
    let peers = [
        stage.peer(command_line()).await,
        stage.peer(command_line()).await,
    ];
    let second = say(&peers[0], &session, "two").await;
    let third = say(&peers[1], &session, "three").await;
    // Without a word to anybody, as one that is killed.
    stage.manager.store().close().await;
    completed(&peers[0], &second.id).await;
    completed(&peers[1], &third.id).await;
    let first = peers[0].run(&first.id).await.unwrap();
    assert_eq!(first.state, RunState::Interrupted);
    let thread = session.thread.unwrap().id;
    let entries = peers[0].host().entries(&thread).await.unwrap();
    let said = conjure_core::log::messages(&entries);
    let position = |text: &str| said.iter().position(|said| said.text() == text);
    let places = [position("one"), position("two"), position("three")];
    assert!(places.iter().all(Option::is_some), "{places:?}");
    assert!(places.is_sorted(), "{places:?}");
}

#[tokio::test]
async fn what_others_said_goes_on_with_new_settings_also_where_its_process_goes_down() {
    let script = Script::new()
        .reply(held("The first answer", "first"))
        .reply(held("The second answer", "second"))
        .step(Step::new(Message::new().text("Later.")).always());
    let stage = Stage::with(script, ManagerOptions::default()).await;
    let session = stage.session().await;
    stage.say_until(&session, "one", "first").await;
    let peer = stage.peer(command_line()).await;
    let second = say(&peer, &session, "two").await;
    stage.model.release("first");
    stage.model.wait_for_gate("second").await.unwrap();
    // What its plugins may do less makes it go on in a turn of its own.
    let mut tools = stage.new_session().tools;
    let less = json!({ "free": { "permissions": {} } });
    tools.insert("plugins".to_owned(), less);
    let less = SessionPatch {
        tools: Some(tools),
        ..SessionPatch::default()
    };
    let updated = stage
        .manager
        .update_here(&session.id, &less, EffectiveFrom::Now);
    updated.await.unwrap();
    // The turn has still to come to its end.
    stage.manager.inner.closing.cancel();
    stage.manager.shutdown(PATIENCE).await;
    let second = over(&peer, &second.id).await;
    assert_eq!(second.state, RunState::Cancelled, "{second:?}");
    let runs = peer.runs(&session.id, 10).await.unwrap();
    assert_eq!(runs.len(), 3, "{runs:?}");
    completed(&peer, &runs[0].id).await;
}

/// A process of which only the store is there.
async fn only_a_store(stage: &Stage) -> Store {
    let place = Location::File(stage.dir.path().join("conjure.db"));
    Store::open(&place, &Options::default()).await.unwrap()
}

/// Has a turn of a session wait in a process.
async fn waits_in(store: &Store, session: &SessionView, text: &str) {
    let thread = session.thread.clone().unwrap().id;
    let run = Run::new(text, Some(session.id.clone()), thread);
    let run = run.with_message(Some(Said::user(text)));
    store.begin_run(run).await.unwrap();
}

/// Lets go of a turn when something is asked about it, and then answers as one that has it no more.
async fn lets_go(store: &Store, turn: &str, answer: &str) {
    let mut signals = store.signals();
    let asked = async {
        loop {
            if let Some(request) = store.take_requests().await.unwrap().pop() {
                return request;
            }
            signals.next().await;
        }
    };
    let asked = tokio::time::timeout(PATIENCE, asked);
    let asked = asked.await.expect("it is asked");
    store.release_runs(&[turn.to_owned()]).await.unwrap();
    store.answer_request(&asked.id, answer).await.unwrap();
}

#[tokio::test]
async fn a_turn_that_its_process_lets_go_of_before_it_is_asked_is_cancelled_all_the_same() {
    let stage = Stage::with(always("x"), command_line()).await;
    let session = stage.session().await;
    let (manager, other) = (&stage.manager, only_a_store(&stage).await);
    let done = r#"{"Ok":null}"#;
    waits_in(&other, &session, "one").await;
    let cancelling = manager.cancel_turn(&session.id, "one");
    let (cancelled, ()) = tokio::join!(cancelling, lets_go(&other, "one", done));
    cancelled.unwrap();
    let run = manager.run("one").await.unwrap();
    assert_eq!(run.state, RunState::Cancelled, "{run:?}");
    waits_in(&other, &session, "two").await;
    let cancelling = manager.cancel_queued(&session.id, "two");
    let (cancelled, ()) = tokio::join!(cancelling, lets_go(&other, "two", done));
    cancelled.unwrap();
    let run = manager.run("two").await.unwrap();
    assert_eq!(run.state, RunState::Cancelled, "{run:?}");
    // And what waits behind the turn that is cancelled.
    waits_in(&other, &session, "three").await;
    let cancelling = manager.cancel(&session.id, true);
    let (cancelled, ()) = tokio::join!(cancelling, lets_go(&other, "three", done));
    cancelled.unwrap();
    let run = manager.run("three").await.unwrap();
    assert_eq!(run.state, RunState::Cancelled, "{run:?}");
}

#[tokio::test]
async fn a_turn_that_its_process_lets_go_of_before_it_is_asked_is_reworded_all_the_same() {
    let stage = Stage::with(always("x"), command_line()).await;
    let session = stage.session().await;
    let (manager, other) = (&stage.manager, only_a_store(&stage).await);
    let closing = r#"{"Err":{"kind":"closing","message":"it goes down"}}"#;
    for (turn, answer) in [("one", r#"{"Ok":false}"#), ("two", closing)] {
        waits_in(&other, &session, turn).await;
        let rewording = manager.reword(turn, Said::user(format!("not {turn}")));
        let (reworded, ()) = tokio::join!(rewording, lets_go(&other, turn, answer));
        reworded.unwrap();
        assert_eq!(stage.wait(turn).await.state, RunState::Completed);
    }
    let said = stage.said(&session.thread.unwrap().id).await;
    assert_eq!(
        (said[0].as_str(), said[2].as_str()),
        ("User: not one", "User: not two")
    );
}

#[tokio::test]
async fn a_turn_of_another_session_is_not_cancelled() {
    let stage = Stage::with(always("x"), command_line()).await;
    let (session, another) = (stage.session().await, stage.session().await);
    let other = only_a_store(&stage).await;
    waits_in(&other, &session, "one").await;
    other.close().await;
    let refused = stage.manager.cancel_turn(&another.id, "one").await;
    assert!(refused.unwrap_err().is_not_found());
    let run = stage.manager.run("one").await.unwrap();
    assert_eq!(run.state, RunState::Queued);
}

#[tokio::test]
async fn a_turn_that_waits_in_a_process_that_is_gone_can_be_cancelled() {
    let stage = Stage::with(always("x"), command_line()).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let other = only_a_store(&stage).await;
    for text in ["one", "two"] {
        waits_in(&other, &session, text).await;
    }
    other.close().await;
    let manager = &stage.manager;
    manager.cancel_turn(&session.id, "one").await.unwrap();
    let run = manager.run("one").await.unwrap();
    assert_eq!((run.state, run.message), (RunState::Cancelled, None));
    let run = manager.run("two").await.unwrap();
    assert_eq!(run.state, RunState::Queued, "only what is meant");
    // Somebody says something here, so that the other one runs, too.
    let said = stage.say(&session, "three").await;
    assert_eq!(said.state, RunState::Completed);
    assert_eq!(stage.wait("two").await.state, RunState::Completed);
    let asked = stage.said(&thread).await;
    let asked: Vec<&str> = asked
        .iter()
        .filter_map(|said| said.strip_prefix("User: "))
        .collect();
    assert_eq!(asked, ["two", "three"]);
}
