//! The calls of a step: judged, asked about, run lane by lane, each with one result.

use super::{
    CallStep, HostAction, Judge, Machine, TurnOutcome, TurnPhase, TurnProgress, announcement, limit,
};
use crate::chat::{CallOutput, Event, FunctionCall, FunctionCallOutput};
use crate::context::{CallFailure, CallFailureKind, CallRefusal};
use crate::exact_numbers::inexact_number;
use crate::log::{CallEnd, EntryBody};
use crate::turn::{ApprovalDecision, CallVerdict};

/// How much of arguments is shown to the model that wrote them, in characters.
const MAX_SHOWN_CHARS: usize = 200;

impl Machine {
    pub(super) fn begin_step(&mut self, calls: Vec<FunctionCall>, judge: &dyn Judge) {
        if let Some(outcome) = self.exceeded_limit(calls.len()) {
            if let TurnOutcome::Limit { limit, value } = &outcome {
                let value = *value;
                self.refuse_all(&calls, CallFailureKind::OverLimit { limit, value }, judge);
            }
            self.finish(outcome);
            return;
        }
        let mut step = CallStep::default();
        for call in calls {
            let (verdict, route) = match bad_arguments(&call, judge) {
                Some(refusal) => (CallVerdict::Refuse(refusal), None),
                None => judge.judge_route(&call),
            };
            match &verdict {
                CallVerdict::Refuse(refusal) => self.refuse(&call, refusal.clone()),
                CallVerdict::Ask { reason, .. } => {
                    self.publish(Event::Approval {
                        call: announcement(&call),
                        reason: reason.clone(),
                    });
                    self.actions.push(HostAction::AskPerson {
                        call: call.clone(),
                        reason: reason.clone(),
                    });
                }
                CallVerdict::Run { .. } => {}
            }
            step.add(call, verdict, route);
        }
        if let Some(turn) = &mut self.turn {
            turn.phase = TurnPhase::Calls(step);
        }
        self.run_calls();
    }

    /// The limit that another round of calls would break.
    pub(super) fn exceeded_limit(&self, calls: usize) -> Option<TurnOutcome> {
        let turn = self.turn.as_ref()?;
        let budget = &self.settings.budget;
        if turn.rounds >= self.settings.max_iterations {
            return Some(limit("max_iterations", self.settings.max_iterations.into()));
        }
        if let Some(outcome) = self.exceeded_token_budget() {
            return Some(outcome);
        }
        let calls = turn
            .calls
            .saturating_add(u32::try_from(calls).unwrap_or(u32::MAX));
        budget
            .calls
            .filter(|most| calls > *most)
            .map(|most| limit("calls", most.into()))
    }

    pub(super) fn exceeded_token_budget(&self) -> Option<TurnOutcome> {
        let spent = self.turn.as_ref()?.usage.total();
        let most = self.settings.budget.tokens.filter(|most| spent >= *most)?;
        Some(limit("tokens", most))
    }

    pub(super) fn run_calls(&mut self) {
        let Some(TurnProgress {
            phase: TurnPhase::Calls(step),
            calls,
            ..
        }) = &mut self.turn
        else {
            return;
        };
        let startable = step.start();
        *calls += u32::try_from(startable.len()).unwrap_or(u32::MAX);
        let over = step.is_over();
        for call in startable {
            let call_id = call.call.call_id.clone();
            self.write(EntryBody::CallStarted {
                call_id: call_id.clone(),
                backend: call.backend.clone(),
                plugin: call.plugin.clone(),
            });
            self.publish(Event::CallStarted {
                call_id,
                backend: call.backend,
                plugin: call.plugin,
            });
            self.actions.push(HostAction::RunCall {
                call: call.call,
                route: call.route,
            });
        }
        if over {
            if self.is_ending() {
                self.end_turn();
            } else {
                self.continue_turn();
            }
        }
    }

    pub(super) fn complete_call(
        &mut self,
        output: FunctionCallOutput,
        end: CallEnd,
        duration_ms: u64,
        meta: Option<serde_json::Value>,
    ) {
        let Some(TurnProgress {
            phase: TurnPhase::Calls(step),
            ..
        }) = &mut self.turn
        else {
            return;
        };
        if !step.end(&output.call_id) {
            return;
        }
        let (name, backend) = step.name_and_backend(&output.call_id).unwrap_or_default();
        let told = Event::FunctionCallOutput(CallOutput {
            call_id: output.call_id.clone(),
            name: name.to_owned(),
            backend: Some(backend.to_owned()),
            output: output.joined_text(),
            is_error: output.is_error,
            duration_ms,
        });
        self.write(EntryBody::CallEnded {
            output,
            end,
            reason: None,
            duration_ms,
            meta,
        });
        self.publish(told);
        self.run_calls();
    }

