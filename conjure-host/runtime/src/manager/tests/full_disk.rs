//! A store that takes nothing for a while, such as on a full disk: turns that end meanwhile are over
//! for whoever waits, and in the store as soon as there is room.

use std::time::Duration;

use conjure_core::chat::{Event, EventId, Message as Said};
use conjure_kit::SmallDisk;
use conjure_mock_llm::{Message, Position, Reply, Script, Step};

use super::stage::{PATIENCE, Stage, always, held, options};
use crate::manager::requests::ActorRequest;
use crate::manager::run_ends::RunEnd;
use crate::manager::{ManagerOptions, SessionState};
use conjure_store::{Run, RunState};

/// Waits until the store itself has the end of a run, as other processes read it.
async fn written(stage: &Stage, turn: &str) -> Run {
    let over = async {
        loop {
            let run = stage.manager.store().run(turn).await.unwrap();
            if run.state.is_over() {
                return run;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let over = tokio::time::timeout(PATIENCE, over);
    over.await.expect("its end is written")
}

/// How long an end waited for being written.
fn waited_ms(run: &Run) -> i64 {
    run.beat_ms - run.ended_at_ms.unwrap()
}

#[tokio::test]
async fn a_disk_that_fills_in_a_turn_ends_it_and_the_store_has_that_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(12 << 20) else {
        return;
    };
    // Such a text needs room that the log has not yet, however it is packed.
    let long: String = std::iter::repeat_with(|| uuid::Uuid::new_v4().to_string())
        .take(4_000)
        .collect();
    let reply = Reply::from(Message::new().text(long).deltas(2_000));
    let script = Script::new()
        .reply(reply.hold(Position::Event(4), "middle"))
        .step(Step::new(Message::new().text("Later.")).always());
    let (dir, database) = (tempfile::tempdir().unwrap(), disk.path().join("small.db"));
    let stage = Stage::over(dir, &database, script, options()).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let turn = stage.manager.say(&session.id, Said::user("hello"), None);
    let turn = turn.await.unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    disk.fill().unwrap();
    stage.model.release("middle");

    // Whoever waits or follows is told at once, and nothing is left to cancel.
    let run = stage.wait(&turn.id).await;
    assert_eq!(run.state, RunState::Interrupted);
    assert!(run.error.unwrap().contains("no space"));
    let failed =
        |event: &Event| matches!(event, Event::Error(error) if error.error.contains("no space"));
    let failed = stage.until(&thread, None, failed).await;
    let is_over = |event: &Event| matches!(event, Event::Done { turn_id, outcome, .. } if *turn_id == turn.id && outcome == "interrupted");
    let done = stage.until(&thread, Some(failed), is_over).await;
    let cancelled = stage.manager.cancel(&session.id, false);
    let cancelled = tokio::time::timeout(PATIENCE, cancelled).await;
    cancelled.expect("a cancel is answered").unwrap();
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!((view.state, view.turn), (SessionState::Idle, None));
    let known = stage.manager.runs(&session.id, 10).await.unwrap();
    assert_eq!(known[0].state, RunState::Interrupted);
    let stored = stage.manager.store().run(&turn.id).await.unwrap();
    assert_eq!(stored.state, RunState::Running, "the disk is full");

    disk.make_room().unwrap();
    let run = written(&stage, &turn.id).await;
    assert_eq!(run.state, RunState::Interrupted);
    assert!(run.error.unwrap().contains("no space"));
    assert_eq!(stage.say(&session, "more").await.state, RunState::Completed);
    // Nothing of the next turn is hidden behind what was told of that one.
    let is_next =
        |event: &Event| matches!(event, Event::Done { outcome, .. } if outcome == "completed");
    stage.until(&thread, Some(done), is_next).await;
}

#[tokio::test]
async fn an_end_that_the_store_did_not_take_holds_here_until_it_does() {
    const WAITED_MS: i64 = 3_600_000;
    let by_hand = ManagerOptions {
        heartbeat_interval: Duration::from_secs(3_600),
        ..options()
    };
    let stage = Stage::with(always("x"), by_hand).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let (store, inner) = (stage.manager.store(), &stage.manager.inner);
    for id in ["ran", "unbegun"] {
        let run = Run::new(id, Some(session.id.clone()), thread.clone());
        let run = run.with_message(Some(Said::user(id)));
        store.begin_run(run).await.unwrap();
    }
    let ran = store.update_run("ran", RunState::Running, None);
    assert!(ran.await.unwrap());
    let why = Some("there is no space left");
    let ends = [
        RunEnd::new("ran", RunState::Interrupted, None, why),
        RunEnd::unwritten("unbegun", "there is no space left"),
    ];
    for mut end in ends {
        end.at_ms -= WAITED_MS;
        inner.run_ends.keep(end);
    }
    for (id, state) in [
        ("ran", RunState::Interrupted),
        ("unbegun", RunState::Failed),
    ] {
        let run = stage.wait(id).await;
        assert_eq!((run.state, run.error.as_deref()), (state, why));
        let stored = store.run(id).await.unwrap();
        assert!(!stored.state.is_over(), "{stored:?}");
    }
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!((view.state, view.queued), (SessionState::Idle, 0));
    inner.write_run_ends().await;
    let stored = store.run("ran").await.unwrap();
    assert_eq!(
        (stored.state, stored.error.as_deref()),
        (RunState::Interrupted, why)
    );
    assert!(waited_ms(&stored) >= WAITED_MS, "{stored:?}");
    let stored = store.run("unbegun").await.unwrap();
    assert_eq!(stored.state, RunState::Failed);
    assert!(waited_ms(&stored) >= WAITED_MS, "{stored:?}");
    assert_eq!(stored.message, Some(Said::user("unbegun")), "it is kept");
    assert!(inner.run_ends.is_empty());
}

#[tokio::test]
async fn who_follows_a_thread_that_breaks_is_told_that_its_turn_is_over() {
    let script = Script::new()
        .reply(held("Never ends", "never"))
        .step(Step::new(Message::new().text("Fine.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let turn = stage.manager.say(&session.id, Said::user("hang"), None);
    let turn = turn.await.unwrap();
    stage.model.wait_for_gate("never").await.unwrap();
    stage.ask(&thread, ActorRequest::Panic).await;
    let is_over =
        |event: &Event| matches!(event, Event::Done { turn_id, .. } if *turn_id == turn.id);
    let done = stage.until(&thread, None, is_over).await;
    assert_eq!(
        stage.say(&session, "again").await.state,
        RunState::Completed
    );
    let is_next =
        |event: &Event| matches!(event, Event::Done { outcome, .. } if outcome == "completed");
    stage.until(&thread, Some(done), is_next).await;
}

#[tokio::test]
async fn an_end_that_was_told_without_the_log_is_not_told_again_when_the_log_has_it() {
    let script = Script::new()
        .reply(held("Never ends", "never"))
        .step(Step::new(Message::new().text("Fine.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let mut events = stage.manager.events(&thread, None).await.unwrap();
    let turn = stage.manager.say(&session.id, Said::user("hang"), None);
    let turn = turn.await.unwrap();
    stage.model.wait_for_gate("never").await.unwrap();
    stage.ask(&thread, ActorRequest::Panic).await;
    stage.wait(&turn.id).await;
    let mut ends = Vec::new();
    let mut is_begun = false;
    while ends.last().is_none_or(|end| end != "completed") {
        let next = tokio::time::timeout(PATIENCE, events.next());
        let next = next.await.expect("more comes").unwrap().unwrap();
        if let Event::Done { outcome, .. } = &next.event {
            ends.push(outcome.clone());
        }
        if !ends.is_empty() && !std::mem::replace(&mut is_begun, true) {
            let again = stage.manager.say(&session.id, Said::user("again"), None);
            again.await.unwrap();
        }
    }
    assert_eq!(ends, ["interrupted", "completed"]);
    // Who comes later reads in the log what the others were told.
    let log = stage.manager.store().events_after(&thread, None, 1_000);
    let log = log.await.unwrap();
    let ended = |event: &Event| matches!(event, Event::Done { turn_id, .. } if *turn_id == turn.id);
    assert_eq!(log.iter().filter(|(_, event)| ended(event)).count(), 1);
}

#[tokio::test]
async fn who_comes_back_while_the_log_closes_a_turn_is_not_told_its_end_again() {
    let script = Script::new()
        .reply(held("Never ends", "never"))
        .reply(held("Nearly there", "middle"));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let turn = stage.manager.say(&session.id, Said::user("hang"), None);
    let turn = turn.await.unwrap();
    stage.model.wait_for_gate("never").await.unwrap();
    stage.ask(&thread, ActorRequest::Panic).await;
    let is_over =
        |event: &Event| matches!(event, Event::Done { turn_id, .. } if *turn_id == turn.id);
    let done = stage.until(&thread, None, is_over).await;
    let again = stage.manager.say(&session.id, Said::user("again"), None);
    again.await.unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let seen = EventId {
        epoch: done.epoch + 1,
        seq: 0,
    };
    let mut events = stage.manager.events(&thread, Some(seen)).await.unwrap();
    loop {
        let next = tokio::time::timeout(PATIENCE, events.next());
        let next = next.await.expect("more comes").unwrap().unwrap();
        assert!(!is_over(&next.event), "it is told twice");
        if matches!(next.event, Event::TurnStarted { .. }) {
            break;
        }
    }
    stage.model.release("middle");
}
