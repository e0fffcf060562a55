//! Gemini's generateContent: a message as events, as a JSON list or as one object, and errors.
//!
//! Follows the grammar of recorded exchanges: each chunk is a whole response, a call comes whole in
//! one part, a signature stands on the part after the thoughts, the last chunk has the finish reason.

use serde_json::{Map, Value, json};

use super::Wire;
use super::text::{is_refusal, model, put, seed, split_deltas};
use crate::delivery::RenderedAnswer;
use crate::dialect::GeminiDialect;
use crate::fault::{Event, Form, WireEvents, apply};
use crate::message::{Block, Message, ToolBlock};
use crate::mint;
use crate::reply::ErrorReply;
use crate::request::Request;

/// A message as the request asks for it.
pub(super) fn message(message: &Message, request: &Request) -> RenderedAnswer {
    let writer = Writer {
        message,
        dialect: &message.dialect.gemini,
        request,
    };
    if !request.wants_stream() {
        let parts = writer.chunks().concat();
        let body = writer.chunk(&merge_parts(parts), Some(writer.finish_reason()));
        return RenderedAnswer {
            status: 200,
            headers: headers("application/json; charset=UTF-8"),
            body: vec![body.to_string().into_bytes().into()],
            stream: false,
        };
    }
    let sse = request.query_value("alt").as_deref() == Some("sse");
    let events = apply(writer.events(), &message.faults, writer.wire_events(sse));
    let (content_type, events) = if sse {
        ("text/event-stream", events)
    } else {
        ("application/json; charset=UTF-8", as_list(events))
    };
    RenderedAnswer {
        status: 200,
        headers: headers(content_type),
        body: events
            .into_iter()
            .map(|event| event.into_bytes().into())
            .collect(),
        stream: true,
    }
}

/// An error with its JSON body; `retry-after` is told in the details, too.
pub(super) fn error(error: &ErrorReply) -> RenderedAnswer {
    let kind = error
        .kind
        .as_deref()
        .map_or(status_name(error.status), error_status);
    let text = error
        .message
        .clone()
        .unwrap_or_else(|| format!("The script answers with status {}.", error.status));
    let mut body = json!({"error": {"code": error.status, "message": text, "status": kind}});
    let seconds = error.retry_after.iter();
    let details: Vec<Value> = seconds
        .filter(|seconds| seconds.parse::<u64>().is_ok())
        .map(|seconds| {
            json!({
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": format!("{seconds}s"),
            })
        })
        .collect();
    if let (Some(inner), false) = (body.get_mut("error"), details.is_empty()) {
        put(inner, "details", json!(details));
    }
    let mut headers = headers("application/json; charset=UTF-8");
    headers.extend(error.extra_headers());
    RenderedAnswer {
        status: error.status,
        headers,
        body: vec![body.to_string().into_bytes().into()],
        stream: false,
    }
}

fn headers(content_type: &str) -> Vec<(String, String)> {
    vec![("content-type".to_owned(), content_type.to_owned())]
}