    pub(super) fn apply_decision(&mut self, call_id: &str, decision: ApprovalDecision) {
        match decision {
            ApprovalDecision::Allow => {
                if self.step().is_some_and(|step| step.allow(call_id)) {
                    self.run_calls();
                }
            }
            ApprovalDecision::Deny { reason } => {
                let (name, backend) = self.call_and_backend(call_id);
                let failure = CallFailure {
                    tool: &name,
                    backend: backend.as_deref(),
                    kind: CallFailureKind::PersonRefused { reason: &reason },
                };
                self.refuse_pending(call_id, failure.into());
            }
        }
    }

    /// Ends a call that waits for a person, with what the model is told.
    pub(super) fn refuse_pending(&mut self, call_id: &str, refusal: CallRefusal) {
        if self.step().is_some_and(|step| step.deny(call_id)) {
            let (name, _) = self.call_and_backend(call_id);
            self.end_without_run(call_id, name, refusal, CallEnd::Refused);
            self.run_calls();
        }
    }

    fn step(&mut self) -> Option<&mut CallStep> {
        match &mut self.turn {
            Some(TurnProgress {
                phase: TurnPhase::Calls(step),
                ..
            }) => Some(step),
            _ => None,
        }
    }

    pub(super) fn refuse_all(
        &mut self,
        calls: &[FunctionCall],
        kind: CallFailureKind<'_>,
        judge: &dyn Judge,
    ) {
        for call in calls {
            let failure = CallFailure {
                tool: &call.name,
                backend: judge.backend(&call.name),
                kind,
            };
            self.refuse(call, failure.into());
        }
    }

    fn refuse(&mut self, call: &FunctionCall, refusal: CallRefusal) {
        self.end_without_run(&call.call_id, call.name.clone(), refusal, CallEnd::Refused);
    }

    pub(super) fn end_without_run(
        &mut self,
        call_id: &str,
        name: String,
        refusal: CallRefusal,
        end: CallEnd,
    ) {
        let CallRefusal { text, reason } = refusal;
        self.write(EntryBody::CallEnded {
            output: FunctionCallOutput::text(call_id, text.clone(), true),
            end,
            reason,
            duration_ms: 0,
            meta: None,
        });
        self.publish(Event::FunctionCallOutput(CallOutput {
            call_id: call_id.to_owned(),
            name,
            backend: None,
            output: text,
            is_error: true,
            duration_ms: 0,
        }));
    }

    /// The name of a call of this step, and the backend that would run it.
    pub(super) fn call_and_backend(&self, call_id: &str) -> (String, Option<String>) {
        let about = match &self.turn {
            Some(TurnProgress {
                phase: TurnPhase::Calls(step),
                ..
            }) => step.name_and_backend(call_id),
            _ => None,
        };
        let (name, backend) = about.unwrap_or_default();
        let backend = (!backend.is_empty()).then(|| backend.to_owned());
        (name.to_owned(), backend)
    }
}

fn bad_arguments(call: &FunctionCall, judge: &dyn Judge) -> Option<CallRefusal> {
    let reason = match &call.arguments_text {
        Some(text) => describe_inexact_number(text).unwrap_or_else(|| {
            let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            format!("the arguments are not a JSON object; they were: {shown}")
        }),
        None if call.arguments.is_object() => return None,
        None => "the arguments are not a JSON object".to_owned(),
    };
    let failure = CallFailure {
        tool: &call.name,
        backend: judge.backend(&call.name),
        kind: CallFailureKind::BadArguments { reason: &reason },
    };
    Some(failure.into())
}

/// What is said of arguments with a number that would be another one for the tool.
fn describe_inexact_number(arguments: &str) -> Option<String> {
    // Gemini's arguments may come as a list of their pieces.
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
        && arguments.trim_start().starts_with(['{', '[']);
    let number = inexact_number(arguments).filter(|_| is_json)?;
    let number: String = number.chars().take(MAX_SHOWN_CHARS).collect();
    Some(format!(
        "the number {number} in its arguments has more digits than a number can keep; send it as a \
         string where the tool takes one"
    ))
}
