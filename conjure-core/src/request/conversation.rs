//! What a model reads of a log: the summary of what is folded, what is asked, and the rest as it is.

use super::message_tokens;
use crate::chat::Message;
use crate::context::{notes, plugin_note};
use crate::log::{Entry, FoldedLog, fold, noted_messages};

/// The most tokens of a question that is repeated behind the summary; a longer one is only in it.
const MAX_REPEATED_TOKENS: u64 = 4_096;

/// The conversation as the model reads it, before it is made fit for a provider.
#[must_use]
pub fn conversation(entries: &[Entry]) -> Vec<Message> {
    conversation_before(entries, u64::MAX)
}

/// The part of the conversation in front of the entry with the number `before_seq`.
pub(super) fn conversation_before(entries: &[Entry], before_seq: u64) -> Vec<Message> {
    let folded = fold(entries);
    let summary = folded
        .summary
        .map(|text| Message::user(notes::summary(text)));
    let asked = repeated_message(&folded).cloned();
    let end = folded.shown.partition_point(|entry| entry.seq < before_seq);
    let mut messages: Vec<Message> = summary.into_iter().chain(asked).collect();
    let shown = folded.shown.get(..end).unwrap_or_default();
    messages.extend(noted_messages(shown, plugin_note));
    messages
}

