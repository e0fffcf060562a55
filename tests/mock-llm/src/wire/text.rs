//! What all wires need to write a message down: deltas of a text, seeds of ids, headers.
//!
//! Knows no provider.

use serde_json::Value;

use crate::bulk::{BARE_MARK, MARK};
use crate::message::{Block, Message, ToolBlock};
use crate::mint;
use crate::request::Request;

/// The deltas of a text. The mark of a bulk is one of its own.
pub(super) fn split_deltas(text: &str, size: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut room = 0;
    for letter in text.chars() {
        let alone = letter == MARK || letter == BARE_MARK;
        if room == 0 || alone {
            pieces.push(String::new());
            room = size.max(1);
        }
        room = if alone { 0 } else { room - 1 };
        if let Some(last) = pieces.last_mut() {
            last.push(letter);
        }
    }
    pieces
}

/// A call's arguments as text: as scripted for a stream, whether that is JSON or not.
pub(super) fn arguments(tool: &ToolBlock) -> String {
    match &tool.streamed_input {
        Some(text) => text.clone(),
        None => {
            let quoted = format!("\"{MARK}\"");
            let text = tool.input.to_string();
            text.replace(&quoted, &BARE_MARK.to_string())
        }
    }
}

/// What ids of this answer are made from: two requests that differ get different ids, from any mock.
pub(super) fn seed(request: &Request, what: &str) -> String {
    let body = mint::hash(&String::from_utf8_lossy(&request.raw_body));
    format!("{}|{body:016x}|{what}", request.index)
}

/// The model that the answer names.
pub(super) fn model<'a>(message: &'a Message, request: &'a Request) -> &'a str {
    message.model.as_deref().unwrap_or(request.model())
}

/// The message's text blocks as one text.
pub(super) fn joined_text(message: &Message) -> String {
    message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// The message's thinking as one text.
pub(super) fn joined_thinking(message: &Message) -> String {
    message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::Thinking { thinking, .. } => Some(thinking.as_str()),
            _ => None,
        })
        .collect()
}

/// The calls of the client's tools.
pub(super) fn calls(message: &Message) -> impl Iterator<Item = &ToolBlock> {
    message.content.iter().filter_map(|block| match block {
        Block::ToolUse(tool) => Some(tool),
        _ => None,
    })
}

/// Whether the message is told as a refusal where a wire has a place for one.
pub(super) fn is_refusal(message: &Message) -> bool {
    message.effective_stop_reason() == "refusal"
}

/// Sets a field of an object.
pub(super) fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}
