//! How much of a reply a session takes. What is longer is cut, so that the thread can hold it and a
//! model can be sent it again; how many bytes a body may have is another limit.

use conjure_core::chat::{Content, Part, Response, Stop, StopReason, StreamEvent};
use serde_json::{Value, json};

/// The most bytes of one reply as it is written down: thoughts, answer, calls with their ids and
/// arguments, and what providers keep beside them. An eighth of what the store takes at once: calls
/// are written up to three times, in the reply, where they are announced and where they wait for a
/// person. It is more than any model says in a reply.
pub(crate) const MAX_REPLY_BYTES: usize = 4 * 1024 * 1024;

/// The most parts of one reply.
const MAX_PARTS: usize = 4_096;

/// The most bytes of a call's id. Gateways put signatures into ids, which have some kilobytes.
const MAX_ID_BYTES: usize = 64 * 1024;

/// The most bytes of a tool's name, and of the word for why a reply stopped.
const MAX_NAME_BYTES: usize = 1_024;

/// What a value counts beside its text, in bytes.
const VALUE_OVERHEAD: usize = 8;

/// Bytes that a reply may still take while it streams.
#[derive(Debug)]
pub(super) struct ReplyBudget(usize);

impl Default for ReplyBudget {
    fn default() -> Self {
        Self(MAX_REPLY_BYTES)
    }
}

impl ReplyBudget {
    /// Whether the room is used up, so that nothing more is taken.
    pub(super) fn is_exhausted(&self) -> bool {
        self.0 == 0
    }

    /// As much of a piece as there is room for; nothing where there is none.
    pub(super) fn take(&mut self, event: StreamEvent) -> Option<StreamEvent> {
        match event {
            StreamEvent::Content { mut delta } => {
                let was_whole = self.cut(&mut delta);
                (was_whole || !delta.is_empty()).then_some(StreamEvent::Content { delta })
            }
            StreamEvent::Thinking { mut delta } => {
                let was_whole = self.cut(&mut delta);
                (was_whole || !delta.is_empty()).then_some(StreamEvent::Thinking { delta })
            }
            StreamEvent::CallStarted { call_id, name } => {
                let fits = is_call(&call_id, &name) && self.fits(call_size(&call_id, &name));
                fits.then_some(StreamEvent::CallStarted { call_id, name })
            }
            StreamEvent::Call { call_id } => {
                let fits = is_call(&call_id, "") && self.fits(0);
                fits.then_some(StreamEvent::Call { call_id })
            }
            StreamEvent::ServerItem { item } => {
                let fits = self.fits(json_size(&item));
                fits.then_some(StreamEvent::ServerItem { item })
            }
            StreamEvent::Usage(usage) => Some(StreamEvent::Usage(usage)),
        }
    }

    /// Takes something that stays whole or not at all; what does not fit ends the room.
    fn fits(&mut self, size: usize) -> bool {
        let fits = size <= self.0;
        self.0 = if fits { self.0 - size } else { 0 };
        fits
    }

    /// Cuts a text to the room that there is; whether all of it stays.
    fn cut(&mut self, text: &mut String) -> bool {
        let mut left = self.0;
        let end = text
            .bytes()
            .position(|byte| match left.checked_sub(escaped_byte_length(byte)) {
                Some(rest) => {
                    left = rest;
                    false
                }
                None => true,
            });
        let Some(end) = end else {
            self.0 = left;
            return true;
        };
        clip(text, end);
        self.0 = 0;
        false
    }
}

