//! How much of a reply a session takes. What is longer is cut, so that the thread can hold it and a
//! model can be sent it again; how many bytes a body may have is another limit.

use conjure_core::chat::{Content, Part, Response, Stop, StopReason, StreamEvent};
use serde_json::{Value, json};

/// The most bytes of text of one reply: thoughts, answer and arguments together. An eighth of what
/// the store takes at once, since a text may be written with six times its bytes. It is more than
/// any model says in a reply.
pub(crate) const MOST: usize = 4 * 1024 * 1024;

/// What is left of it while a reply streams.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST)
    }
}

impl Room {
    /// Whether nothing more is taken.
    pub(super) fn is_used_up(&self) -> bool {
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
            other => Some(other),
        }
    }

    /// Cuts a text to the room that there is; whether all of it stays.
    fn cut(&mut self, text: &mut String) -> bool {
        if text.len() <= self.0 {
            self.0 -= text.len();
            return true;
        }
        text.truncate(text.floor_char_boundary(self.0));
        self.0 = 0;
        false
    }
}

/// Cuts a reply to what is taken; whether there was more of it. What a signature belongs to and is
/// no longer whole loses the signature, and calls without their whole arguments have none.
pub(super) fn cut(response: &mut Response) -> bool {
    let mut room = Room::default();
    let mut is_cut = false;
    response.parts.retain_mut(|part| {
        let is_whole = cut_part(&mut room, part);
        is_cut |= !is_whole;
        is_whole || has_text(&part.content)
    });
    is_cut
}

/// Says of a reply that it is cut: its calls never run.
pub(super) fn end(response: &mut Response) {
    response.stop = Some(Stop {
        reason: StopReason::MaxTokens,
        raw: "reply_too_long".to_owned(),
        sequence: None,
    });
    response.complete = true;
}

/// Whether all of a part stays.
fn cut_part(room: &mut Room, part: &mut Part) -> bool {
    let is_whole = match &mut part.content {
        Content::Text { text } | Content::Reasoning { text } => room.cut(text),
        Content::FunctionCall(call) => {
            let size = size(&call.arguments) + call.arguments_text.as_ref().map_or(0, String::len);
            let fits = size <= room.0;
            if fits {
                room.0 -= size;
            } else {
                room.0 = 0;
                call.arguments = json!({});
                call.arguments_text = None;
            }
            fits
        }
        Content::ServerItem { item, .. } => {
            let size = size(item);
            let fits = size <= room.0;
            room.0 = if fits { room.0 - size } else { 0 };
            fits
        }
        Content::FunctionCallOutput(_) | Content::Image { .. } | Content::File { .. } => true,
    };
    if !is_whole {
        part.sidecar = None;
    }
    is_whole
}

/// Whether something of a part that was cut is worth keeping.
fn has_text(content: &Content) -> bool {
    match content {
        Content::Text { text } | Content::Reasoning { text } => !text.is_empty(),
        Content::FunctionCall(_) => true,
        _ => false,
    }
}

/// The bytes of the texts in a value, about.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum::<usize>() + items.len(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| name.len() + size(value) + 1)
            .sum(),
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::FunctionCall;

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
            arguments: json!({ "text": "x".repeat(MOST) }),
            arguments_text: None,
        });
        let call = Part {
            content: call,
            sidecar: None,
        };
        let mut long = Response {
            parts: vec![text(&"ü".repeat(MOST / 2 + 7)), call, text("behind")],
            ..Response::default()
        };
        assert!(cut(&mut long));
        let kept: Vec<usize> = long
            .parts
            .iter()
            .map(|part| match &part.content {
                Content::Text { text } => text.len(),
                Content::FunctionCall(call) => size(&call.arguments),
                _ => usize::MAX,
            })
            .collect();
        assert_eq!(kept, [MOST, 0]);
    }

    #[test]
    fn pieces_are_shown_as_far_as_there_is_room() {
        let mut room = Room::default();
        let piece = |length| StreamEvent::Content {
            delta: "x".repeat(length),
        };
        assert_eq!(room.take(piece(MOST - 2)), Some(piece(MOST - 2)));
        assert!(!room.is_used_up());
        assert_eq!(room.take(piece(9)), Some(piece(2)));
        assert!(room.is_used_up());
        assert_eq!(room.take(piece(1)), None);
    }
}
