//! Anthropic's Messages wire: a message as an event stream or as one JSON object, and errors.
//!
//! Follows the grammar of recorded exchanges: a tool's input begins with an empty delta, a signature
//! comes after the thinking, usage in `message_delta` is the total, result blocks arrive whole.

use serde_json::{Map, Value, json};

use crate::delivery::RenderedAnswer;
use crate::fault::{Event, Form, WireEvents, apply};
use crate::message::{Block, Message, ToolBlock, Usage};
use crate::mint;
use crate::reply::ErrorReply;
use crate::request::Request;
use crate::wire::Wire;
use crate::wire::text::{arguments, model, seed, split_deltas};

/// A message as the request asks for it: as a stream or whole.
pub(crate) fn message(message: &Message, request: &Request) -> RenderedAnswer {
    if !request.wants_stream() {
        return RenderedAnswer {
            status: 200,
            headers: headers("application/json", request),
            body: vec![
                full_message(message, request)
                    .to_string()
                    .into_bytes()
                    .into(),
            ],
            stream: false,
        };
    }
    let wire = WireEvents {
        second_start: second_start(message, request),
        ping: Some(event("ping", json!({}))),
        ping_after: Some("content_block_start"),
        error: message
            .faults
            .error
            .iter()
            .map(|fault| {
                event(
                    "error",
                    json!({"error": {"type": fault.kind, "message": fault.message}}),
                )
            })
            .collect(),
    };
    RenderedAnswer {
        status: 200,
        headers: headers("text/event-stream; charset=utf-8", request),
        body: apply(events(message, request), &message.faults, wire)
            .into_iter()
            .map(|event| event.into_bytes().into())
            .collect(),
        stream: true,
    }
}

/// An error with its JSON body, and `retry-after` where the script says so.
pub(crate) fn error(error: &ErrorReply, request: &Request) -> RenderedAnswer {
    let kind = error.kind.as_deref().unwrap_or(match error.status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    });
    let text = error
        .message
        .clone()
        .unwrap_or_else(|| format!("The script answers with status {}.", error.status));
    let body = json!({
        "type": "error",
        "error": {"type": kind, "message": text},
        "request_id": request_id(request),
    });
    let mut headers = headers("application/json", request);
    headers.extend(error.extra_headers());
    RenderedAnswer {
        status: error.status,
        headers,
        body: vec![body.to_string().into_bytes().into()],
        stream: false,
    }
}

fn headers(content_type: &str, request: &Request) -> Vec<(String, String)> {
    vec![
        ("content-type".to_owned(), content_type.to_owned()),
        ("request-id".to_owned(), request_id(request)),
    ]
}

fn request_id(request: &Request) -> String {
    format!("req_mock_{}", request.index)
}

/// The whole message object.
fn full_message(message: &Message, request: &Request) -> Value {
    let mut object = envelope(message, request);
    object.insert(
        "content".to_owned(),
        message
            .content
            .iter()
            .enumerate()
            .filter_map(|(number, block)| full_block(block, &Signer::new(request, number)))
            .collect(),
    );
    object.insert(
        "stop_reason".to_owned(),
        json!(message.effective_stop_reason()),
    );
    object.insert("stop_sequence".to_owned(), json!(message.stop_sequence));
    object.insert("stop_details".to_owned(), json!(message.stop_details));
    if let Some(container) = &message.container {
        object.insert("container".to_owned(), container.clone());
    }
    let mut usage = usage_at_start(&message.usage);
    usage.extend(usage_at_end(&message.usage));
    object.insert("usage".to_owned(), Value::Object(usage));
    Value::Object(object)
}

/// The message object as the first event has it.
fn started(message: &Message, request: &Request) -> Value {
    let mut object = envelope(message, request);
    if !message.usage.only_at_end {
        object.insert(
            "usage".to_owned(),
            Value::Object(usage_at_start(&message.usage)),
        );
    }
    Value::Object(object)
}

fn envelope(message: &Message, request: &Request) -> Map<String, Value> {
    let id = message
        .id
        .clone()
        .unwrap_or_else(|| format!("msg_mock_{}", request.index));
    let model = model(message, request);
    let mut object = Map::new();
    for (key, value) in [
        ("id", json!(id)),
        ("type", json!("message")),
        ("role", json!("assistant")),
        ("model", json!(model)),
        ("content", json!([])),
        ("stop_reason", Value::Null),
        ("stop_sequence", Value::Null),
        ("stop_details", Value::Null),
    ] {
        object.insert(key.to_owned(), value);
    }
    object.extend(message.extra.clone());
    object
}

fn usage_at_start(usage: &Usage) -> Map<String, Value> {
    let mut object = totals(
        usage,
        usage.input_at_start.unwrap_or(usage.input_tokens),
        usage.output_tokens.min(1),
    );
    object.insert(
        "cache_creation".to_owned(),
        json!({
            "ephemeral_5m_input_tokens": usage.cache_write_5m,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        }),
    );
    object.insert("service_tier".to_owned(), json!("standard"));
    object
}

fn usage_at_end(usage: &Usage) -> Map<String, Value> {
    let mut object = totals(usage, usage.input_tokens, usage.output_tokens);
    if let Some(tokens) = usage.thinking_tokens {
        object.insert(
            "output_tokens_details".to_owned(),
            json!({"thinking_tokens": tokens}),
        );
    }
    object.extend(usage.extra.clone());
    object
}

fn totals(usage: &Usage, input: u64, output: u64) -> Map<String, Value> {
    let mut object = Map::new();
    for (key, tokens) in [
        ("input_tokens", input),
        ("cache_creation_input_tokens", usage.cache_write()),
        ("cache_read_input_tokens", usage.cache_read),
        ("output_tokens", output),
    ] {
        object.insert(key.to_owned(), json!(tokens));
    }
    object
}