fn status_name(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        status if status >= 500 => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

/// Gemini's word for one of Anthropic's error types.
fn error_status(kind: &str) -> &str {
    match kind {
        "overloaded_error" => "UNAVAILABLE",
        "api_error" => "INTERNAL",
        "rate_limit_error" => "RESOURCE_EXHAUSTED",
        "timeout_error" => "DEADLINE_EXCEEDED",
        "invalid_request_error" => "INVALID_ARGUMENT",
        other => other,
    }
}

/// The code of a status word, inside a stream.
fn code(word: &str) -> u16 {
    match word {
        "INVALID_ARGUMENT" => 400,
        "RESOURCE_EXHAUSTED" => 429,
        "UNAVAILABLE" => 503,
        "DEADLINE_EXCEEDED" => 504,
        _ => 500,
    }
}

/// The elements of a JSON list, each event one: the separators belong to them.
fn as_list(events: Vec<Event>) -> Vec<Event> {
    let bare = |data: String| Event {
        name: "chunk".to_owned(),
        data,
        form: Form::Bare,
    };
    let mut list: Vec<Event> = events
        .into_iter()
        .enumerate()
        .map(|(number, event)| {
            let before = if number == 0 { "[" } else { ",\r\n" };
            bare(format!("{before}{}", event.data))
        })
        .collect();
    list.push(bare(
        if list.is_empty() { "[]" } else { "\n]\n" }.to_owned(),
    ));
    list
}

/// Without a stream, neighbouring parts of one kind are one part.
fn merge_parts(parts: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    let is_plain = |part: &Value| {
        part.get("text").is_some_and(Value::is_string) && part.get("thoughtSignature").is_none()
    };
    for part in parts {
        match merged.last_mut() {
            Some(last)
                if is_plain(&part)
                    && last.get("text").is_some_and(Value::is_string)
                    && last.get("thought") == part.get("thought") =>
            {
                let text = [last, &part].map(|it| {
                    it.get("text")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                });
                if let Some(last) = merged.last_mut() {
                    put(last, "text", json!(text.concat()));
                }
            }
            _ => merged.push(part),
        }
    }
    merged
}

struct Writer<'a> {
    message: &'a Message,
    dialect: &'a GeminiDialect,
    request: &'a Request,
}

