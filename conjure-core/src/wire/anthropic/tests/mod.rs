//! What the wire must get right, rule by rule, on small streams and conversations of our own.

mod decode;
mod encode;
mod files;
mod random;
mod round_trip;
mod thinking;

use serde_json::{Value, json};

use super::decoder;
use crate::chat::{
    Content, FunctionCall, FunctionCallOutput, Message, Meta, Part, Role, Sidecar, StreamEvent,
};
use crate::repair::{RepairTarget, repair};
use crate::request::{ModelRequest, ProviderFragments, ToolChoice, ToolDefinition};
use crate::wire::{Decoded, Encoded, ReplyDecoder as _};

const MODEL: &str = "claude-sonnet-4-5";

/// An SSE body of these events.
fn stream(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}

fn decode(body: &str) -> (Decoded, Vec<StreamEvent>) {
    decode_pieces(&[body.as_bytes()])
}

fn decode_pieces(pieces: &[&[u8]]) -> (Decoded, Vec<StreamEvent>) {
    let mut decoder = decoder();
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events);
    }
    let decoded = decoder.finish(&mut events);
    (decoded, events)
}

fn start() -> Value {
    json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 3,
                  "cache_creation_input_tokens": 4, "output_tokens": 1}
    }})
}

#[expect(clippy::needless_pass_by_value, reason = "calls read better")]
fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

#[expect(clippy::needless_pass_by_value, reason = "calls read better")]
fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn text(index: u64, pieces: &[&str]) -> Vec<Value> {
    let mut events = vec![block(index, json!({"type": "text", "text": ""}))];
    events.extend(
        pieces
            .iter()
            .map(|piece| delta(index, json!({"type": "text_delta", "text": piece}))),
    );
    events.push(stop(index));
    events
}

fn thinking(index: u64, pieces: &[&str], signature: &str) -> Vec<Value> {
    let mut events = vec![block(
        index,
        json!({"type": "thinking", "thinking": "", "signature": ""}),
    )];
    events.extend(
        pieces
            .iter()
            .map(|piece| delta(index, json!({"type": "thinking_delta", "thinking": piece}))),
    );
    events.push(delta(
        index,
        json!({"type": "signature_delta", "signature": signature}),
    ));
    events.push(stop(index));
    events
}

fn tool_use(index: u64, id: &str, name: &str, pieces: &[&str]) -> Vec<Value> {
    let mut events = vec![block(
        index,
        json!({"type": "tool_use", "id": id, "name": name, "input": {},
               "caller": {"type": "direct"}}),
    )];
    events.extend(pieces.iter().map(|piece| {
        delta(
            index,
            json!({"type": "input_json_delta", "partial_json": piece}),
        )
    }));
    events.push(stop(index));
    events
}

fn end(stop_reason: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason,
               "stop_sequence": null}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ]
}

/// A whole stream: start, these blocks' events, the end.
fn reply(blocks: Vec<Vec<Value>>, stop_reason: &str) -> String {
    let events: Vec<Value> = [vec![start()]]
        .into_iter()
        .chain(blocks)
        .chain([end(stop_reason)])
        .flatten()
        .collect();
    stream(&events)
}

fn sidecar(data: Value) -> Option<Sidecar> {
    Some(Sidecar {
        provider: "anthropic".to_owned(),
        model_family: MODEL.to_owned(),
        data,
    })
}

fn thought(text: &str, data: Value) -> Part {
    Part {
        content: Content::Reasoning {
            text: text.to_owned(),
        },
        sidecar: sidecar(data),
    }
}

fn call(id: &str, name: &str, arguments: Value) -> Part {
    Content::FunctionCall(FunctionCall {
        call_id: id.to_owned(),
        name: name.to_owned(),
        arguments,
        arguments_text: None,
    })
    .into()
}

fn item(item: Value) -> Part {
    Content::ServerItem {
        provider: "anthropic".to_owned(),
        item,
    }
    .into()
}

fn result(id: &str, text: &str) -> Part {
    Content::FunctionCallOutput(FunctionCallOutput::text(id, text, false)).into()
}

fn assistant(parts: Vec<Part>) -> Message {
    Message::new(Role::Assistant, parts)
}

/// An assistant's message as the log keeps it.
fn said(parts: Vec<Part>, stop_reason: &str) -> Message {
    Message {
        meta: Some(Meta {
            provider: "anthropic".to_owned(),
            model: MODEL.to_owned(),
            stop_reason: Some(stop_reason.to_owned()),
            ..Meta::default()
        }),
        ..assistant(parts)
    }
}

fn results(parts: Vec<Part>) -> Message {
    Message::new(Role::Tool, parts)
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        provider: "anthropic".to_owned(),
        model: MODEL.to_owned(),
        system: Vec::new(),
        messages: repair(messages, &RepairTarget::new("anthropic", MODEL)),
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        max_tokens: 4096,
        thinking_tokens: None,
        stop_sequences: Vec::new(),
        response_format: None,
        contribution: ProviderFragments::default(),
        attachments: std::collections::BTreeMap::new(),
        stream: true,
    }
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: json!({"type": "object", "properties": {"b": {}, "a": {}}}),
    }
}

fn body(encoded: &Encoded) -> Value {
    serde_json::from_slice(&encoded.body).unwrap()
}

/// The messages of a request without cache marks, to look at the rest.
fn messages_of(encoded: &Encoded) -> Value {
    let mut messages = body(encoded)["messages"].take();
    for message in messages.as_array_mut().unwrap() {
        for block in message["content"].as_array_mut().unwrap() {
            block.as_object_mut().unwrap().shift_remove("cache_control");
        }
    }
    messages
}
