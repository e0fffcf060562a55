//! What holds for one turn beside the session's settings, and whether anybody may come to decide
//! about its calls. Nothing of it is saved with the session.

use conjure_core::chat::Message;
use conjure_core::routing::Rule;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Inner, Manager};
use crate::session::ApprovalMode;
use conjure_config::PolicySpec;

/// A turn that is to be begun.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnRequest {
    /// What is said; where there is nothing the model goes on from where the thread ends.
    pub message: Option<Message>,
    /// The turn's id, where the client chooses it: the same id again begins nothing.
    pub turn_id: Option<String>,
    /// What holds for it.
    pub terms: TurnTerms,
}

/// What holds for one turn beside the session's settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnTerms {
    /// Rules beside those of the session.
    pub policy: PolicySpec,
    /// Whoever says it cannot be asked: a call that asks is denied at once, and a question
    /// cancelled, unless another client is there.
    pub unattended: bool,
}

impl TurnTerms {
    pub(super) fn rules(&self) -> Vec<Rule> {
        self.policy.rules()
    }
}

/// How many clients are there that can decide and answer.
#[derive(Debug, Clone)]
pub(super) struct Attendance(watch::Sender<usize>);

impl Default for Attendance {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Attendance {
    pub(super) fn is_any(&self) -> bool {
        *self.0.borrow() > 0
    }

    pub(super) fn follow(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

/// A client that is there, until this is dropped.
#[derive(Debug)]
pub struct Attendant(Attendance);

impl Drop for Attendant {
    fn drop(&mut self) {
        self.0
            .0
            .send_modify(|there| *there = there.saturating_sub(1));
    }
}

impl Manager {
    /// Says that a client is there that can decide about calls and answer questions: what asks in
    /// an unattended turn waits for it.
    pub fn attend(&self) -> Attendant {
        let attendance = self.inner.attendance.clone();
        attendance.0.send_modify(|there| *there += 1);
        Attendant(attendance)
    }
}

impl Inner {
    /// What becomes of calls that ask in a turn.
    pub(super) fn approvals(&self, terms: &TurnTerms) -> ApprovalMode {
        if terms.unattended && !self.attendance.is_any() {
            ApprovalMode::Unattended
        } else {
            ApprovalMode::Within(self.options.approval)
        }
    }
}