impl Writer<'_> {
    fn wire_events(&self, sse: bool) -> WireEvents {
        let faults = &self.message.faults;
        WireEvents {
            second_start: faults.second_start.as_ref().map(|fault| {
                let mut start = self.chunk(&[json!({"text": ""})], None);
                if let Some(id) = &fault.id {
                    put(&mut start, "responseId", json!(id));
                }
                event("chunk", &start)
            }),
            ping: sse.then(|| Event::comment("keep-alive")),
            ping_after: None,
            error: faults
                .error
                .iter()
                .map(|fault| {
                    let status = error_status(&fault.kind);
                    let error =
                        json!({"code": code(status), "message": fault.message, "status": status});
                    event("error", &json!({"error": error}))
                })
                .collect(),
        }
    }

    fn events(&self) -> Vec<Event> {
        let mut chunks = self.chunks();
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let last = chunks.len() - 1;
        let mut events: Vec<Event> = chunks
            .into_iter()
            .enumerate()
            .map(|(number, parts)| {
                if number == last {
                    event("finish", &self.chunk(&parts, Some(self.finish_reason())))
                } else {
                    event("chunk", &self.chunk(&parts, None))
                }
            })
            .collect();
        if self.dialect.two_finishes {
            let again = self.chunk(&[json!({"text": ""})], Some(self.finish_reason()));
            events.push(event("finish", &again));
        }
        events
    }

    /// The parts of each chunk.
    fn chunks(&self) -> Vec<Vec<Value>> {
        let mut chunks: Vec<Vec<Value>> = Vec::new();
        // What the next call or text is to be signed with.
        let mut pending: Option<Pending<'_>> = None;
        let mut called = false;
        for (at, block) in self.message.content.iter().enumerate() {
            match block {
                Block::Thinking {
                    thinking,
                    signature,
                } => {
                    let parts = split_deltas(thinking, self.message.text_delta);
                    chunks.extend(
                        parts
                            .into_iter()
                            .map(|part| vec![json!({"text": part, "thought": true})]),
                    );
                    pending = Some(Pending(signature));
                }
                Block::RedactedThinking { data } => pending = Some(Pending(data)),
                Block::Text { text } => {
                    let mut parts: Vec<Value> = split_deltas(text, self.message.text_delta)
                        .into_iter()
                        .map(|part| json!({"text": part}))
                        .collect();
                    if self.dialect.trailing_signature && pending.is_some() {
                        parts.push(json!({"text": ""}));
                        self.sign(parts.last_mut(), pending.take(), "", at);
                    } else if !parts.is_empty() {
                        self.sign(parts.first_mut(), pending.take(), "", at);
                    }
                    chunks.extend(parts.into_iter().map(|part| vec![part]));
                }
                Block::ToolUse(tool) => {
                    let must = !called && is_third_generation(self.request.model());
                    let signature = pending.take().or_else(|| must.then_some(Pending("")));
                    let mut parts = self.call(tool);
                    called |= !parts.is_empty();
                    self.sign(parts.first_mut(), signature, &tool.name, at);
                    chunks.extend(parts.into_iter().map(|part| vec![part]));
                }
                Block::ServerToolUse(tool) => {
                    let code = tool.input.to_string();
                    let ran = json!({"outcome": "OUTCOME_OK", "output": ""});
                    chunks.push(vec![
                        json!({"executableCode": {"language": "PYTHON", "code": code}}),
                        json!({"codeExecutionResult": ran}),
                    ]);
                }
                Block::Raw { value, wire } if *wire == Wire::Gemini => {
                    chunks.push(vec![value.clone()]);
                }
                Block::Raw { .. } => {}
            }
        }
        if pending.is_some() {
            let mut trailing = json!({"text": ""});
            self.sign(Some(&mut trailing), pending, "", self.message.content.len());
            chunks.push(vec![trailing]);
        }
        chunks
    }

    /// Puts a signature on a part: the scripted one, or one of the mock's own.
    fn sign(&self, part: Option<&mut Value>, pending: Option<Pending<'_>>, call: &str, at: usize) {
        let (Some(part), Some(Pending(scripted))) = (part, pending) else {
            return;
        };
        let signature = if scripted.is_empty() {
            let seed = seed(self.request, &format!("part {at}"));
            mint::signature_of(Wire::Gemini, self.request.model(), call, &seed)
        } else {
            scripted.to_owned()
        };
        put(part, "thoughtSignature", json!(signature));
    }

    /// The parts of a call: one, or one for each piece of its arguments. None for arguments that are
    /// no JSON, which this wire cannot tell.
    fn call(&self, tool: &ToolBlock) -> Vec<Value> {
        let mut call = Map::new();
        if self.has_ids() {
            call.insert("id".to_owned(), json!(Wire::Gemini.call_id(&tool.id)));
        }
        call.insert("name".to_owned(), json!(tool.name));
        let args = match &tool.streamed_input {
            None => tool.input.clone(),
            Some(text) => match serde_json::from_str(text) {
                Ok(args) => args,
                Err(_) => return Vec::new(),
            },
        };
        if !(self.dialect.partial_args && self.request.wants_stream()) {
            call.insert("args".to_owned(), args);
            return vec![json!({"functionCall": call})];
        }
        call.insert("willContinue".to_owned(), json!(true));
        let mut parts = vec![json!({"functionCall": call})];
        for (name, value) in args.as_object().into_iter().flatten() {
            parts.extend(self.argument(name, value));
        }
        parts.push(json!({"functionCall": {}}));
        parts
    }

    /// A text comes in pieces, another value at once. Lists and objects are told leaf by leaf.
    fn argument(&self, name: &str, value: &Value) -> Vec<Value> {
        let mut leaves = Vec::new();
        flatten(&format!("$.{name}"), value, &mut leaves);
        let mut parts = Vec::new();
        for (path, leaf) in leaves {
            let values: Vec<Value> = match leaf {
                Value::String(text) => {
                    let texts = split_deltas(text, self.message.json_delta);
                    let count = texts.len();
                    let more = |at: usize| at + 1 < count;
                    texts
                        .into_iter()
                        .enumerate()
                        .map(|(at, text)| {
                            json!({"jsonPath": path, "stringValue": text, "willContinue": more(at)})
                        })
                        .collect()
                }
                Value::Bool(value) => vec![json!({"jsonPath": path, "boolValue": value})],
                Value::Number(value) => vec![json!({"jsonPath": path, "numberValue": value})],
                _ => vec![json!({"jsonPath": path, "nullValue": "NULL_VALUE"})],
            };
            parts.extend(
                values
                    .into_iter()
                    .map(|it| json!({"functionCall": {"partialArgs": [it], "willContinue": true}})),
            );
        }
        parts
    }

    fn has_ids(&self) -> bool {
        let model = self.request.model();
        self.dialect
            .ids
            .unwrap_or(is_third_generation(model) && model.contains("pro"))
    }

    fn chunk(&self, parts: &[Value], finish: Option<&str>) -> Value {
        let mut candidate = Map::new();
        if !parts.is_empty() {
            candidate.insert(
                "content".to_owned(),
                json!({"parts": parts, "role": "model"}),
            );
        }
        candidate.extend(finish.map(|it| ("finishReason".to_owned(), json!(it))));
        candidate.insert("index".to_owned(), json!(0));
        let id = self.message.id.clone();
        let mut chunk = Map::new();
        chunk.insert("candidates".to_owned(), json!([candidate]));
        if finish.is_some() || !self.message.usage.only_at_end {
            chunk.insert("usageMetadata".to_owned(), self.usage(finish.is_some()));
        }
        let model = model(self.message, self.request);
        chunk.insert("modelVersion".to_owned(), json!(model));
        let id = id.unwrap_or_else(|| mint::random_word("", &seed(self.request, "response"), 22));
        chunk.insert("responseId".to_owned(), json!(id));
        chunk.extend(self.message.extra.clone());
        Value::Object(chunk)
    }

    /// Candidates are without thoughts, the prompt with what the cache gave.
    fn usage(&self, at_end: bool) -> Value {
        let usage = &self.message.usage;
        let prompt = usage.input_tokens + usage.cache_read + usage.cache_write();
        let thoughts = usage.thinking_tokens.unwrap_or(0);
        let candidates = if at_end {
            usage.output_tokens.saturating_sub(thoughts)
        } else {
            0
        };
        let mut object = Map::new();
        object.insert("promptTokenCount".to_owned(), json!(prompt));
        if usage.cache_read > 0 {
            object.insert(
                "cachedContentTokenCount".to_owned(),
                json!(usage.cache_read),
            );
        }
        if candidates > 0 {
            object.insert("candidatesTokenCount".to_owned(), json!(candidates));
        }
        if thoughts > 0 {
            object.insert("thoughtsTokenCount".to_owned(), json!(thoughts));
        }
        let total = prompt + candidates + thoughts;
        object.insert("totalTokenCount".to_owned(), json!(total));
        if at_end {
            object.extend(usage.extra.clone());
        }
        Value::Object(object)
    }

    fn finish_reason(&self) -> &str {
        let broken = self.message.content.iter().any(|block| match block {
            Block::ToolUse(tool) => self.call(tool).is_empty(),
            _ => false,
        });
        match self.message.effective_stop_reason() {
            _ if is_refusal(self.message) => "SAFETY",
            "tool_use" if broken => "MALFORMED_FUNCTION_CALL",
            "end_turn" | "tool_use" | "stop_sequence" | "pause_turn" => "STOP",
            "max_tokens" | "model_context_window_exceeded" => "MAX_TOKENS",
            other => other,
        }
    }
}

/// Whether a model signs every first call and wants the signature back.
pub(crate) fn is_third_generation(model: &str) -> bool {
    model.contains("gemini-3")
}

/// A signature that stands on the next call or text: the scripted one, or empty.
struct Pending<'a>(&'a str);

fn flatten<'v>(path: &str, value: &'v Value, leaves: &mut Vec<(String, &'v Value)>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                flatten(&format!("{path}.{key}"), value, leaves);
            }
        }
        Value::Array(array) if !array.is_empty() => {
            for (at, value) in array.iter().enumerate() {
                flatten(&format!("{path}[{at}]"), value, leaves);
            }
        }
        leaf => leaves.push((path.to_owned(), leaf)),
    }
}

fn event(name: &str, data: &Value) -> Event {
    Event {
        name: name.to_owned(),
        data: data.to_string(),
        form: Form::Data,
    }
}