/// Cuts a reply to what is taken; whether there was more of it. What a signature belongs to and is
/// no longer whole loses the signature, and calls without their whole arguments have none.
pub(super) fn cut(response: &mut Response) -> bool {
    let mut room = ReplyBudget::default();
    let mut is_cut = response.parts.len() > MAX_PARTS;
    response.parts.truncate(MAX_PARTS);
    response.parts.retain_mut(|part| {
        let is_whole = cut_part(&mut room, part);
        is_cut |= !is_whole;
        is_whole || has_text(&part.content)
    });
    let fields = response.fields.iter();
    let fields = fields
        .map(|(name, value)| name.len() + json_size(value))
        .sum();
    if !room.fits(fields) {
        response.fields.clear();
        is_cut = true;
    }
    if let Some(stop) = &mut response.stop {
        clip(&mut stop.raw, MAX_NAME_BYTES);
        if let Some(sequence) = &mut stop.sequence {
            clip(sequence, MAX_NAME_BYTES);
        }
    }
    is_cut
}

/// Says of a reply that it is cut: its calls never run.
pub(super) fn mark_cut(response: &mut Response) {
    response.stop = Some(Stop {
        reason: StopReason::MaxTokens,
        raw: "reply_too_long".to_owned(),
        sequence: None,
    });
    response.complete = true;
}

/// Whether all of a part stays.
fn cut_part(room: &mut ReplyBudget, part: &mut Part) -> bool {
    let is_whole = match &mut part.content {
        Content::Text { text } | Content::Reasoning { text } => room.cut(text),
        Content::FunctionCall(call) => {
            let fits = is_call(&call.call_id, &call.name);
            if !fits || !room.fits(call_size(&call.call_id, &call.name)) {
                // Without its id and name it is no call.
                room.0 = 0;
                call.name.clear();
                return false;
            }
            let text = call.arguments_text.as_deref().map_or(0, escaped_length);
            let fits = room.fits(json_size(&call.arguments) + text);
            if !fits {
                call.arguments = json!({});
                call.arguments_text = None;
            }
            fits
        }
        Content::ServerItem { item, .. } => room.fits(json_size(item)),
        Content::FunctionCallOutput(_) | Content::Image { .. } | Content::File { .. } => true,
    };
    let beside = part.sidecar.as_ref().map_or(0, |sidecar| {
        json_size(&sidecar.data) + sidecar.provider.len() + sidecar.model_family.len()
    });
    let is_whole = is_whole && room.fits(beside);
    if !is_whole {
        part.sidecar = None;
    }
    is_whole
}

/// Whether these can be the id and the name of a call.
fn is_call(call_id: &str, name: &str) -> bool {
    call_id.len() <= MAX_ID_BYTES && name.len() <= MAX_NAME_BYTES
}

/// Cuts a text to so many bytes.
pub(super) fn clip(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
}

/// Whether something of a part that was cut is worth keeping.
fn has_text(content: &Content) -> bool {
    match content {
        Content::Text { text } | Content::Reasoning { text } => !text.is_empty(),
        Content::FunctionCall(call) => !call.name.is_empty(),
        _ => false,
    }
}

/// The bytes of a call's id and name.
fn call_size(call_id: &str, name: &str) -> usize {
    escaped_length(call_id) + escaped_length(name)
}

/// The bytes of a JSON value as it is written down, about.
pub fn json_size(value: &Value) -> usize {
    VALUE_OVERHEAD
        + match value {
            Value::String(text) => escaped_length(text),
            Value::Array(items) => items.iter().map(json_size).sum(),
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| escaped_length(name) + json_size(value))
                .sum(),
            _ => 0,
        }
}

/// The bytes of a text in JSON, without its quotes.
fn escaped_length(text: &str) -> usize {
    text.bytes().map(escaped_byte_length).sum()
}

