//! The request for a summary of what is about to be folded.

use super::conversation::conversation_before;
use super::{ModelRequest, ToolChoice};
use super::{Room, fit, message_tokens, text_tokens, tool_tokens};
use crate::chat::Message;
use crate::context::ASK_FOR_SUMMARY;
use crate::log::{Entry, fold};
use crate::repair::{RepairTarget, repair};
use crate::wire_name::Wire;

/// Asks for a summary of everything before the entry `upto`, earlier summaries included. The
/// session's own provider and model answer it, and no other.
///
/// `like` is the request that the session would send next: with the same instructions and tools in
/// front, what a prompt cache holds of the conversation is read out of it. Where the window is
/// known the request fits into it: what is too long is shortened, the longest first, and of what is
/// still too much the oldest is left out.
#[must_use]
pub fn summary_request(
    entries: &[Entry],
    upto: u64,
    target: &RepairTarget,
    room: &Room,
    like: ModelRequest,
) -> ModelRequest {
    let mut told = conversation_before(entries, upto);
    if let Some(most) = room.summary_input() {
        // An earlier summary is the gist of more than its length says: it stays whole.
        let earlier = usize::from(fold(entries).summary.is_some());
        let mut later = told.split_off(earlier);
        let kept: u64 = told.iter().map(message_tokens).sum();
        let front = front_tokens(&like) + kept;
        fit::shrink_to(&mut later, most.saturating_sub(front));
        told.append(&mut later);
    }
    told.push(Message::user(ASK_FOR_SUMMARY));
    ModelRequest {
        messages: repair(told, target),
        tool_choice: ToolChoice::Auto,
        max_tokens: room.summary_tokens() + like.thinking_tokens.unwrap_or(0),
        response_format: None,
        stop_sequences: Vec::new(),
        ..like
    }
}

/// Tokens of what stands in front of the conversation, about.
fn front_tokens(request: &ModelRequest) -> u64 {
    let system = request.system.iter();
    let system = system.map(|text| text_tokens(Wire::OpenaiChat, text));
    system.sum::<u64>() + tool_tokens(&request.tools)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::{Content, FunctionCall, FunctionCallOutput, Role};
    use crate::log::{CallEnd, EntryBody, messages, test_kit};
    use crate::request::{
        conversation, cut_point, message_tokens, next_input_tokens, request_tokens,
    };
    use crate::wire::Endpoint;

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
                    reason: None,
                    duration_ms: 1,
                    meta: None,
                });
            }
        }
        test_kit::log(bodies)
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
        let room = Room::of(4_000, 1_000);
        for rounds in 8..12 {
            let entries = tool_loop(rounds);
            // Also while results of the newest round are still to come.
            for end in 20..=entries.len() {
                let entries = &entries[..end];
                let upto = cut_point(entries, &room).unwrap();
                let at = entries.partition_point(|entry| entry.seq < upto);
                let folded = messages(&entries[..at]);
                let (calls, outputs) = ids(&folded);
                assert_eq!(calls, outputs, "folded: {rounds} rounds, {end} entries");
                let shown = messages(&entries[at..]);
                let (calls, outputs) = ids(&shown);
                assert!(outputs.iter().all(|id| calls.contains(id)));
                assert!(calls.len() >= 2, "the newest round is shown");
            }
        }
    }

    #[test]
    fn where_a_compaction_is_due_its_own_request_still_fits() {
        for window in [4_096, 16_000, 32_000, 200_000] {
            let room = Room::of(window, 4_096);
            let at = room.compact_at.unwrap();
            let mut rounds = 2;
            let target = RepairTarget::new("openai", "m");
            let tokens = |request: &ModelRequest| {
                let endpoint = Endpoint::new("openai");
                let body = Wire::OpenaiResponses.encode(request, &endpoint).body;
                request_tokens(Wire::OpenaiResponses, &body)
            };
            let mut entries = tool_loop(rounds);
            while next_input_tokens(&entries) < at {
                rounds += rounds / 8 + 1;
                entries = tool_loop(rounds);
            }
            let upto = cut_point(&entries, &room).unwrap();
            let like = ModelRequest::empty(&target);
            let request = summary_request(&entries, upto, &target, &room, like);
            let needed = tokens(&request) + u64::from(request.max_tokens);
            assert!(needed <= window, "{needed} of {window}, due at {at}");
        }
    }

    #[test]
    fn a_result_that_is_longer_than_the_window_is_shortened_for_the_summary() {
        let mut entries = tool_loop(3);
        for entry in &mut entries {
            if let EntryBody::CallEnded { output, .. } = &mut entry.body {
                *output = FunctionCallOutput::text(&output.call_id, "word ".repeat(90_000), false);
            }
        }
        let room = Room::of(32_000, 4_096);
        let upto = cut_point(&entries, &room).unwrap();
        let target = RepairTarget::new("openai", "m");
        let request = summary_request(&entries, upto, &target, &room, ModelRequest::empty(&target));
        let tokens: u64 = request.messages.messages().iter().map(message_tokens).sum();
        assert!(tokens < 28_000, "{tokens}");
        let last = request.messages.messages().last().unwrap();
        assert!(last.text().ends_with("the work itself."));
    }

    #[test]
    fn an_earlier_summary_stays_whole_however_little_room_there_is() {
        let mut entries = tool_loop(400);
        let earlier = format!("{} end", "fact ".repeat(1_000));
        entries.push(Entry {
            seq: entries.len() as u64 + 1,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Compacted {
                upto: 2,
                summary: earlier.clone(),
                meta: None,
            },
        });
        let room = Room::of(8_000, 1_024);
        let target = RepairTarget::new("openai", "m");
        let like = ModelRequest::empty(&target);
        let request = summary_request(&entries, 1_100, &target, &room, like);
        let told = request.messages.messages();
        assert!(told[0].text().contains(&earlier));
        let tokens: u64 = told.iter().map(message_tokens).sum();
        assert!(tokens < 7_000, "{tokens}");
    }

    #[test]
    fn what_a_person_asked_for_in_the_running_turn_stays_word_for_word() {
        let mut entries = tool_loop(20);
        let room = Room::of(4_096, 512);
        let upto = cut_point(&entries, &room).unwrap();
        entries.push(Entry {
            seq: entries.len() as u64 + 1,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Compacted {
                upto,
                summary: "Half is counted.".to_owned(),
                meta: None,
            },
        });
        let told = conversation(&entries);
        assert!(told[0].text().ends_with("Half is counted."));
        assert_eq!(told[1].text(), "Count the words of all files.");
        assert_eq!(told[2].role, Role::Assistant);
        // And a summary of it all begins with both.
        let target = RepairTarget::new("openai", "m");
        let again = summary_request(
            &entries,
            upto + 3,
            &target,
            &room,
            ModelRequest::empty(&target),
        );
        let first = again.messages.messages()[0].text();
        assert!(first.contains("Half is counted.") && first.contains("Count the words"));
    }
}
