//! What becomes of a reply: kept, acted on, continued, or begun again.

use std::collections::HashMap;

use super::{Judge, Machine, ModelFailure, announcement, limit};
use crate::chat::{
    Content, ErrorEvent, Event, FunctionCall, Message, Meta, Part, Response, Role, StopReason,
    Usage,
};
use crate::context::CallFailureKind;
use crate::log::{EntryBody, Spending, TurnOutcome};
use crate::turn::HostAction;

impl Machine {
    pub(super) fn accept_reply(
        &mut self,
        mut response: Response,
        mut meta: Meta,
        restart: bool,
        judge: &dyn Judge,
    ) {
        self.unique_call_ids(&mut response);
        meta.stop_reason = response.stop.as_ref().map(|stop| stop.raw.clone());
        meta.superseded = restart;
        let reason = response
            .stop
            .as_ref()
            .map_or(StopReason::Other, |stop| stop.reason);
        let answer = reply_text(&response);
        let calls = self.record_reply(response, meta);
        if self.is_ending() {
            self.refuse_all(&calls, CallFailureKind::TurnEnded, judge);
            self.end_turn();
        } else if restart {
            self.refuse_all(&calls, CallFailureKind::SettingsChanged, judge);
            self.continue_turn();
        } else if !calls.is_empty() && !reason.calls_may_run() {
            self.refuse_all(&calls, CallFailureKind::ReplyCutShort, judge);
            self.finish(TurnOutcome::CutShort);
        } else if !calls.is_empty() {
            self.begin_step(calls, judge);
        } else {
            match reason {
                StopReason::Pause => self.continue_paused(),
                StopReason::MaxTokens | StopReason::ContextWindow | StopReason::Refusal => {
                    self.finish(TurnOutcome::CutShort);
                }
                _ => self.finish_answer(&answer, judge),
            }
        }
    }

    /// Writes what the model said, announces its calls and gives them back. Of a reply that says
    /// nothing it writes what it cost.
    pub(super) fn record_reply(&mut self, response: Response, mut meta: Meta) -> Vec<FunctionCall> {
        meta.usage = response.usage;
        let superseded = meta.superseded;
        let by = (meta.provider.clone(), meta.model.clone());
        let server_items: Vec<_> = response.server_items().cloned().collect();
        let Response {
            parts,
            fields,
            usage,
            ..
        } = response;
        let message = Message {
            role: Role::Assistant,
            content: parts,
            meta: Some(meta),
        };
        let calls: Vec<FunctionCall> = message.calls().cloned().collect();
        if let Some(turn) = &mut self.turn {
            turn.usage += usage;
            if !message.content.is_empty() {
                self.summaries.record_reply(&usage, self.next_input);
            }
            // Also of a reply that has nothing else to say.
            self.next_input = self.next_input.max(usage.prompt_tokens());
            turn.stop_reason = message
                .meta
                .as_ref()
                .and_then(|meta| meta.stop_reason.clone());
            let text = message.text();
            if !text.is_empty() && !superseded {
                turn.text = text;
            }
        }
        if !message.content.is_empty() {
            self.write(EntryBody::Message { message });
        } else if usage != Usage::default()
            && let Some(meta) = message.meta
        {
            self.write(EntryBody::Spent {
                on: Spending::Reply,
                meta,
            });
        }
        if let Some(turn) = &self.turn {
            let usage = turn.usage;
            self.publish(Event::Usage(usage.into()));
        }
        if !server_items.is_empty() || !fields.is_empty() {
            self.unobserved += 1;
            self.actions.push(HostAction::Observe {
                provider: by.0,
                model: by.1,
                server_items,
                fields,
            });
        }
        if !calls.is_empty() {
            self.publish(Event::FunctionCall {
                calls: calls.iter().map(announcement).collect(),
            });
        }
        calls
    }

    /// The reply did not come to its end: what came of it is kept.
    pub(super) fn fail_reply(
        &mut self,
        failure: ModelFailure,
        partial: Option<(Response, Meta)>,
        restart: bool,
        judge: &dyn Judge,
    ) {
        let nothing_came = partial.is_none();
        if let Some((mut response, mut meta)) = partial {
            self.unique_call_ids(&mut response);
            meta.partial = true;
            meta.superseded = restart;
            let calls = self.record_reply(response, meta);
            self.refuse_all(&calls, CallFailureKind::ReplyBrokeOff, judge);
        }
        if self.is_ending() {
            self.end_turn();
        } else if restart {
            self.continue_turn();
        } else if !(nothing_came && self.compact_after_refusal(&failure)) {
            self.publish(Event::Error(ErrorEvent {
                error: failure.error.clone(),
                kind: failure.kind.clone(),
            }));
            self.finish(TurnOutcome::Failed {
                error: failure.error,
                kind: failure.kind,
            });
        }
    }

    pub(super) fn continue_paused(&mut self) {
        let most = self.settings.max_pauses;
        let Some(turn) = &mut self.turn else { return };
        turn.pauses += 1;
        if turn.pauses > most {
            self.finish(limit("max_pauses", most.into()));
        } else if let Some(outcome) = self.exceeded_token_budget() {
            self.finish(outcome);
        } else if let Some(turn) = &mut self.turn {
            // A continuation is the same iteration (pauses have a limit of their own), and the
            // provider wants the same tools and the same messages: no new table, no compaction.
            turn.rounds = turn.rounds.saturating_sub(1);
            self.ask();
        }
    }

    /// A provider may send an id twice, or none; a call's id is unique in its thread.
    pub(super) fn unique_call_ids(&mut self, response: &mut Response) {
        // Where to go on counting: a reply may have one id thousands of times.
        let mut next: HashMap<String, u64> = HashMap::new();
        for part in &mut response.parts {
            let Content::FunctionCall(call) = &mut part.content else {
                continue;
            };
            if call.call_id.is_empty() || self.call_ids.contains(&call.call_id) {
                let stem = if call.call_id.is_empty() {
                    "call"
                } else {
                    &call.call_id
                };
                let n = next.entry(stem.to_owned()).or_insert(1);
                let mut fresh = format!("{stem}_{n}");
                while self.call_ids.contains(&fresh) {
                    *n += 1;
                    fresh = format!("{stem}_{n}");
                }
                call.call_id = fresh;
            }
            self.call_ids.insert(call.call_id.clone());
        }
    }
}

/// The text of a reply.
fn reply_text(response: &Response) -> String {
    response.parts.iter().filter_map(Part::as_text).collect()
}
