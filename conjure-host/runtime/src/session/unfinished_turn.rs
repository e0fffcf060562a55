//! What those who follow a thread are told when its host ended in the middle of a turn: that the
//! calls, the questions and the turn itself are over, and why.
//!
//! Told is the end of what the thread's own events began: so nothing is told twice, and a fork tells
//! nothing of what its ancestors had open.

use std::collections::BTreeSet;

use conjure_core::chat::{CallOutput, ErrorEvent, Event};
use conjure_core::log::{EntryBody, TurnOutcome};

use conjure_store::Record;

/// Why the turn is over, for people.
const INTERRUPTED: &str = "the turn was interrupted: the process that ran it ended, or could not write \
                   what came; what is in the thread is kept, and nothing of it is repeated";

/// A turn that the events of a thread began and did not end.
#[derive(Debug, Default)]
pub(super) struct UnfinishedTurn {
    id: Option<String>,
    /// The calls that have no result, in their order.
    calls: Vec<UnfinishedCall>,
    /// The calls that wait for a decision.
    approvals: BTreeSet<String>,
    questions: BTreeSet<String>,
}

#[derive(Debug)]
struct UnfinishedCall {
    id: String,
    name: String,
    /// What began to run it.
    backend: Option<String>,
}

impl UnfinishedTurn {
    /// The last turn of these records, as far as their events tell.
    pub(super) fn of(records: &[Record]) -> Self {
        let mut turn = Self::default();
        for record in records {
            if let Record::Event { event, .. } = record {
                turn.see(event);
            }
        }
        turn
    }

    fn see(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { turn_id } => {
                *self = Self {
                    id: Some(turn_id.clone()),
                    ..Self::default()
                };
            }
            Event::FunctionCall { calls } => {
                let announced = calls.iter().map(|call| UnfinishedCall {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    backend: None,
                });
                self.calls.extend(announced);
            }
            Event::Approval { call, .. } => {
                self.approvals.insert(call.id.clone());
            }
            Event::ApprovalOver { call_id, .. } => {
                self.approvals.remove(call_id);
            }
            Event::Question(question) => {
                self.questions.insert(question.id.clone());
            }
            Event::QuestionOver { id, .. } => {
                self.questions.remove(id);
            }
            Event::CallStarted {
                call_id, backend, ..
            } => {
                self.approvals.remove(call_id);
                if let Some(call) = self.calls.iter_mut().find(|call| call.id == *call_id) {
                    call.backend = Some(backend.clone());
                }
            }
            Event::FunctionCallOutput(output) => {
                self.approvals.remove(&output.call_id);
                self.calls.retain(|call| call.id != output.call_id);
            }
            Event::Done { .. } => *self = Self::default(),
            _ => {}
        }
    }

    /// What is told of its end, where these entries close it.
    pub(super) fn closing_events(self, closing: &[EntryBody]) -> Vec<Event> {
        let Self {
            id: Some(turn_id),
            calls,
            approvals,
            questions,
        } = self
        else {
            return Vec::new();
        };
        let ends = |body: &EntryBody| matches!(body, EntryBody::TurnEnded { turn_id: ended, .. } if *ended == turn_id);
        if !closing.iter().any(ends) {
            return Vec::new();
        }
        let undecided = approvals.into_iter().map(|call_id| Event::ApprovalOver {
            call_id,
            allowed: false,
        });
        let unanswered = questions.into_iter().map(|id| Event::QuestionOver {
            id,
            action: "cancel".to_owned(),
        });
        let mut told: Vec<Event> = undecided.chain(unanswered).collect();
        told.extend(
            calls
                .into_iter()
                .filter_map(|call| call.closing_event(closing)),
        );
        told.push(Event::Error(ErrorEvent {
            error: INTERRUPTED.to_owned(),
            kind: "session".to_owned(),
        }));
        told.push(Event::Done {
            turn_id,
            outcome: TurnOutcome::Interrupted.as_str().to_owned(),
            stop_reason: None,
            text: String::new(),
        });
        told
    }
}

