//! After a crash: what must be written so that a thread can go on.

use std::collections::{HashMap, HashSet};

use crate::chat::FunctionCallOutput;
use crate::context::{CallFailure, CallFailureKind, CallRefusal};
use crate::log::{CallEnd, Entry, EntryBody, TurnOutcome, turn_usage};

/// The entries that close what was open when the host ended: each call without a result gets one,
/// and the turn is marked. Nothing when nothing was open; the same for the same log.
///
/// A call that was started is `indeterminate`: nobody knows what it did, and it is never repeated
/// by itself. A call that was not started did not run; its backend is that of the last call of the
/// same tool, if there was one since tools and settings were as they are.
pub fn recover(entries: &[Entry]) -> Vec<EntryBody> {
    let mut open_turn = None;
    let mut calls = Vec::new();
    let mut started = HashMap::new();
    let mut routes = KnownRoutes::default();
    let mut ended = HashSet::new();
    for entry in entries {
        routes.observe(&entry.body);
        match &entry.body {
            EntryBody::TurnStarted { turn_id } => open_turn = Some(turn_id.clone()),
            EntryBody::TurnEnded { .. } => open_turn = None,
            EntryBody::Message { message } => {
                calls.extend(message.calls());
            }
            EntryBody::CallStarted {
                call_id, backend, ..
            } => {
                started.insert(call_id.as_str(), backend.as_str());
            }
            EntryBody::CallEnded { output, .. } => {
                ended.insert(output.call_id.as_str());
            }
            _ => {}
        }
    }
    let mut closing: Vec<EntryBody> = calls
        .into_iter()
        .filter(|call| !ended.contains(call.call_id.as_str()))
        .map(|call| {
            let began = started.get(call.call_id.as_str()).copied();
            let (kind, end) = match began {
                Some(_) => (CallFailureKind::HostEndedDuring, CallEnd::Indeterminate),
                None => (CallFailureKind::HostEndedBefore, CallEnd::Refused),
            };
            let failure = CallFailure {
                tool: &call.name,
                backend: began.or_else(|| routes.backend(&call.name)),
                kind,
            };
            let CallRefusal { text, reason } = failure.into();
            EntryBody::CallEnded {
                output: FunctionCallOutput::text(&call.call_id, text, true),
                end,
                reason,
                duration_ms: 0,
                meta: None,
            }
        })
        .collect();
    if let Some(turn_id) = open_turn {
        closing.push(EntryBody::TurnEnded {
            turn_id,
            outcome: TurnOutcome::Interrupted,
            usage: turn_usage(entries_of_last_turn(entries)),
            stop_reason: None,
        });
    }
    closing
}

/// Backends that run the tools, as far as calls that were started tell.
#[derive(Default)]
struct KnownRoutes<'a> {
    /// The tools of the calls, by their ids.
    tools: HashMap<&'a str, &'a str>,
    /// The backends, by the public names of the tools.
    backends: HashMap<&'a str, &'a str>,
}

impl<'a> KnownRoutes<'a> {
    fn observe(&mut self, body: &'a EntryBody) {
        match body {
            EntryBody::Message { message } => {
                let calls = message.calls();
                self.tools
                    .extend(calls.map(|call| (call.call_id.as_str(), call.name.as_str())));
            }
            EntryBody::CallStarted {
                call_id, backend, ..
            } => {
                if let Some(tool) = self.tools.get(call_id.as_str()) {
                    self.backends.insert(tool, backend);
                }
            }
            EntryBody::TableChanged(change) => {
                for tool in change.changed.iter().chain(&change.removed) {
                    self.backends.remove(tool.as_str());
                }
            }
            EntryBody::SettingsChanged { .. } => self.backends.clear(),
            _ => {}
        }
    }

    fn backend(&self, tool: &str) -> Option<&'a str> {
        self.backends.get(tool).copied()
    }
}

fn entries_of_last_turn(entries: &[Entry]) -> &[Entry] {
    let start = entries
        .iter()
        .rposition(|entry| matches!(entry.body, EntryBody::TurnStarted { .. }))
        .unwrap_or(0);
    entries.get(start..).unwrap_or_default()
}
