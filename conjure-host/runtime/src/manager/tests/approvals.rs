//! Calls that wait for a person.

use std::time::Duration;

use conjure_core::chat::{Event, Message as Said};
use conjure_core::turn::ApprovalDecision;
use conjure_mock_llm::{Message, Script};

use super::stage::{Stage, call, options};
use crate::manager::{
    DecisionScope, ManagerError, ManagerOptions, SessionState, SessionView, Turn, TurnRequest,
    TurnTerms,
};
use conjure_store::{RunState, ThreadId};

fn changes_twice() -> Script {
    Script::new()
        .reply(call("1", "careful_execute", "change"))
        .reply(call("2", "careful_execute", "change"))
        .reply(Message::new().text("Done."))
}

#[tokio::test]
async fn a_decision_for_the_tool_is_asked_for_once_and_saved() {
    let stage = Stage::new(changes_twice()).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let turn = stage
        .manager
        .say(&session.id, Said::user("do it"), None)
        .await
        .unwrap();
    stage
        .until(&thread, None, |event| {
            matches!(event, Event::Approval { .. })
        })
        .await;
    let pending = stage.manager.approvals(&session.id).await.unwrap();
    assert_eq!(pending[0].call.name, "careful_execute");
    assert!(pending[0].denied_in_ms > Some(60_000), "{pending:?}");
    let waits = stage.manager.get(&session.id).await.unwrap();
    assert_eq!(waits.state, SessionState::Waiting);
    let decide = |call: &'static str| {
        let scope = DecisionScope::Tool;
        stage
            .manager
            .decide(&session.id, call, ApprovalDecision::Allow, scope)
    };
    let unknown = decide("other").await.unwrap_err();
    assert!(
        matches!(unknown, ManagerError::NotFound { .. }),
        "{unknown}"
    );
    decide("1").await.unwrap();
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    assert!(decide("1").await.is_err(), "it was decided");
    let saved = stage.manager.get(&session.id).await.unwrap();
    assert_eq!(
        saved.tools["policy"]["allow"],
        serde_json::json!(["free_*", "careful_execute"])
    );
    let asked = stage.model.requests();
    assert_eq!(asked[2].tool_result_text("2").as_deref(), Some("changed"));
}

#[tokio::test]
async fn nobody_decides_so_it_is_denied_after_the_deadline() {
    let script = Script::new()
        .reply(call("1", "careful_execute", "change"))
        .reply(Message::new().text("Then not."));
    let soon = ManagerOptions {
        approval: Duration::from_millis(200),
        ..options()
    };
    let stage = Stage::with(script, soon).await;
    let session = stage.session().await;
    let run = stage.say(&session, "do it").await;
    assert_eq!(run.state, RunState::Completed);
    assert_eq!(run.spent.calls, 0);
    let told = stage.model.requests()[1].tool_result_text("1").unwrap();
    assert!(told.contains("nobody is there to be asked"), "{told}");
}

/// Begins a turn whose client cannot be asked.
async fn unattended(stage: &Stage, session: &SessionView) -> Turn {
    begun(stage, session, false).await
}

async fn begun(stage: &Stage, session: &SessionView, may_come: bool) -> Turn {
    let request = TurnRequest {
        message: Some(Said::user("do it")),
        terms: TurnTerms {
            unattended: true,
            may_come,
            ..TurnTerms::default()
        },
        ..TurnRequest::default()
    };
    stage.manager.begin(&session.id, request).await.unwrap()
}

#[tokio::test]
async fn who_is_back_before_long_never_left_and_who_stays_away_is_not_waited_for() {
    let soon = ManagerOptions {
        absence: Duration::from_millis(500),
        ..options()
    };
    let stage = Stage::with(changes_twice(), soon).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let there = stage.manager.attend(Some(&thread));
    let turn = unattended(&stage, &session).await;
    let asks = |event: &Event| matches!(event, Event::Approval { .. });
    let first = stage.until(&thread, None, asks).await;
    drop(there);
    let back = stage.manager.attend(Some(&thread));
    let decided = stage.manager.decide(
        &session.id,
        "1",
        ApprovalDecision::Allow,
        DecisionScope::Once,
    );
    decided.await.unwrap();
    stage.until(&thread, Some(first), asks).await;
    drop(back);
    // Somebody else's session.
    let _other = stage.manager.attend(Some(&ThreadId::fresh()));
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    let asked = stage.model.requests();
    assert_eq!(asked[1].tool_result_text("1").as_deref(), Some("changed"));
    let told = asked[2].tool_result_text("2").unwrap();
    assert!(told.contains("nobody is there to be asked"), "{told}");
}

#[tokio::test]
async fn who_may_come_yet_is_waited_for_as_one_that_has_just_left() {
    let stage = Stage::with(changes_twice(), options()).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let turn = begun(&stage, &session, true).await;
    let mut seen = None;
    for call in ["1", "2"] {
        let asks = |event: &Event| matches!(event, Event::Approval { .. });
        seen = Some(stage.until(&thread, seen, asks).await);
        let allow = ApprovalDecision::Allow;
        let decided = stage
            .manager
            .decide(&session.id, call, allow, DecisionScope::Once);
        decided.await.unwrap();
    }
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    let asked = stage.model.requests();
    assert_eq!(asked[2].tool_result_text("2").as_deref(), Some("changed"));
    // Who has not come when that time is over does not come any more.
    let at_once = ManagerOptions {
        absence: Duration::ZERO,
        ..options()
    };
    let stage = Stage::with(changes_twice(), at_once).await;
    let session = stage.session().await;
    let turn = begun(&stage, &session, true).await;
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    let told = stage.model.requests()[2].tool_result_text("2").unwrap();
    assert!(told.contains("nobody is there to be asked"), "{told}");
}
