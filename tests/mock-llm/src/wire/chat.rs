//! Chat Completions: a message as chunks or as one object, in the dialects of compatible servers.
//!
//! Follows the grammar of recorded exchanges: the first chunk has the role, a call's name and id are
//! in its first fragment only, usage comes in a last chunk without choices. Errors are in `openai`.

use serde_json::{Map, Value, json};

use super::Wire;
use super::openai::{error_type, headers, usage};
use super::text::{
    arguments, calls, is_refusal, joined_text, joined_thinking, model, put, seed, split_deltas,
};
use crate::delivery::RenderedAnswer;
use crate::dialect::{CallIds, CallIndex, ChatDialect, NoArguments, ReasoningField, StreamUsage};
use crate::fault::{Event, Form, WireEvents, apply};
use crate::message::{Block, Message, ToolBlock};
use crate::mint;
use crate::request::Request;

/// A message as the request asks for it: as a stream or whole.
pub(super) fn message(message: &Message, request: &Request) -> RenderedAnswer {
    let writer = Writer {
        message,
        dialect: &message.dialect.chat,
        request,
    };
    if !request.wants_stream() {
        return RenderedAnswer {
            status: 200,
            headers: headers("application/json", request),
            body: vec![writer.full_message().to_string().into_bytes().into()],
            stream: false,
        };
    }
    let wire = WireEvents {
        second_start: message.faults.second_start.as_ref().map(|fault| {
            let mut start = writer.chunk(&json!({"role": "assistant", "content": ""}), None);
            if let Some(id) = &fault.id {
                put(&mut start, "id", json!(id));
            }
            writer.event("role", &start)
        }),
        ping: Some(Event::comment("keep-alive")),
        ping_after: None,
        error: message
            .faults
            .error
            .iter()
            .map(|fault| {
                let kind = error_type(&fault.kind);
                let error =
                    json!({"message": fault.message, "type": kind, "param": null, "code": kind});
                writer.event("error", &json!({"error": error}))
            })
            .collect(),
    };
    let mut events = apply(writer.events(), &message.faults, wire);
    if let Some(comment) = &writer.dialect.comment {
        events = events
            .into_iter()
            .flat_map(|event| [Event::comment(comment), event])
            .collect();
    }
    RenderedAnswer {
        status: 200,
        headers: headers("text/event-stream; charset=utf-8", request),
        body: events
            .into_iter()
            .map(|event| event.into_bytes().into())
            .collect(),
        stream: true,
    }
}

/// Where the details of reasoning come from, as `OpenRouter` says it of `OpenAI`'s models.
const DETAIL_FORMAT: &str = "openai-responses-v1";

fn summary_detail(summary: &str) -> Value {
    json!({"type": "reasoning.summary", "summary": summary, "format": DETAIL_FORMAT, "index": 0})
}

fn is_thought(block: &Block) -> bool {
    matches!(
        block,
        Block::Thinking { .. } | Block::RedactedThinking { .. }
    )
}

struct Writer<'a> {
    message: &'a Message,
    dialect: &'a ChatDialect,
    request: &'a Request,
}

