//! What comes of calls that wait for a person: everybody who follows is told, and the turn goes on.

use conjure_core::chat::Event;
use conjure_core::turn::{ApprovalDecision, TurnInput};

use super::open_thread::OpenThread;

/// Decides about a call. One that does not wait is the turn's to judge.
pub(super) fn decide(thread: &mut OpenThread, call_id: String, decision: ApprovalDecision) {
    let waited = thread.approvals.take(&call_id);
    let input = TurnInput::Decided { call_id, decision };
    match waited {
        true => apply_decisions(thread, vec![input]),
        false => thread.input(input),
    }
}

/// Tells what was decided about calls that waited, and applies it.
pub(super) fn apply_decisions(thread: &mut OpenThread, inputs: Vec<TurnInput>) {
    for input in &inputs {
        let (call_id, allowed) = match input {
            TurnInput::Decided { call_id, decision } => {
                (call_id, matches!(decision, ApprovalDecision::Allow))
            }
            TurnInput::Refused { call_id, .. } => (call_id, false),
            _ => continue,
        };
        let call_id = call_id.clone();
        let over = Event::ApprovalOver { call_id, allowed };
        thread.recorder.event(over);
    }
    thread.inputs(inputs);
}