/// How many bytes stand for this one in JSON.
fn escaped_byte_length(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{FunctionCall, Sidecar};

    use super::*;

    fn text(text: &str) -> Part {
        Part {
            content: Content::Text {
                text: text.to_owned(),
            },
            sidecar: None,
        }
    }

    #[test]
    fn what_is_longer_than_a_session_takes_is_cut() {
        let mut whole = Response {
            parts: vec![text("short")],
            ..Response::default()
        };
        assert!(!cut(&mut whole));
        let call = Content::FunctionCall(FunctionCall {
            call_id: "c".to_owned(),
            name: "write".to_owned(),
            arguments: json!({ "text": "x".repeat(MAX_REPLY_BYTES) }),
            arguments_text: None,
        });
        let call = Part {
            content: call,
            sidecar: None,
        };
        let mut long = Response {
            parts: vec![
                text(&"ü".repeat(MAX_REPLY_BYTES / 2 + 7)),
                call,
                text("behind"),
            ],
            ..Response::default()
        };
        assert!(cut(&mut long));
        let kept: Vec<usize> = long
            .parts
            .iter()
            .map(|part| match &part.content {
                Content::Text { text } => text.len(),
                Content::FunctionCall(call) => json_size(&call.arguments),
                _ => usize::MAX,
            })
            .collect();
        assert_eq!(kept, [MAX_REPLY_BYTES]);
    }

    #[test]
    fn whatever_is_large_in_a_reply_is_cut() {
        let large = || "x".repeat(MAX_REPLY_BYTES);
        let call = |call_id: String, name: String, arguments: Value| {
            Part::from(Content::FunctionCall(FunctionCall {
                call_id,
                name,
                arguments,
                arguments_text: None,
            }))
        };
        let beside = |data: Value| Part {
            sidecar: Some(Sidecar {
                provider: "p".to_owned(),
                model_family: "m".to_owned(),
                data,
            }),
            ..text("kept")
        };
        let many = vec![call("c".to_owned(), "n".to_owned(), json!({})); MAX_PARTS + 1];
        for (parts, kept) in [
            (vec![call(large(), "n".to_owned(), json!({})), text("x")], 0),
            (vec![call("c".to_owned(), large(), json!({})), text("x")], 0),
            (
                vec![call("c".to_owned(), "n".to_owned(), json!({"a": large()}))],
                1,
            ),
            (vec![beside(json!({"signature": large()})), text("x")], 1),
            (
                vec![
                    beside(vec![0; MAX_REPLY_BYTES / VALUE_OVERHEAD].into()),
                    text("x"),
                ],
                1,
            ),
            (many, MAX_PARTS),
        ] {
            let mut reply = Response {
                parts,
                ..Response::default()
            };
            assert!(cut(&mut reply));
            assert_eq!(reply.parts.len(), kept);
            assert!(serde_json::to_string(&reply).unwrap().len() < 2 * MAX_REPLY_BYTES);
        }
    }

    #[test]
    fn what_is_longer_when_it_is_written_counts_so() {
        let bells = "\u{7}".repeat(MAX_REPLY_BYTES / 6 + 1);
        let call = Part::from(Content::FunctionCall(FunctionCall {
            call_id: "c".to_owned(),
            name: "write".to_owned(),
            arguments: json!({ "text": bells }),
            arguments_text: None,
        }));
        for part in [call, text(&bells)] {
            let mut reply = Response {
                parts: vec![part],
                ..Response::default()
            };
            assert!(cut(&mut reply));
            assert!(serde_json::to_string(&reply).unwrap().len() < 2 * MAX_REPLY_BYTES);
        }
        for (said, bytes) in [("a\"ü\n", 7), ("\u{7}\u{8}\\", 10)] {
            let json = serde_json::to_string(said).unwrap();
            assert_eq!((escaped_length(said), json.len()), (bytes, bytes + 2));
        }
    }

    #[test]
    fn pieces_are_shown_as_far_as_there_is_room() {
        let mut room = ReplyBudget::default();
        let piece = |length| StreamEvent::Content {
            delta: "x".repeat(length),
        };
        assert_eq!(
            room.take(piece(MAX_REPLY_BYTES - 2)),
            Some(piece(MAX_REPLY_BYTES - 2))
        );
        assert!(!room.is_exhausted());
        assert_eq!(room.take(piece(9)), Some(piece(2)));
        assert!(room.is_exhausted());
        assert_eq!(room.take(piece(1)), None);
    }
}
