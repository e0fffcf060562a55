//! Calls that wait for a person, and the rules that say which do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::FunctionCall;
use conjure_core::context::{CallFailure, CallFailureKind, CallRefusal};
use conjure_core::routing::{Policy, RoutingTable, Rule};
use conjure_core::turn::{ApprovalDecision, CallVerdict, Judge as _, TableJudge, TurnInput};
use tokio::time::Instant;

use super::questions::Questions;
use crate::backend::ToolSnapshot;
use conjure_config::SessionSpec;

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
    /// Milliseconds until the call is denied; `None` where it waits for as long as it takes.
    pub denied_in_ms: Option<u64>,
}

/// Rules that decide about calls, and the calls that wait for a decision.
pub(super) struct Approvals {
    /// The rules that hold now.
    policy: Policy,
    /// Rules that came while the session ran.
    added_rules: Vec<Rule>,
    /// Rules that hold for the running turn only.
    turn_rules: Vec<Rule>,
    mode: ApprovalMode,
    waiting: BTreeMap<String, ApprovalRequest>,
    /// How many calls have waited so far.
    request_count: u64,
    /// What plugins ask the person, where somebody may come.
    questions: Option<Arc<Questions>>,
}

/// A call that waits for approval, and how long it may.
struct ApprovalRequest {
    /// Place of the call in the order in which the model asked.
    number: u64,
    call: FunctionCall,
    reason: String,
    deadline: Option<Instant>,
}

impl Approvals {
    pub(super) fn new(
        spec: &SessionSpec,
        mode: ApprovalMode,
        questions: Option<Arc<Questions>>,
    ) -> Self {
        Self {
            policy: spec.call_policy(),
            added_rules: Vec::new(),
            turn_rules: Vec::new(),
            mode,
            waiting: BTreeMap::new(),
            request_count: 0,
            questions,
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The judge of a step's calls, who knows which tools the thread once had.
    pub(super) fn judge<'a>(
        &'a self,
        table: &'a RoutingTable,
        removed: &BTreeSet<String>,
    ) -> TableJudge<'a> {
        let judge = TableJudge::new(table, &self.policy).with_removed(removed.iter().cloned());
        match self.mode {
            ApprovalMode::Attended | ApprovalMode::Within(_) => judge,
            ApprovalMode::Unattended => judge.unattended(),
        }
    }

    /// Takes the rules of these settings, with those that came while the session ran and those of
    /// the turn.
    pub(super) fn renew_policy(&mut self, spec: &SessionSpec) {
        self.policy = spec.call_policy();
        let more = self.added_rules.iter().chain(&self.turn_rules);
        self.policy.rules.extend(more.cloned());
    }

    /// Adds a rule that holds for as long as the session runs.
    pub(super) fn add_rule(&mut self, rule: Rule) {
        self.policy.rules.push(rule.clone());
        self.added_rules.push(rule);
    }

    /// Takes the rules of the next turn in place of those of the one before.
    pub(super) fn set_turn_rules(&mut self, rules: Vec<Rule>, spec: &SessionSpec) {
        if self.turn_rules != rules {
            self.turn_rules = rules;
            self.renew_policy(spec);
        }
    }

    /// Says whether somebody is there to decide and to answer questions. What waits and has nobody
    /// to wait for any more is denied.
    pub(super) fn attend(&mut self, mode: ApprovalMode, snapshot: &ToolSnapshot) -> Vec<TurnInput> {
        self.mode = mode;
        let is_attended = mode != ApprovalMode::Unattended;
        if let Some(questions) = &self.questions {
            questions.attend(is_attended);
        }
        if is_attended {
            return Vec::new();
        }
        self.deny(snapshot, |_| true)
    }

    /// Lets a call wait for a person; where nobody can be asked, that is the decision already.
    pub(super) fn ask(
        &mut self,
        call: FunctionCall,
        reason: String,
        snapshot: &ToolSnapshot,
    ) -> Option<TurnInput> {
        let until = match self.mode {
            ApprovalMode::Unattended => {
                return Some(TurnInput::Refused {
                    refusal: unattended_refusal(&call, &reason, snapshot),
                    call_id: call.call_id,
                });
            }
            ApprovalMode::Within(time) => Some(Instant::now() + time),
            ApprovalMode::Attended => None,
        };
        let call_id = call.call_id.clone();
        self.request_count += 1;
        let waiting = ApprovalRequest {
            number: self.request_count,
            call,
            reason,
            deadline: until,
        };
        self.waiting.insert(call_id, waiting);
        None
    }

