//! After a crash: what must be written so that a thread can go on.

use std::collections::HashSet;

use super::{CallEnd, Entry, EntryBody, Outcome};
use crate::chat::FunctionCallOutput;

/// The entries that close what was open when the host ended: each call without a result gets one,
/// and the turn is marked. Nothing when nothing was open; the same for the same log.
///
/// A call that was started is `indeterminate`: nobody knows what it did, and it is never repeated
/// by itself. A call that was not started did not run.
pub fn recover(entries: &[Entry]) -> Vec<EntryBody> {
    let mut open_turn = None;
    let mut calls = Vec::new();
    let mut started = HashSet::new();
    let mut ended = HashSet::new();
    for entry in entries {
        match &entry.body {
            EntryBody::TurnStarted { turn_id } => open_turn = Some(turn_id.clone()),
            EntryBody::TurnEnded { .. } => open_turn = None,
            EntryBody::Message { message } => {
                calls.extend(message.calls().map(|call| call.call_id.as_str()));
            }
            EntryBody::CallStarted { call_id, .. } => {
                started.insert(call_id.as_str());
            }
            EntryBody::CallEnded { output, .. } => {
                ended.insert(output.call_id.as_str());
            }
            _ => {}
        }
    }
    let mut closing: Vec<EntryBody> = calls
        .into_iter()
        .filter(|id| !ended.contains(id))
        .map(|id| {
            let (text, end) = if started.contains(id) {
                (
                    "The host ended while this call ran. Whether it took effect is not known; it \
                     was not repeated. Check before you call it again.",
                    CallEnd::Indeterminate,
                )
            } else {
                (
                    "The host ended before this call was begun, as far as its log tells. It was not \
                     repeated.",
                    CallEnd::Refused,
                )
            };
            EntryBody::CallEnded {
                output: FunctionCallOutput::text(id, text, true),
                end,
                duration_ms: 0,
                meta: None,
            }
        })
        .collect();
    if let Some(turn_id) = open_turn {
        closing.push(EntryBody::TurnEnded {
            turn_id,
            outcome: Outcome::Interrupted,
            usage: super::turn_usage(entries_of_last_turn(entries)),
            stop_reason: None,
        });
    }
    closing
}

fn entries_of_last_turn(entries: &[Entry]) -> &[Entry] {
    let start = entries
        .iter()
        .rposition(|entry| matches!(entry.body, EntryBody::TurnStarted { .. }))
        .unwrap_or(0);
    entries.get(start..).unwrap_or_default()
}
