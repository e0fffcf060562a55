//! From bytes that are cut anywhere to the events of a reply: what all wires share.
//!
//! Tells an event stream from one JSON body, bounds both, and hands events to the wire that knows
//! what they mean.

use super::sse::{MAX_EVENT_BYTES, SseDecoder};
use super::truncated_json;
use super::{Decoded, ReplyDecoder, failure};
use crate::chat::StreamEvent;

/// How many of the first bytes are kept.
const HEAD_BYTES: usize = 400;

/// The most parts of one reply: more than any model makes, and a bound for a server that never
/// ends.
pub(super) const MAX_PARTS: usize = 4_096;

/// What is said of a reply with more.
pub(super) const TOO_MANY: &str = "it has more than 4096 parts, and no more are read";

/// What is said of a body in one piece that is larger than what is read.
const TOO_LARGE: &str = "it has more than 8 MiB in one piece, and no more is read";

/// The most bytes of an id or of a model's name. They are kept with every part.
const MAX_NAME_BYTES: usize = 1_024;

/// An id or a model's name, as far as it is kept.
pub(super) fn truncated_name(text: &str) -> &str {
    let end = text.floor_char_boundary(MAX_NAME_BYTES);
    text.get(..end).unwrap_or_default()
}

/// A reply of one wire while it comes in.
pub(super) trait ReplyAssembler: Clone + Send + 'static {
    /// An event of the stream.
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<StreamEvent>);

    /// A whole reply in one piece, or what came of it.
    fn body(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>);

    /// What came is no reply; `found` says what it is instead.
    fn protocol(&mut self, found: &str);

    /// The reply has more than is read, so it is not whole; `found` says of what. What came stays.
    fn too_large(&mut self, found: &str);

    /// Whether an event of this wire came.
    fn has_events(&self) -> bool;

    /// The end of the body.
    fn end(self, out: &mut Vec<StreamEvent>) -> Decoded;
}

/// Decodes a whole body.
pub(super) fn decode_body<R: ReplyAssembler>(mut reply: R, bytes: &[u8]) -> Decoded {
    let mut events = Vec::new();
    reply.body(bytes, &mut events);
    reply.end(&mut events)
}

/// A decoder of one reply.
#[derive(Clone)]
pub(super) struct ReplyStreamDecoder<R> {
    kind: BodyKind,
    sse: SseDecoder,
    /// The reply as far as it came; none once the end was told.
    reply: Option<R>,
    /// The first bytes, to tell a person what came when it was no reply at all.
    head: [u8; HEAD_BYTES],
    /// Number of the bytes in `head` that have come.
    head_length: usize,
}

#[derive(Clone)]
enum BodyKind {
    Unknown,
    Events,
    Json(Vec<u8>),
    /// The beginning of a body that is larger than what is read.
    Truncated(Vec<u8>),
}

impl<R: ReplyAssembler> ReplyStreamDecoder<R> {
    pub(super) fn new(reply: R) -> Self {
        Self {
            kind: BodyKind::Unknown,
            sse: SseDecoder::default(),
            reply: Some(reply),
            head: [0; HEAD_BYTES],
            head_length: 0,
        }
    }
}

impl<R: ReplyAssembler> ReplyDecoder for ReplyStreamDecoder<R> {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>) {
        let Some(reply) = &mut self.reply else {
            return;
        };
        let mut bytes = bytes;
        if matches!(self.kind, BodyKind::Unknown) {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
            let start = bytes.iter().position(|byte| !blank(byte));
            bytes = start
                .and_then(|start| bytes.get(start..))
                .unwrap_or_default();
            match bytes.first() {
                None => return,
                Some(b'{' | b'[') => self.kind = BodyKind::Json(Vec::new()),
                Some(_) => self.kind = BodyKind::Events,
            }
        }
        if let BodyKind::Json(body) = &mut self.kind {
            let room = MAX_EVENT_BYTES - body.len().min(MAX_EVENT_BYTES);
            body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            if bytes.len() > room {
                self.kind = BodyKind::Truncated(std::mem::take(body));
            }
            return;
        }
        if let BodyKind::Truncated(_) = &self.kind {
            return;
        }
        let room = self.head.get_mut(self.head_length..).unwrap_or_default();
        let kept = room.len().min(bytes.len());
        if let (Some(room), Some(first)) = (room.get_mut(..kept), bytes.get(..kept)) {
            room.copy_from_slice(first);
            self.head_length += kept;
        }
        let outcome = self
            .sse
            .for_each(bytes, |name, data| reply.event(name, data, out));
        let Err(error) = outcome else { return };
        let begun = self.sse.take_oversized();
        if begun.is_none() && !reply.has_events() {
            reply.protocol(&error.to_string());
            return;
        }
        if let Some(event) = begun {
            let mut data = event.data.into_bytes();
            shorten(&mut data);
            truncated_json::close(&mut data);
            reply.event(&event.name, &String::from_utf8_lossy(&data), out);
        }
        reply.too_large(TOO_LARGE);
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) -> Decoded {
        let Some(mut reply) = self.reply.take() else {
            return Decoded::default();
        };
        match std::mem::replace(&mut self.kind, BodyKind::Unknown) {
            BodyKind::Json(body) => {
                reply.body(&body, out);
                return reply.end(out);
            }
            BodyKind::Truncated(mut body) => {
                shorten(&mut body);
                truncated_json::close(&mut body);
                reply.body(&body, out);
                reply.too_large(TOO_LARGE);
                return reply.end(out);
            }
            BodyKind::Unknown | BodyKind::Events => {}
        }
        // An event without its blank line counts if it is whole; else it was cut.
        let whole = |data: &str| {
            data.trim() == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
        };
        if let Some(event) = self.sse.finish().filter(|event| whole(&event.data)) {
            reply.event(&event.name, &event.data, out);
        }
        let head = self.head.get(..self.head_length).unwrap_or_default();
        if !reply.has_events() && !begins_like_events(head) {
            let shown = failure::describe_body(head);
            reply.protocol(&format!("something that is no event stream: {shown}"));
        }
        reply.end(out)
    }

    fn fork(&self) -> Box<dyn ReplyDecoder> {
        Box::new(self.clone())
    }
}

/// What stands around a text, at most, in bytes.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// Shortens what is too large to what a session takes of a reply, which is half of the most that is
/// read: what it is made into is there beside it, several times. Of text that is escaped less is kept.
fn shorten(piece: &mut Vec<u8>) {
    piece.truncate(MAX_EVENT_BYTES / 2 + ENVELOPE_BYTES);
    piece.shrink_to_fit();
}

/// Whether the first bytes are, or may become, a field or a comment of an event.
fn begins_like_events(head: &[u8]) -> bool {
    [&b"event"[..], b"data", b"id", b"retry", b":"]
        .iter()
        .any(|field| head.starts_with(field) || field.starts_with(head))
}