impl Writer<'_> {
    /// How many choices the request asks for.
    fn choices(&self) -> u64 {
        let asked = self.request.body.get("n").and_then(Value::as_u64);
        asked.unwrap_or(1).clamp(1, 16)
    }

    fn full_message(&self) -> Value {
        let mut answer = Map::new();
        answer.insert("role".to_owned(), json!("assistant"));
        let text = joined_text(self.message);
        let has_text = self.has_text();
        let (content, refusal) = match is_refusal(self.message) {
            true => (Value::Null, json!(text)),
            false if has_text => (json!(text), Value::Null),
            false => (Value::Null, Value::Null),
        };
        answer.insert("content".to_owned(), content);
        answer.insert("refusal".to_owned(), refusal);
        let thinking = joined_thinking(self.message);
        if let (Some(field), false) = (self.reasoning_field(), thinking.is_empty()) {
            answer.insert(field.to_owned(), json!(thinking));
        }
        if self.dialect.reasoning == ReasoningField::Details && self.has_thinking() {
            let summary = Some(summary_detail(&thinking)).filter(|_| !thinking.is_empty());
            let encrypted = self.encrypted_detail("thinking");
            let details: Vec<Value> = summary.into_iter().chain([encrypted]).collect();
            answer.insert("reasoning_details".to_owned(), json!(details));
        }
        let calls: Vec<Value> = calls(self.message)
            .map(|call| {
                let mut object = self.head(call);
                let mut function = Map::new();
                function.insert("name".to_owned(), json!(call.name));
                function.extend(self.arguments(call).map(|it| ("arguments".to_owned(), it)));
                object.insert("function".to_owned(), Value::Object(function));
                Value::Object(object)
            })
            .collect();
        if !calls.is_empty() {
            answer.insert("tool_calls".to_owned(), json!(calls));
        }
        let finish = self.dialect.finish_reason.then(|| self.finish_reason());
        let choices: Vec<Value> = (0..self.choices())
            .map(|index| {
                json!({"index": index, "message": answer, "logprobs": null, "finish_reason": finish})
            })
            .collect();
        let mut object = self.envelope("chat.completion");
        object.insert("choices".to_owned(), json!(choices));
        if self.dialect.usage != StreamUsage::Never {
            object.insert("usage".to_owned(), usage(&self.message.usage, Wire::Chat));
        }
        Value::Object(object)
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.dialect.empty_first {
            let mut chunk = self.envelope("chat.completion.chunk");
            chunk.insert("choices".to_owned(), json!([]));
            events.push(self.event("first", &Value::Object(chunk)));
        }
        let content = if self.has_text() {
            json!("")
        } else {
            Value::Null
        };
        self.delta(
            &mut events,
            "role",
            &json!({"role": "assistant", "content": content}),
        );
        let mut number = 0;
        let last_thought = self.message.content.iter().rposition(is_thought);
        for (at, block) in self.message.content.iter().enumerate() {
            if last_thought.is_some_and(|last| at == last + 1) {
                self.push_encrypted_reasoning(&mut events);
            }
            match block {
                Block::Thinking { thinking, .. } => {
                    let Some(field) = self.reasoning_field() else {
                        continue;
                    };
                    for piece in split_deltas(thinking, self.message.text_delta) {
                        let mut delta = Map::from_iter([(field.to_owned(), json!(piece))]);
                        if self.dialect.reasoning == ReasoningField::Details {
                            let detail = summary_detail(&piece);
                            delta.insert("reasoning_details".to_owned(), json!([detail]));
                        }
                        self.delta(&mut events, "reasoning", &Value::Object(delta));
                    }
                }
                Block::Text { text } => {
                    let field = if is_refusal(self.message) {
                        "refusal"
                    } else {
                        "content"
                    };
                    for piece in split_deltas(text, self.message.text_delta) {
                        let delta = Map::from_iter([(field.to_owned(), json!(piece))]);
                        self.delta(&mut events, "content", &Value::Object(delta));
                    }
                }
                Block::ToolUse(call) => {
                    for fragment in self.fragments(call, number) {
                        self.delta(
                            &mut events,
                            "tool_calls",
                            &json!({"tool_calls": [fragment]}),
                        );
                    }
                    number += 1;
                }
                Block::RedactedThinking { .. } | Block::ServerToolUse(_) | Block::Raw { .. } => {}
            }
        }
        if last_thought.is_some_and(|last| last + 1 == self.message.content.len()) {
            self.push_encrypted_reasoning(&mut events);
        }
        if self.dialect.finish_reason {
            for index in 0..self.choices() {
                let mut chunk = self.chunk_of(index, &json!({}), Some(self.finish_reason()));
                if self.dialect.usage == StreamUsage::WithFinish {
                    put(&mut chunk, "usage", usage(&self.message.usage, Wire::Chat));
                }
                events.push(self.event("finish", &chunk));
            }
        }
        if self.reports_usage() {
            let mut chunk = self.envelope("chat.completion.chunk");
            chunk.insert("choices".to_owned(), json!([]));
            chunk.insert("usage".to_owned(), usage(&self.message.usage, Wire::Chat));
            events.push(self.event("usage", &Value::Object(chunk)));
        }
        if self.dialect.done {
            events.push(Event {
                name: "done".to_owned(),
                data: "[DONE]".to_owned(),
                form: Form::Data,
            });
        }
        events
    }

    /// A chunk for each choice.
    fn delta(&self, events: &mut Vec<Event>, name: &str, delta: &Value) {
        for index in 0..self.choices() {
            let chunk = self.chunk_of(index, delta, None);
            events.push(self.event(name, &chunk));
        }
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        self.chunk_of(0, delta, finish)
    }

    fn chunk_of(&self, index: u64, delta: &Value, finish: Option<&str>) -> Value {
        let mut chunk = self.envelope("chat.completion.chunk");
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
        chunk.insert("choices".to_owned(), json!([choice]));
        if self.dialect.obfuscation {
            let padding = mint::random_word("", &Value::Object(chunk.clone()).to_string(), 12);
            chunk.insert("obfuscation".to_owned(), json!(padding));
        }
        Value::Object(chunk)
    }

    fn envelope(&self, object: &str) -> Map<String, Value> {
        let id = self.message.id.clone().unwrap_or_else(|| {
            mint::random_word("chatcmpl-", &seed(self.request, "completion"), 29)
        });
        let mut envelope = Map::new();
        for (key, value) in [
            ("id", json!(id)),
            ("object", json!(object)),
            ("created", json!(1_700_000_000)),
            ("model", json!(model(self.message, self.request))),
            ("system_fingerprint", json!("fp_mock")),
        ] {
            envelope.insert(key.to_owned(), value);
        }
        envelope.extend(self.message.extra.clone());
        envelope
    }

    /// The first fragment has id, type and name; the others only more of the arguments.
    fn fragments(&self, call: &ToolBlock, number: usize) -> Vec<Value> {
        let index = match self.dialect.index {
            CallIndex::FromZero => Some(number),
            CallIndex::FromOne => Some(number + 1),
            CallIndex::Same => Some(0),
            CallIndex::Missing => None,
        };
        let indexed = || {
            let mut fragment = Map::new();
            fragment.extend(index.map(|index| ("index".to_owned(), json!(index))));
            fragment
        };
        let mut first = indexed();
        first.extend(self.head(call));
        let all = self.arguments(call);
        let text = match &all {
            Some(Value::String(text)) => Some(text.clone()),
            _ => None,
        };
        let repeated = self.dialect.ids == CallIds::Repeated;
        let Some(text) = text.filter(|_| index.is_some() || repeated) else {
            let mut function = Map::from_iter([("name".to_owned(), json!(call.name))]);
            function.extend(all.map(|all| ("arguments".to_owned(), all)));
            first.insert("function".to_owned(), Value::Object(function));
            return vec![Value::Object(first)];
        };
        first.insert(
            "function".to_owned(),
            json!({"name": call.name, "arguments": ""}),
        );
        let rest = split_deltas(&text, self.message.json_delta)
            .into_iter()
            .map(|piece| {
                let mut fragment = indexed();
                let mut function = Map::new();
                if repeated {
                    fragment.extend(self.head(call));
                    function.insert("name".to_owned(), json!(call.name));
                }
                function.insert("arguments".to_owned(), json!(piece));
                fragment.insert("function".to_owned(), Value::Object(function));
                Value::Object(fragment)
            });
        std::iter::once(Value::Object(first.clone()))
            .chain(rest)
            .collect()
    }

    fn head(&self, call: &ToolBlock) -> Map<String, Value> {
        let id = match self.dialect.ids {
            CallIds::Once | CallIds::Repeated => Some(Wire::Chat.call_id(&call.id)),
            CallIds::Empty => Some(String::new()),
            CallIds::Missing => None,
            CallIds::Nine => Some(mint::random_word("", &call.id, 9)),
        };
        let mut head = Map::new();
        head.extend(id.map(|id| ("id".to_owned(), json!(id))));
        head.insert("type".to_owned(), json!("function"));
        head
    }

    /// The arguments as the dialect has them; `None`: the field is left out.
    fn arguments(&self, call: &ToolBlock) -> Option<Value> {
        let none =
            call.streamed_input.is_none() && call.input.as_object().is_some_and(Map::is_empty);
        match self.dialect.no_arguments {
            NoArguments::Empty if none => Some(json!("")),
            NoArguments::Null if none => Some(Value::Null),
            NoArguments::Missing if none => None,
            _ => Some(json!(arguments(call))),
        }
    }

    fn reports_usage(&self) -> bool {
        let options = self.request.body.get("stream_options");
        let asked = options.and_then(|options| options.get("include_usage"));
        match self.dialect.usage {
            StreamUsage::Asked => asked == Some(&Value::Bool(true)),
            StreamUsage::Always => true,
            StreamUsage::WithFinish | StreamUsage::Never => false,
        }
    }

    fn reasoning_field(&self) -> Option<&'static str> {
        match self.dialect.reasoning {
            ReasoningField::ReasoningContent => Some("reasoning_content"),
            ReasoningField::Reasoning | ReasoningField::Details => Some("reasoning"),
            ReasoningField::Hidden => None,
        }
    }

    fn has_thinking(&self) -> bool {
        self.message.content.iter().any(is_thought)
    }

    /// The encrypted form of all reasoning, behind the last of it.
    fn push_encrypted_reasoning(&self, events: &mut Vec<Event>) {
        if self.dialect.reasoning == ReasoningField::Details {
            let detail = self.encrypted_detail("thinking");
            self.delta(events, "reasoning", &json!({"reasoning_details": [detail]}));
        }
    }

    fn encrypted_detail(&self, what: &str) -> Value {
        let seed = seed(self.request, what);
        let scripted = self
            .message
            .content
            .iter()
            .rev()
            .find_map(|block| match block {
                Block::Thinking { signature, .. } => Some(signature),
                Block::RedactedThinking { data } => Some(data),
                _ => None,
            });
        let data = match scripted {
            Some(scripted) if !scripted.is_empty() => scripted.clone(),
            _ => mint::signature_of(Wire::Chat, self.request.model(), "", &seed),
        };
        json!({
            "type": "reasoning.encrypted",
            "data": data,
            "id": mint::item_id("rs", &seed, None),
            "format": DETAIL_FORMAT,
            "index": 0,
        })
    }

    fn has_text(&self) -> bool {
        let content = &self.message.content;
        !is_refusal(self.message) && content.iter().any(|it| matches!(it, Block::Text { .. }))
    }

    fn finish_reason(&self) -> &str {
        match self.message.effective_stop_reason() {
            "end_turn" | "stop_sequence" | "refusal" | "pause_turn" => "stop",
            "tool_use" => "tool_calls",
            "max_tokens" | "model_context_window_exceeded" => "length",
            other => other,
        }
    }

    fn event(&self, name: &str, data: &Value) -> Event {
        let data = data.to_string();
        Event {
            name: name.to_owned(),
            data,
            form: Form::Data,
        }
    }
}
