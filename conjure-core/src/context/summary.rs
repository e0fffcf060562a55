//! The request for a summary of what is about to be folded.

use crate::chat::Message;
use crate::log::{Entry, fold, messages};
use crate::repair::Target;
use crate::request::ModelRequest;

const INSTRUCTIONS: &str = "You write the summary that replaces the beginning of a conversation. \
The reader is the same assistant, which goes on with the work and sees nothing else of what was \
before. Keep what was asked for and by whom, decisions, facts, names, figures, file handles and \
paths, what was tried and how it ended, and what is still to be done. Leave out pleasantries. \
Write plain text.";

/// The most tokens of a summary.
pub const SUMMARY_TOKENS: u32 = 4096;

/// Room for what asks for the summary, and for messages that only it has.
const ASKING: u64 = 1024;

/// Input tokens from which a conversation is to be compacted before its next request, for a model
/// that takes `window` tokens of input and output together.
///
/// Keeps free what the next reply may be (`max_tokens`), what the summary and its request need, and
/// a tenth of the window for results that come in before tokens are counted again. At least half
/// of the window, however small that is.
#[must_use]
pub fn compact_at(window: u64, max_tokens: u32) -> u64 {
    let summary = u64::from(SUMMARY_TOKENS) + ASKING;
    let kept = u64::from(max_tokens).max(summary) + window / 10;
    window.saturating_sub(kept).max(window / 2)
}

/// Asks for a summary of everything before the entry `upto`, earlier summaries included. The
/// session's own provider and model answer it, and no other.
#[must_use]
pub fn summary_request(entries: &[Entry], upto: u64, provider: &str, model: &str) -> ModelRequest {
    let folded = fold(entries);
    let end = folded.shown.partition_point(|entry| entry.seq < upto);
    let mut told: Vec<Message> = folded
        .summary
        .map(|summary| Message::user(super::notes::summary(summary)))
        .into_iter()
        .collect();
    told.extend(messages(folded.shown.get(..end).unwrap_or_default()));
    told.push(Message::user("Write the summary now."));
    let target = Target::new(provider, model);
    ModelRequest {
        system: vec![INSTRUCTIONS.to_owned()],
        max_tokens: SUMMARY_TOKENS,
        ..ModelRequest::bare(&target, told)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::{Content, FunctionCall, FunctionCallOutput, Role};
    use crate::context::request_tokens;
    use crate::log::{CallEnd, EntryBody, cut_point};
    use crate::wire::{Endpoint, Wire};

    /// A turn that is still going on: a question, and rounds of two calls with their results.
    fn tool_loop(rounds: u64) -> Vec<Entry> {
        let said = |message| EntryBody::Message { message };
        let mut bodies = vec![said(Message::user("Count the words of all files."))];
        for round in 1..=rounds {
            let ids = [format!("a{round}"), format!("b{round}")];
            let calls = ids.clone().map(|call_id| {
                let call = FunctionCall {
                    call_id,
                    name: "look".to_owned(),
                    arguments: json!({"path": "notes.txt"}),
                    arguments_text: None,
                };
                Content::FunctionCall(call).into()
            });
            bodies.push(said(Message::new(Role::Assistant, calls.to_vec())));
            // In the order in which they ended, which is not that of the calls.
            for id in ids.iter().rev() {
                bodies.push(EntryBody::CallEnded {
                    output: FunctionCallOutput::text(id, "some words of it\n".repeat(40), false),
                    end: CallEnd::Done,
                    duration_ms: 1,
                    meta: None,
                });
            }
        }
        (1..)
            .zip(bodies)
            .map(|(seq, body)| Entry {
                seq,
                turn: 1,
                at_ms: 0,
                body,
            })
            .collect()
    }

    fn ids(messages: &[Message]) -> (Vec<&str>, Vec<&str>) {
        let calls = messages.iter().flat_map(Message::calls);
        let outputs = messages.iter().flat_map(|message| &message.content);
        let outputs = outputs.filter_map(|part| match &part.content {
            Content::FunctionCallOutput(output) => Some(output.call_id.as_str()),
            _ => None,
        });
        (
            calls.map(|call| call.call_id.as_str()).collect(),
            outputs.collect(),
        )
    }

    #[test]
    fn inside_a_tool_loop_a_cut_never_parts_a_call_from_its_result() {
        for rounds in 2..6 {
            let entries = tool_loop(rounds);
            // Also while results of the newest round are still to come.
            for end in 8..=entries.len() {
                let entries = &entries[..end];
                let upto = cut_point(entries).unwrap();
                let at = entries.partition_point(|entry| entry.seq < upto);
                let folded = messages(&entries[..at]);
                let (calls, outputs) = ids(&folded);
                assert_eq!(calls, outputs, "folded: {rounds} rounds, {end} entries");
                let shown = messages(&entries[at..]);
                let (calls, outputs) = ids(&shown);
                assert!(outputs.iter().all(|id| calls.contains(id)));
                assert_eq!(calls.len(), 2, "the newest round is shown");
            }
        }
    }

    #[test]
    fn where_a_compaction_is_due_its_own_request_still_fits() {
        for window in [16_000, 32_000, 200_000] {
            let at = compact_at(window, 4_096);
            let mut rounds = 2;
            let provider = "openai";
            let tokens = |request: &ModelRequest| {
                let endpoint = Endpoint::new(provider);
                let body = Wire::OpenaiResponses.encode(request, &endpoint).body;
                request_tokens(Wire::OpenaiResponses, &body)
            };
            let mut entries = tool_loop(rounds);
            loop {
                let target = Target::new(provider, "m");
                if tokens(&ModelRequest::bare(&target, messages(&entries))) >= at {
                    break;
                }
                rounds += rounds / 8 + 1;
                entries = tool_loop(rounds);
            }
            let upto = cut_point(&entries).unwrap();
            let request = summary_request(&entries, upto, provider, "m");
            let needed = tokens(&request) + u64::from(request.max_tokens);
            assert!(needed <= window, "{needed} of {window}, due at {at}");
        }
    }

    #[test]
    fn the_room_is_that_of_the_reply_or_of_the_summary_whichever_is_larger() {
        assert_eq!(compact_at(200_000, 16_384), 200_000 - 16_384 - 20_000);
        assert_eq!(compact_at(200_000, 1), 200_000 - 4_096 - 1_024 - 20_000);
        assert_eq!(compact_at(8_000, 64_000), 4_000);
        assert_eq!(compact_at(0, 1), 0);
    }
}
