//! Replies and failures of a model as the machine is told them where a log has no more of them than their end.

use crate::chat::{Meta, Response, Stop, StopReason, Usage};
use crate::log::{EntryBody, TurnOutcome};
use crate::turn::ModelFailure;

pub(super) fn other_stop(raw: Option<&str>) -> Option<Stop> {
    raw.map(|raw| Stop {
        reason: StopReason::Other,
        raw: raw.to_owned(),
        sequence: None,
    })
}

/// A reply that says nothing.
pub(super) fn empty_reply(usage: Usage, stop: Option<Stop>) -> (Response, Meta) {
    let meta = Meta {
        usage,
        stop_reason: stop.as_ref().map(|stop| stop.raw.clone()),
        ..Meta::default()
    };
    let response = Response {
        usage,
        stop,
        ..Response::default()
    };
    (response, meta)
}

pub(super) fn stopped_failure() -> ModelFailure {
    ModelFailure {
        error: "stopped".to_owned(),
        kind: "stopped".to_owned(),
    }
}

pub(super) fn failure_of(next: Option<&EntryBody>) -> ModelFailure {
    match next {
        Some(EntryBody::TurnEnded {
            outcome: TurnOutcome::Failed { error, kind },
            ..
        }) => ModelFailure {
            error: error.clone(),
            kind: kind.clone(),
        },
        _ => stopped_failure(),
    }
}
