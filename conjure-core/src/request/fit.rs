//! Makes a conversation shorter so that it fits into a window, for a request whose answer needs the
//! gist and not every word.

use serde_json::Value;

use super::message_tokens;
use crate::chat::{Content, Message, OutputPart, Part};
use crate::context::notes;

/// Characters that one text may have: each limit is tried when the one before was not enough.
const LIMITS: [usize; 7] = [32_000, 16_000, 8_000, 4_000, 2_000, 1_000, 500];

/// Shortens what is longest until the whole has at most so many tokens; then leaves out what is
/// oldest. The newest message stays.
pub(super) fn shrink_to(messages: &mut Vec<Message>, most: u64) {
    for limit in LIMITS {
        if tokens(messages) <= most {
            return;
        }
        let parts = messages.iter_mut().flat_map(|message| &mut message.content);
        parts.for_each(|part| shorten(part, limit));
    }
    let mut left = tokens(messages);
    let mut out = 0;
    for message in messages.iter().take(messages.len().saturating_sub(1)) {
        if left <= most {
            break;
        }
        left -= message_tokens(message);
        out += 1;
    }
    if out > 0 {
        let missing = Message::user(notes::BEGINNING_MISSING);
        messages.splice(..out, [missing]);
    }
}

fn tokens(messages: &[Message]) -> u64 {
    messages.iter().map(message_tokens).sum()
}

/// What is shortened is no more what its maker signed.
fn shorten(part: &mut Part, most: usize) {
    let shorter = match &mut part.content {
        Content::Text { text } => cut(text, most),
        Content::FunctionCall(call) => match &mut call.arguments_text {
            Some(text) => cut(text, most),
            None => cut_strings(&mut call.arguments, most),
        },
        Content::FunctionCallOutput(output) => {
            let texts = output.output.iter_mut().filter_map(|part| match part {
                OutputPart::Text { text } => Some(text),
                _ => None,
            });
            texts
                .filter_map(|text| cut(text, most).then_some(()))
                .count()
                > 0
        }
        _ => false,
    };
    if shorter {
        part.sidecar = None;
    }
}

fn cut_strings(value: &mut Value, most: usize) -> bool {
    match value {
        Value::String(text) => cut(text, most),
        Value::Array(items) => {
            items
                .iter_mut()
                .filter_map(|item| cut_strings(item, most).then_some(()))
                .count()
                > 0
        }
        Value::Object(fields) => {
            fields
                .iter_mut()
                .filter_map(|(_, field)| cut_strings(field, most).then_some(()))
                .count()
                > 0
        }
        _ => false,
    }
}

/// Keeps the beginning and, half as long, the end.
fn cut(text: &mut String, most: usize) -> bool {
    let length = text.chars().count();
    if length <= most {
        return false;
    }
    let tail = most / 3;
    let at = |place: usize| {
        text.char_indices()
            .nth(place)
            .map_or(text.len(), |(at, _)| at)
    };
    let (head, rest) = (at(most - tail), at(length - tail));
    let note = notes::omitted_characters(length - most);
    *text = [
        text.get(..head).unwrap_or_default(),
        &note,
        text.get(rest..).unwrap_or_default(),
    ]
    .concat();
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::{FunctionCall, FunctionCallOutput, Role, Sidecar};

    #[test]
    fn what_fits_is_not_touched() {
        let before = vec![Message::user("word ".repeat(1_000))];
        let mut after = before.clone();
        shrink_to(&mut after, 2_000);
        assert_eq!(after, before);
    }

    #[test]
    fn the_longest_is_shortened_and_what_is_short_stays() {
        let mut messages = vec![
            Message::user("Look at it."),
            Message::new(
                Role::Tool,
                vec![
                    Content::FunctionCallOutput(FunctionCallOutput::text(
                        "1",
                        format!("first {} last", "ß".repeat(50_000)),
                        false,
                    ))
                    .into(),
                ],
            ),
            Message::user("So?"),
        ];
        shrink_to(&mut messages, 20_000);
        assert_eq!(messages[0].text(), "Look at it.");
        let Content::FunctionCallOutput(output) = &messages[1].content[0].content else {
            panic!("{messages:?}");
        };
        let text = output.joined_text();
        assert!(text.starts_with("first ") && text.ends_with(" last"));
        assert!(text.contains("[… 18011 characters are left out …]"));
    }

    #[test]
    fn arguments_stay_json_and_lose_their_signature_only_when_they_are_cut() {
        let call = |text: String| {
            let call = FunctionCall {
                call_id: "1".to_owned(),
                name: "create_file".to_owned(),
                arguments: json!({"path": "a", "lines": [text]}),
                arguments_text: None,
            };
            let sidecar = Sidecar {
                provider: "gemini".to_owned(),
                model_family: "g".to_owned(),
                data: json!("signed"),
            };
            Part {
                content: Content::FunctionCall(call),
                sidecar: Some(sidecar),
            }
        };
        let (long, short) = (call("word ".repeat(9_000)), call("word".to_owned()));
        let mut messages = vec![Message::new(Role::Assistant, vec![long, short.clone()])];
        shrink_to(&mut messages, 2_000);
        assert_eq!(messages[0].content[1], short);
        let Part {
            content: Content::FunctionCall(call),
            sidecar: None,
        } = &messages[0].content[0]
        else {
            panic!("{messages:?}");
        };
        assert_eq!(call.arguments["path"], "a");
        assert!(call.arguments["lines"][0].as_str().unwrap().len() < 9_000);
    }

    #[test]
    fn of_many_small_ones_the_oldest_are_left_out_and_the_newest_never() {
        let mut messages: Vec<Message> = (0..1_000)
            .map(|n| Message::user(format!("message {n}")))
            .collect();
        shrink_to(&mut messages, 1_000);
        assert!(tokens(&messages) <= 1_000 + 20);
        assert_eq!(messages[0].text(), notes::BEGINNING_MISSING);
        assert_eq!(messages.last().unwrap().text(), "message 999");
        shrink_to(&mut messages, 0);
        assert_eq!(messages.len(), 2);
    }
}
