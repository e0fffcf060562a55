//! Calls and questions that wait for a person.

use std::time::Duration;

use conjure_core::chat::FunctionCall;
use conjure_core::context::{CallFailure, CallFailureKind, Refusal};
use conjure_core::turn::{Decision, Input, Judge as _, TableJudge, Verdict};
use tokio::time::Instant;

use super::actor::Actor;

/// Whether anybody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApprovalMode {
    /// Nobody is there: what a rule would ask about is denied, and the result says so.
    #[default]
    Unattended,
    /// Somebody follows the session and answers with [`super::Session::decide`].
    Attended,
    /// Somebody may come: what nobody decided about in this time is denied.
    Within(Duration),
}

/// A call that waits for a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// The call.
    pub call: FunctionCall,
    /// The rule that asks.
    pub reason: String,
    /// After how many milliseconds it is denied; nothing where it waits for as long as it takes.
    pub denied_in_ms: Option<u64>,
}

/// A call that waits, and how long.
pub(super) struct Asking {
    call: FunctionCall,
    reason: String,
    until: Option<Instant>,
}

impl Asking {
    fn new(call: FunctionCall, reason: String, mode: ApprovalMode) -> Self {
        let until = match mode {
            ApprovalMode::Within(time) => Some(Instant::now() + time),
            ApprovalMode::Attended | ApprovalMode::Unattended => None,
        };
        Self {
            call,
            reason,
            until,
        }
    }

    /// When it is denied.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn pending(&self) -> PendingApproval {
        let left = self.until.map(|until| until - Instant::now());
        PendingApproval {
            call: self.call.clone(),
            reason: self.reason.clone(),
            denied_in_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

impl Actor {
    /// Lets a call wait for a person; where nobody can be asked, that is the decision already.
    pub(super) fn ask_person(&mut self, call: FunctionCall, reason: String) -> Option<Input> {
        if self.attended == ApprovalMode::Unattended {
            let refusal = self.nobody_there(&call, &reason);
            return Some(Input::Refused {
                call_id: call.call_id,
                refusal,
            });
        }
        let call_id = call.call_id.clone();
        let asking = Asking::new(call, reason, self.attended);
        self.asked.insert(call_id, asking);
        None
    }

    /// Lets what waits run where a rule allows it now, and denies what one forbids now.
    pub(super) fn decide_asked(&mut self) {
        let snapshot = self.current.load_full();
        let judge = TableJudge::new(snapshot.table(), &self.policy);
        let verdicts = self.asked.iter().map(|(call_id, asking)| {
            let verdict = judge.judge(&asking.call);
            (call_id.clone(), verdict)
        });
        let verdicts: Vec<(String, Verdict)> = verdicts.collect();
        for (call_id, verdict) in verdicts {
            let decided = call_id.clone();
            let input = match verdict {
                Verdict::Run { .. } => Input::Decided {
                    call_id,
                    decision: Decision::Allow,
                },
                Verdict::Refuse(refusal) => Input::Refused { call_id, refusal },
                Verdict::Ask { .. } => continue,
            };
            self.asked.remove(&decided);
            self.input(input);
        }
    }

    /// Denies what waits, since nobody is there any more.
    pub(super) fn deny_asked(&mut self) {
        self.deny(|_| true);
    }

    /// Denies what waited for too long.
    pub(super) fn deny_unanswered(&mut self) {
        let now = Instant::now();
        self.deny(|asking| asking.until.is_some_and(|until| until <= now));
    }

    fn deny(&mut self, is_meant: impl Fn(&Asking) -> bool) {
        let meant = self.asked.iter().filter(|(_, asking)| is_meant(asking));
        let meant: Vec<String> = meant.map(|(call_id, _)| call_id.clone()).collect();
        for call_id in meant {
            if let Some(asking) = self.asked.remove(&call_id) {
                let refusal = self.nobody_there(&asking.call, &asking.reason);
                self.input(Input::Refused { call_id, refusal });
            }
        }
    }

    /// What the model is told when nobody could be asked.
    fn nobody_there(&self, call: &FunctionCall, reason: &str) -> Refusal {
        let snapshot = self.current.load();
        let found = snapshot.look_up(&call.name);
        let failure = CallFailure {
            tool: &call.name,
            backend: found.map(|(route, _)| &*route.backend),
            kind: CallFailureKind::NobodyToAsk { reason },
        };
        failure.into()
    }
}