    /// Ends the wait of a call: it is decided about, or its turn ends. Whether it waited until now.
    pub(super) fn take(&mut self, call_id: &str) -> bool {
        self.waiting.remove(call_id).is_some()
    }

    /// The calls that wait, in the order in which the model asked.
    pub(super) fn pending(&self) -> Vec<PendingApproval> {
        let mut waiting: Vec<&ApprovalRequest> = self.waiting.values().collect();
        waiting.sort_unstable_by_key(|waiting| waiting.number);
        let pending = waiting.into_iter().map(|waiting| {
            let left = waiting.deadline.map(|until| until - Instant::now());
            PendingApproval {
                call: waiting.call.clone(),
                reason: waiting.reason.clone(),
                denied_in_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            }
        });
        pending.collect()
    }

    /// When the first of them is denied.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting
            .values()
            .filter_map(|waiting| waiting.deadline)
            .min()
    }

    /// Decides about what waits where a rule does now.
    pub(super) fn decide_by_rules(&mut self, table: &RoutingTable) -> Vec<TurnInput> {
        let judge = TableJudge::new(table, &self.policy);
        let mut decided = Vec::new();
        self.waiting.retain(|call_id, waiting| {
            let call_id = call_id.clone();
            decided.push(match judge.judge(&waiting.call) {
                CallVerdict::Run { .. } => TurnInput::Decided {
                    call_id,
                    decision: ApprovalDecision::Allow,
                },
                CallVerdict::Refuse(refusal) => TurnInput::Refused { call_id, refusal },
                CallVerdict::Ask { .. } => return true,
            });
            false
        });
        decided
    }

    /// Denies what waited for too long.
    pub(super) fn deny_unanswered(&mut self, snapshot: &ToolSnapshot) -> Vec<TurnInput> {
        let now = Instant::now();
        self.deny(snapshot, |waiting| {
            waiting.deadline.is_some_and(|until| until <= now)
        })
    }

    fn deny(
        &mut self,
        snapshot: &ToolSnapshot,
        is_meant: impl Fn(&ApprovalRequest) -> bool,
    ) -> Vec<TurnInput> {
        let mut denied = Vec::new();
        self.waiting.retain(|call_id, waiting| {
            if !is_meant(waiting) {
                return true;
            }
            denied.push(TurnInput::Refused {
                call_id: call_id.clone(),
                refusal: unattended_refusal(&waiting.call, &waiting.reason, snapshot),
            });
            false
        });
        denied
    }
}

/// What the model is told when nobody could be asked.
fn unattended_refusal(call: &FunctionCall, reason: &str, snapshot: &ToolSnapshot) -> CallRefusal {
    let found = snapshot.look_up(&call.name);
    let failure = CallFailure {
        tool: &call.name,
        backend: found.map(|(route, _)| &*route.backend),
        kind: CallFailureKind::NobodyToAsk { reason },
    };
    failure.into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn calls_wait_in_the_order_in_which_the_model_asked() {
        let (table, root) = (Arc::new(RoutingTable::default()), Path::new("/"));
        let snapshot = ToolSnapshot::new(table, HashMap::new(), Vec::new(), String::new(), root);
        let spec = SessionSpec::default();
        let mut approvals = Approvals::new(&spec, ApprovalMode::Attended, None);
        let ids = ["call-9", "call-1", "call-5"];
        for id in ids {
            let call = FunctionCall {
                call_id: id.to_owned(),
                name: "cache-manager_execute".to_owned(),
                arguments: json!({}),
                arguments_text: None,
            };
            let denied = approvals.ask(call, "it writes".to_owned(), &snapshot);
            assert!(denied.is_none());
        }
        let pending = approvals.pending().into_iter();
        let pending: Vec<String> = pending.map(|pending| pending.call.call_id).collect();
        assert_eq!(pending, ids);
    }
}