impl UnfinishedCall {
    fn closing_event(self, closing: &[EntryBody]) -> Option<Event> {
        let output = closing.iter().find_map(|body| match body {
            EntryBody::CallEnded { output, .. } if output.call_id == self.id => Some(output),
            _ => None,
        })?;
        Some(Event::FunctionCallOutput(CallOutput {
            call_id: self.id,
            name: self.name,
            backend: self.backend,
            output: output.joined_text(),
            is_error: output.is_error,
            duration_ms: 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{CallAnnounced, EventId, FunctionCallOutput, QuestionAsked, Usage};
    use conjure_core::log::CallEnd;
    use serde_json::Value;

    use super::*;

    fn shown(events: Vec<Event>) -> Vec<Record> {
        let id = EventId { epoch: 1, seq: 1 };
        let records = events.into_iter().map(|event| Record::Event { id, event });
        records.collect()
    }

    fn started() -> Event {
        Event::TurnStarted {
            turn_id: "t".to_owned(),
        }
    }

    fn announced(id: &str) -> CallAnnounced {
        CallAnnounced {
            id: id.to_owned(),
            name: "local_bash_tool".to_owned(),
            arguments: Value::Null,
        }
    }

    fn call_ended(id: &str) -> EntryBody {
        EntryBody::CallEnded {
            output: FunctionCallOutput::text(id, "nobody knows", true),
            end: CallEnd::Indeterminate,
            reason: None,
            duration_ms: 0,
            meta: None,
        }
    }

    fn turn_ended() -> EntryBody {
        EntryBody::TurnEnded {
            turn_id: "t".to_owned(),
            outcome: TurnOutcome::Interrupted,
            usage: Usage::default(),
            stop_reason: None,
        }
    }

    fn told(events: Vec<Event>, closing: &[EntryBody]) -> Vec<Event> {
        UnfinishedTurn::of(&shown(events)).closing_events(closing)
    }

    #[test]
    fn what_was_shown_as_open_is_told_to_be_over() {
        let over = CallOutput {
            call_id: "over".to_owned(),
            name: "local_bash_tool".to_owned(),
            backend: None,
            output: String::new(),
            is_error: false,
            duration_ms: 1,
        };
        let question = QuestionAsked {
            id: "q".to_owned(),
            plugin: "p".to_owned(),
            call_id: None,
            message: "Which?".to_owned(),
            schema: None,
            url: None,
        };
        let events = vec![
            started(),
            Event::FunctionCall {
                calls: ["over", "ran", "asks"].map(announced).into(),
            },
            Event::FunctionCallOutput(over),
            Event::CallStarted {
                call_id: "ran".to_owned(),
                backend: "local".to_owned(),
                plugin: None,
            },
            Event::Approval {
                call: announced("asks"),
                reason: "a rule".to_owned(),
            },
            Event::Question(question),
        ];
        let closing = [call_ended("ran"), call_ended("asks"), turn_ended()];
        let told = told(events, &closing);
        let kinds: Vec<Value> = told
            .iter()
            .map(|event| serde_json::to_value(event).unwrap()["type"].clone())
            .collect();
        let expected = [
            "approval_over",
            "question_over",
            "function_call_output",
            "function_call_output",
            "error",
            "done",
        ];
        assert_eq!(kinds, expected);
        let Event::FunctionCallOutput(ran) = &told[2] else {
            panic!("{told:?}");
        };
        assert_eq!(
            (&*ran.call_id, ran.backend.as_deref()),
            ("ran", Some("local"))
        );
        assert_eq!(ran.output, "nobody knows");
    }

    #[test]
    fn what_no_event_began_or_an_event_ended_is_not_told() {
        let closing = [call_ended("ran"), turn_ended()];
        assert_eq!(told(Vec::new(), &closing), [], "it is an ancestor's");
        assert_eq!(told(vec![started()], &[call_ended("ran")]), []);
        let done = Event::Done {
            turn_id: "t".to_owned(),
            outcome: "interrupted".to_owned(),
            stop_reason: None,
            text: String::new(),
        };
        assert_eq!(told(vec![started(), done], &closing), []);
    }
}