fn events(message: &Message, request: &Request) -> Vec<Event> {
    if message.prefilled {
        return vec![
            event(
                "message_start",
                json!({"message": full_message(message, request)}),
            ),
            event("message_stop", json!({})),
        ];
    }
    let mut events = vec![event(
        "message_start",
        json!({"message": started(message, request)}),
    )];
    let blocks = message
        .content
        .iter()
        .enumerate()
        .filter_map(|(number, block)| {
            streamed_block(block, message, &Signer::new(request, number))
        });
    for (index, (start, deltas)) in blocks.enumerate() {
        events.push(event(
            "content_block_start",
            json!({"index": index, "content_block": start}),
        ));
        events.extend(deltas.into_iter().map(|delta| {
            event(
                "content_block_delta",
                json!({"index": index, "delta": delta}),
            )
        }));
        events.push(event("content_block_stop", json!({"index": index})));
    }
    let mut delta = json!({
        "stop_reason": message.effective_stop_reason(),
        "stop_sequence": message.stop_sequence,
        "stop_details": message.stop_details,
    });
    if let (Some(container), Some(object)) = (&message.container, delta.as_object_mut()) {
        object.insert("container".to_owned(), container.clone());
    }
    events.push(event(
        "message_delta",
        json!({"delta": delta, "usage": usage_at_end(&message.usage)}),
    ));
    events.push(event("message_stop", json!({})));
    events
}

fn second_start(message: &Message, request: &Request) -> Option<Event> {
    let fault = message.faults.second_start.as_ref()?;
    let mut again = message.clone();
    again.id = fault.id.clone().or(again.id);
    Some(event(
        "message_start",
        json!({"message": started(&again, request)}),
    ))
}

/// A block that is complete; none for what belongs to another wire.
fn full_block(block: &Block, signer: &Signer<'_>) -> Option<Value> {
    Some(match block {
        Block::Text { text } => json!({"type": "text", "text": text}),
        Block::Thinking {
            thinking,
            signature,
        } => {
            let signature = signer.sign(signature, thinking);
            json!({"type": "thinking", "thinking": thinking, "signature": signature})
        }
        Block::RedactedThinking { data } => {
            json!({"type": "redacted_thinking", "data": signer.sign(data, "")})
        }
        Block::ToolUse(tool) => tool_block("tool_use", tool, &tool.input),
        Block::ServerToolUse(tool) => tool_block("server_tool_use", tool, &tool.input),
        Block::Raw { value, wire } => return (*wire == Wire::Anthropic).then(|| value.clone()),
    })
}

/// Signs a block of an answer.
struct Signer<'a> {
    model: &'a str,
    seed: String,
}

impl<'a> Signer<'a> {
    fn new(request: &'a Request, number: usize) -> Self {
        Self {
            model: request.model(),
            seed: seed(request, &format!("block {number}")),
        }
    }

    /// The signature that the script gives, or one of the mock's own.
    fn sign(&self, scripted: &str, content: &str) -> String {
        if scripted.is_empty() {
            mint::signature_of(Wire::Anthropic, self.model, content, &self.seed)
        } else {
            scripted.to_owned()
        }
    }
}

/// A block's start and its deltas.
fn streamed_block(
    block: &Block,
    message: &Message,
    signer: &Signer<'_>,
) -> Option<(Value, Vec<Value>)> {
    Some(match block {
        Block::Text { text } => (
            json!({"type": "text", "text": ""}),
            split_deltas(text, message.text_delta)
                .into_iter()
                .map(|part| json!({"type": "text_delta", "text": part}))
                .collect(),
        ),
        Block::Thinking {
            thinking,
            signature,
        } => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            split_deltas(thinking, message.text_delta)
                .into_iter()
                .map(|part| json!({"type": "thinking_delta", "thinking": part}))
                .chain([json!({
                    "type": "signature_delta",
                    "signature": signer.sign(signature, thinking),
                })])
                .collect(),
        ),
        Block::ToolUse(tool) => (
            tool_block("tool_use", tool, &json!({})),
            input_deltas(tool, message.json_delta),
        ),
        Block::ServerToolUse(tool) => (
            tool_block("server_tool_use", tool, &json!({})),
            input_deltas(tool, message.json_delta),
        ),
        Block::RedactedThinking { .. } | Block::Raw { .. } => {
            (full_block(block, signer)?, Vec::new())
        }
    })
}

fn tool_block(kind: &str, tool: &ToolBlock, input: &Value) -> Value {
    json!({"type": kind, "id": tool.id, "name": tool.name, "input": input, "caller": tool.caller})
}

/// The first delta is empty, as recorded; for a call without arguments it is the only one.
fn input_deltas(tool: &ToolBlock, size: usize) -> Vec<Value> {
    let text = match &tool.streamed_input {
        None if tool.input.as_object().is_some_and(Map::is_empty) => String::new(),
        _ => arguments(tool),
    };
    std::iter::once(String::new())
        .chain(split_deltas(&text, size))
        .map(|part| json!({"type": "input_json_delta", "partial_json": part}))
        .collect()
}

/// An event whose data begins with its type.
fn event(name: &str, fields: Value) -> Event {
    let mut data = Map::new();
    data.insert("type".to_owned(), json!(name));
    if let Value::Object(fields) = fields {
        data.extend(fields);
    }
    Event {
        name: name.to_owned(),
        data: Value::Object(data).to_string(),
        form: Form::Named,
    }
}