/// What the person asked in the running turn, where it is folded and short enough to stand behind
/// the summary as it is.
pub(super) fn repeated_message<'a>(folded: &FoldedLog<'a>) -> Option<&'a Message> {
    folded
        .user_message
        .filter(|asked| message_tokens(asked) <= MAX_REPEATED_TOKENS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::{Content, FunctionCall, FunctionCallOutput, Meta, OutputPart, Role};
    use crate::log::{
        CallEnd, EntryBody, NoticeReason, PluginChange, StateFate, StateHandover, StateMove,
        TableChange, messages, test_kit,
    };
    use crate::repair::{RepairTarget, repair};

    const VERSIONS: &str = "[note of the host] From here on other versions of plugins are behind \
                            your tools: notes 0.2.0 → 0.3.0, state to be carried over at its next \
                            call.";
    const CARRIED: &str = "[note of the host] notes 0.2.0 → 0.3.0: state carried over.";

    /// Two entries of each turn.
    fn log(bodies: Vec<EntryBody>) -> Vec<Entry> {
        let mut entries = test_kit::log(bodies);
        for entry in &mut entries {
            entry.turn = entry.seq.div_ceil(2);
        }
        entries
    }

    fn said(message: Message) -> EntryBody {
        EntryBody::Message { message }
    }

    fn upgraded() -> EntryBody {
        EntryBody::TableChanged(TableChange {
            version: 2,
            changed: vec!["notes_execute".to_owned()],
            plugins: vec![PluginChange {
                plugin: "notes".to_owned(),
                from: "0.2.0".to_owned(),
                to: "0.3.0".to_owned(),
                state: StateHandover::Carried,
            }],
            ..TableChange::default()
        })
    }

    fn carried() -> EntryBody {
        EntryBody::Notice {
            text: "notes 0.3.0 has taken over the state of notes 0.2.0.".to_owned(),
            reason: Some(NoticeReason::StateMoved(StateMove {
                plugin: "notes".to_owned(),
                from: "0.2.0".to_owned(),
                to: "0.3.0".to_owned(),
                fate: StateFate::Carried,
            })),
        }
    }

    fn call(id: &str) -> Message {
        let call = Content::FunctionCall(FunctionCall {
            call_id: id.to_owned(),
            name: "notes_execute".to_owned(),
            arguments: json!({}),
            arguments_text: None,
        });
        Message::new(Role::Assistant, vec![call.into()])
    }

    fn ended(id: &str) -> EntryBody {
        EntryBody::CallEnded {
            output: FunctionCallOutput::text(id, "r", false),
            end: CallEnd::Done,
            reason: None,
            duration_ms: 1,
            meta: None,
        }
    }

    fn superseded(message: Message) -> EntryBody {
        said(Message {
            meta: Some(Meta {
                superseded: true,
                ..Meta::default()
            }),
            ..message
        })
    }

    fn texts(messages: &[Message]) -> Vec<(Role, Vec<&str>)> {
        let mut all = Vec::new();
        for message in messages {
            let mut texts = Vec::new();
            for part in &message.content {
                match &part.content {
                    Content::Text { text } => texts.push(text.as_str()),
                    Content::FunctionCallOutput(result) => texts.extend(result_texts(result)),
                    _ => {}
                }
            }
            all.push((message.role, texts));
        }
        all
    }

    fn result_texts(result: &FunctionCallOutput) -> impl Iterator<Item = &str> {
        result.output.iter().filter_map(|part| match part {
            OutputPart::Text { text } => Some(text.as_str()),
            _ => None,
        })
    }

    #[test]
    fn another_version_is_told_behind_what_was_said_and_its_state_in_the_result() {
        let entries = log(vec![
            said(Message::user("q")),
            upgraded(),
            said(call("1")),
            carried(),
            ended("1"),
            said(Message::assistant("a")),
            said(Message::user("next")),
        ]);
        let expected = [
            (Role::User, vec!["q", VERSIONS]),
            (Role::Assistant, vec![]),
            (Role::Tool, vec!["r", CARRIED]),
            (Role::Assistant, vec!["a"]),
            (Role::User, vec!["next"]),
        ];
        assert_eq!(texts(&conversation(&entries)), expected);
        // At each request it is what it is later.
        assert_eq!(texts(&conversation(&entries[..2])), expected[..1]);
        assert_eq!(texts(&conversation(&entries[..5])), expected[..3]);
    }

    #[test]
    fn a_version_that_came_between_two_steps_is_told_in_the_last_result() {
        let entries = log(vec![
            said(Message::user("q")),
            said(call("1")),
            ended("1"),
            upgraded(),
        ]);
        let told = conversation(&entries);
        let expected = (Role::Tool, vec!["r", VERSIONS]);
        assert_eq!(texts(&told).last(), Some(&expected));
    }

    #[test]
    fn nothing_is_put_between_a_reply_and_what_goes_on_with_it() {
        let entries = log(vec![
            said(Message::user("q")),
            said(Message::assistant("a")),
            upgraded(),
            said(Message::assistant("b")),
            said(Message::user("next")),
        ]);
        let expected = [
            (Role::User, vec!["q"]),
            (Role::Assistant, vec!["a"]),
            (Role::Assistant, vec!["b"]),
            (Role::User, vec!["next", VERSIONS]),
        ];
        assert_eq!(texts(&conversation(&entries)), expected);
        assert_eq!(texts(&conversation(&entries[..4])), expected[..3]);
    }

    #[test]
    fn what_no_model_reads_takes_no_note() {
        let entries = log(vec![
            said(Message::user("q")),
            superseded(call("1")),
            ended("1"),
            upgraded(),
        ]);
        let target = RepairTarget::new("anthropic", "m");
        let sent = repair(conversation(&entries), &target);
        let expected = [(Role::User, vec!["q", VERSIONS])];
        assert_eq!(texts(sent.messages()), expected);
    }

    #[test]
    fn a_summary_takes_the_place_of_older_notes_and_of_none_behind_the_cut() {
        let folded = |upto| EntryBody::Compacted {
            upto,
            summary: "They spoke.".to_owned(),
            meta: None,
        };
        let mut bodies = vec![
            said(Message::user("old")),
            upgraded(),
            said(Message::user("new")),
            upgraded(),
            folded(3),
        ];
        let summary = "[summary of the conversation so far]\nThey spoke.";
        let told = conversation(&log(bodies.clone()));
        let expected = [
            (Role::User, vec![summary]),
            (Role::User, vec!["new", VERSIONS]),
        ];
        assert_eq!(texts(&told), expected);
        bodies.pop();
        let hidden = conversation_before(&log(bodies), 3);
        assert_eq!(texts(&hidden), [(Role::User, vec!["old", VERSIONS])]);
    }

    #[test]
    fn other_changes_of_tools_and_other_notices_are_no_message() {
        let entries = log(vec![
            said(Message::user("q")),
            EntryBody::TableChanged(TableChange {
                version: 2,
                added: vec!["notes_read".to_owned()],
                removed: vec!["notes_write".to_owned()],
                ..TableChange::default()
            }),
            said(call("1")),
            EntryBody::notice("notes 0.3.0 has taken over the state of notes 0.2.0."),
            ended("1"),
        ]);
        assert_eq!(conversation(&entries), messages(&entries));
    }
}
