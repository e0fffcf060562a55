//! Replies that are far too much, or no text at all: made of few bytes that are written many times.
//!
//! A mark is put into the message before its wire writes it down, and found again in the finished
//! bytes, so that no wire knows of this. Nothing large is ever in memory.

use serde::{Deserialize, Serialize};

use crate::delivery::{Part, Piece, RenderedAnswer};
use crate::message::{Block, Message};

/// What a reply has too much of. It is added to the first text of the message (which gets one, if it
/// has none), or to the arguments of its first call.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bulk {
    /// Number of letters more, in a stream as one delta: one line. Wherever a wire repeats the whole
    /// text, they are there again.
    Text(u64),
    /// Number of deltas of one letter more, each an event. `u64::MAX` never ends. Where the request
    /// asks for no stream, as [`Bulk::Text`]. Numbers inside the events do not count them.
    Deltas(u64),
    /// Number of comment lines before the second event; without a stream, empty lines at the start.
    CommentLines(u64),
    /// Number of `data:` lines more in the first event, all empty; without a stream, empty lines at
    /// the start.
    DataLines(u64),
    /// Number of lists in each other in a field `nested` of the first event, or of the whole object.
    NestedEvent(u64),
    /// Number of lists in each other in a field `nested` of the arguments of the first call.
    NestedArguments(u64),
    /// Two bytes that no UTF-8 text has.
    InvalidUtf8,
    /// Half of a pair of surrogates, escaped: JSON in form, but no text.
    LoneSurrogate,
}

/// Stands for the bulk in a message that is being written: a private character, so that JSON leaves
/// it as it is and no delta cuts it.
pub(crate) const MARK: char = '\u{10fbcd}';

/// The mark inside arguments that are written as a text, where it has no quotes around it.
pub(crate) const BARE_MARK: char = '\u{10fbce}';

impl Bulk {
    /// Puts the mark where the bulk belongs.
    pub(crate) fn mark(self, message: &mut Message) {
        match self {
            Self::Text(_) | Self::Deltas(_) | Self::InvalidUtf8 | Self::LoneSurrogate => {
                let text = message.content.iter_mut().find_map(|block| match block {
                    Block::Text { text } => Some(text),
                    _ => None,
                });
                // Something stands before the mark, so that it is never in the first delta.
                match text {
                    Some(text) if text.is_empty() => *text = format!(".{MARK}"),
                    Some(text) => text.push(MARK),
                    None => {
                        let text = format!(".{MARK}");
                        message.content.insert(0, Block::Text { text });
                    }
                }
            }
            Self::NestedArguments(_) => {
                let input = message.content.iter_mut().find_map(|block| match block {
                    Block::ToolUse(tool) => tool.input.as_object_mut(),
                    _ => None,
                });
                if let Some(input) = input {
                    input.insert("nested".to_owned(), MARK.to_string().into());
                }
            }
            Self::CommentLines(_) | Self::DataLines(_) | Self::NestedEvent(_) => {}
        }
    }

    /// Replaces the marks in a finished reply.
    pub(crate) fn expand(self, mut rendered: RenderedAnswer) -> RenderedAnswer {
        let stream = rendered.stream;
        match self {
            Self::CommentLines(lines) => {
                let (at, line) = if stream { (1, ": \n") } else { (0, "\n") };
                let part = Part(vec![Piece::new(line, lines)]);
                rendered.body.insert(at.min(rendered.body.len()), part);
                rendered
            }
            Self::DataLines(lines) => {
                let line = if stream { "data:\n" } else { "\n" };
                if let Some(first) = rendered.body.first_mut() {
                    first.0.insert(0, Piece::new(line, lines));
                }
                rendered
            }
            Self::NestedEvent(depth) => {
                if let Some(first) = rendered.body.first_mut() {
                    *first = nested_field(first, depth);
                }
                rendered
            }
            _ => {
                rendered.body = std::mem::take(&mut rendered.body)
                    .into_iter()
                    .map(|part| self.expand_part(part, stream))
                    .collect();
                rendered
            }
        }
    }

    fn expand_part(self, part: Part, stream: bool) -> Part {
        let bytes = part.bytes();
        if let Self::NestedArguments(depth) = self {
            return nested_argument(&bytes, depth);
        }
        let mark = MARK.to_string().into_bytes();
        if find(&bytes, &mark).is_none() {
            return part;
        }
        if let (Self::Deltas(times), true) = (self, stream)
            && is_delta(&bytes)
        {
            let whole = replace(&bytes, &mark, |pieces| pieces.push(Piece::new("x", 1)));
            let event: Vec<u8> = whole.into_iter().flat_map(|piece| piece.bytes).collect();
            return Part(vec![Piece {
                bytes: event,
                times,
            }]);
        }
        Part(replace(&bytes, &mark, |pieces| {
            pieces.push(match self {
                Self::Text(count) | Self::Deltas(count) => Piece::new("x", count),
                Self::InvalidUtf8 => Piece::new(b"\xff\xfe", 1),
                _ => Piece::new("\\ud83d", 1),
            });
        }))
    }
}

/// A delta is an event that tells a new part of a text, and here the mark alone.
fn is_delta(bytes: &[u8]) -> bool {
    const DELTA_MARKERS: [&[u8]; 4] = [
        b"\"text_delta\"",
        b".delta\"",
        b"\"chat.completion.chunk\"",
        b"\"candidates\"",
    ];
    let alone = format!("\"{MARK}\"");
    find(bytes, alone.as_bytes()).is_some()
        && DELTA_MARKERS.iter().any(|sign| find(bytes, sign).is_some())
}

/// The field is put behind the first brace, which is the one of the event's own object.
fn nested_field(part: &Part, depth: u64) -> Part {
    let bytes = part.bytes();
    let Some(brace) = bytes.iter().position(|byte| *byte == b'{') else {
        return part.clone();
    };
    let (before, after) = bytes.split_at(brace + 1);
    let mut pieces = vec![Piece::new(before, 1), Piece::new("\"nested\":", 1)];
    pieces.extend(lists(depth));
    pieces.extend([Piece::new(",", 1), Piece::new(after, 1)]);
    Part(pieces)
}

/// The mark stands between quotes where the arguments are JSON, and bare where they are a text.
fn nested_argument(bytes: &[u8], depth: u64) -> Part {
    let quoted = format!("\"{MARK}\"");
    let bare = BARE_MARK.to_string();
    let mark = if find(bytes, quoted.as_bytes()).is_some() {
        quoted
    } else {
        bare
    };
    Part(replace(bytes, mark.as_bytes(), |pieces| {
        pieces.extend(lists(depth));
    }))
}

fn lists(depth: u64) -> [Piece; 2] {
    [Piece::new("[", depth), Piece::new("]", depth)]
}

fn replace(bytes: &[u8], mark: &[u8], with: impl Fn(&mut Vec<Piece>)) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, mark) {
        let (before, after) = rest.split_at(at);
        pieces.push(Piece::new(before, 1));
        with(&mut pieces);
        rest = after.get(mark.len()..).unwrap_or_default();
    }
    pieces.push(Piece::new(rest, 1));
    pieces
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
