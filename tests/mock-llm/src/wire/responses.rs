//! `OpenAI` Responses: a message as events or as one response object.
//!
//! Follows the grammar of recorded exchanges: each block is an output item, added, told in deltas and
//! done, and the last event has the whole response. Errors are in `openai`.

use serde_json::{Map, Value, json};

use super::Wire;
use super::openai::{error_type, headers, usage};
use super::text::{arguments, is_refusal, model, put, seed, split_deltas};
use crate::delivery::RenderedAnswer;
use crate::fault::{Event, Form, WireEvents, apply};
use crate::message::{Block, Message, ToolBlock};
use crate::mint;
use crate::request::{Request, array};

/// A message as the request asks for it: as a stream or whole.
pub(super) fn message(message: &Message, request: &Request) -> RenderedAnswer {
    let writer = Writer { message, request };
    let items = writer.items();
    if !request.wants_stream() {
        let finished: Vec<Value> = items.into_iter().map(|item| item.done).collect();
        return RenderedAnswer {
            status: 200,
            headers: headers("application/json", request),
            body: vec![
                writer
                    .final_response(&finished)
                    .to_string()
                    .into_bytes()
                    .into(),
            ],
            stream: false,
        };
    }
    let wire = WireEvents {
        second_start: message.faults.second_start.as_ref().map(|fault| {
            let mut response = writer.response("in_progress", &[]);
            if let Some(id) = &fault.id {
                put(&mut response, "id", json!(id));
            }
            event("response.created", 0, json!({"response": response}))
        }),
        ping: Some(Event::comment("keep-alive")),
        ping_after: None,
        error: writer.error_events(),
    };
    RenderedAnswer {
        status: 200,
        headers: headers("text/event-stream; charset=utf-8", request),
        body: apply(writer.events(items), &message.faults, wire)
            .into_iter()
            .map(|event| event.into_bytes().into())
            .collect(),
        stream: true,
    }
}

struct Writer<'a> {
    message: &'a Message,
    request: &'a Request,
}

/// An output item: how it begins, what is told of it, and how it ends.
struct Item {
    added: Value,
    deltas: Vec<(&'static str, Value)>,
    done: Value,
}

impl Writer<'_> {
    fn items(&self) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        let last = self.message.content.len().saturating_sub(1);
        for (number, block) in self.message.content.iter().enumerate() {
            let before = items
                .last()
                .filter(|item| item.done.get("type") == Some(&json!("reasoning")))
                .and_then(|item| item.done.get("id")?.as_str())
                .map(str::to_owned);
            let id = |prefix: &str| {
                let seed = seed(self.request, &format!("item {number}"));
                mint::item_id(prefix, &seed, before.as_deref())
            };
            items.push(match block {
                Block::Text { text } => self.text(&id("msg"), text, number == last),
                Block::Thinking {
                    thinking,
                    signature,
                } => self.reasoning(&id("rs"), thinking, signature),
                Block::RedactedThinking { data } => self.reasoning(&id("rs"), "", data),
                Block::ToolUse(tool) if self.is_custom(tool) => self.custom(&id("ctc"), tool),
                Block::ToolUse(tool) => self.call(&id("fc"), tool, number == last),
                Block::ServerToolUse(tool) => code_interpreter_item(&id("ci"), tool),
                Block::Raw { value, wire } if *wire == Wire::Responses => Item {
                    added: value.clone(),
                    deltas: Vec::new(),
                    done: value.clone(),
                },
                Block::Raw { .. } => continue,
            });
        }
        items
    }

    fn text(&self, id: &str, text: &str, last: bool) -> Item {
        let refusal = is_refusal(self.message);
        let part = |text: &str| {
            if refusal {
                json!({"type": "refusal", "refusal": text})
            } else {
                json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
            }
        };
        let item = |status: &str, content: Vec<Value>| {
            let mut item = json!({
                "id": id,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            });
            if self.message.dialect.responses.phases {
                let phase = if last { "final_answer" } else { "commentary" };
                put(&mut item, "phase", json!(phase));
            }
            item
        };
        let (delta, done, field) = if refusal {
            ("response.refusal.delta", "response.refusal.done", "refusal")
        } else {
            (
                "response.output_text.delta",
                "response.output_text.done",
                "text",
            )
        };
        let place = |mut more: Value| {
            put(&mut more, "item_id", json!(id));
            put(&mut more, "content_index", json!(0));
            more
        };
        let mut told = vec![(
            "response.content_part.added",
            place(json!({"part": part("")})),
        )];
        told.extend(
            split_deltas(text, self.message.text_delta)
                .into_iter()
                .map(|piece| (delta, place(json!({"delta": piece, "logprobs": []})))),
        );
        let mut whole = place(json!({"logprobs": []}));
        put(&mut whole, field, json!(text));
        told.push((done, whole));
        told.push((
            "response.content_part.done",
            place(json!({"part": part(text)})),
        ));
        let cut = last && self.is_cut_short();
        let status = if cut { "incomplete" } else { "completed" };
        Item {
            added: item("in_progress", Vec::new()),
            deltas: told,
            done: item(status, vec![part(text)]),
        }
    }

    fn reasoning(&self, id: &str, thinking: &str, scripted: &str) -> Item {
        let include = array(&self.request.body, "include");
        let asked = include.contains(&json!("reasoning.encrypted_content"));
        let encrypted = asked.then(|| {
            if scripted.is_empty() {
                mint::signature_of(Wire::Responses, self.request.model(), "", id)
            } else {
                scripted.to_owned()
            }
        });
        let item = |summary: Vec<Value>| {
            let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
            if let Some(encrypted) = &encrypted {
                put(&mut item, "encrypted_content", json!(encrypted));
            }
            item
        };
        if thinking.is_empty() {
            return Item {
                added: item(Vec::new()),
                deltas: Vec::new(),
                done: item(Vec::new()),
            };
        }
        let part = |text: &str| json!({"type": "summary_text", "text": text});
        let place = |mut more: Value| {
            put(&mut more, "item_id", json!(id));
            put(&mut more, "summary_index", json!(0));
            more
        };
        let mut told = vec![(
            "response.reasoning_summary_part.added",
            place(json!({"part": part("")})),
        )];
        told.extend(
            split_deltas(thinking, self.message.text_delta)
                .into_iter()
                .map(|piece| {
                    (
                        "response.reasoning_summary_text.delta",
                        place(json!({"delta": piece})),
                    )
                }),
        );
        told.push((
            "response.reasoning_summary_text.done",
            place(json!({"text": thinking})),
        ));
        told.push((
            "response.reasoning_summary_part.done",
            place(json!({"part": part(thinking)})),
        ));
        Item {
            added: item(Vec::new()),
            deltas: told,
            done: item(vec![part(thinking)]),
        }
    }

    fn call(&self, id: &str, tool: &ToolBlock, last: bool) -> Item {
        let text = arguments(tool);
        let cut = last && self.is_cut_short();
        let item = |status: &str, arguments: &str| {
            json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "arguments": arguments,
                "call_id": Wire::Responses.call_id(&tool.id),
                "name": tool.name,
            })
        };
        let mut told = self.input_deltas(id, "response.function_call_arguments.delta", &text);
        if !cut {
            told.push((
                "response.function_call_arguments.done",
                json!({"item_id": id, "arguments": text}),
            ));
        }
        Item {
            added: item("in_progress", ""),
            deltas: told,
            done: item(if cut { "incomplete" } else { "completed" }, &text),
        }
    }

    /// The input of a custom tool is free text: a scripted text, or else the field `input`.
    fn custom(&self, id: &str, tool: &ToolBlock) -> Item {
        let field = tool.input.get("input").and_then(Value::as_str);
        let text = match (&tool.streamed_input, field) {
            (Some(text), _) => text.clone(),
            (None, Some(text)) => text.to_owned(),
            (None, None) => arguments(tool),
        };
        let item = |status: &str, input: &str| {
            json!({
                "id": id,
                "type": "custom_tool_call",
                "status": status,
                "input": input,
                "call_id": Wire::Responses.call_id(&tool.id),
                "name": tool.name,
            })
        };
        let mut told = self.input_deltas(id, "response.custom_tool_call_input.delta", &text);
        told.push((
            "response.custom_tool_call_input.done",
            json!({"item_id": id, "input": text}),
        ));
        Item {
            added: item("in_progress", ""),
            deltas: told,
            done: item("completed", &text),
        }
    }

    fn input_deltas(&self, id: &str, name: &'static str, text: &str) -> Vec<(&'static str, Value)> {
        split_deltas(text, self.message.json_delta)
            .into_iter()
            .map(|piece| (name, json!({"item_id": id, "delta": piece})))
            .collect()
    }

    fn is_custom(&self, tool: &ToolBlock) -> bool {
        array(&self.request.body, "tools").iter().any(|declared| {
            declared.get("type") == Some(&json!("custom"))
                && declared.get("name") == Some(&json!(tool.name))
        })
    }

    fn events(&self, items: Vec<Item>) -> Vec<Event> {
        let start = self.response("in_progress", &[]);
        let mut events = vec![
            ("response.created", json!({"response": start})),
            ("response.in_progress", json!({"response": start})),
        ];
        let mut finished = Vec::new();
        for (number, item) in items.into_iter().enumerate() {
            events.push((
                "response.output_item.added",
                json!({"output_index": number, "item": item.added}),
            ));
            events.extend(item.deltas.into_iter().map(|(name, mut told)| {
                put(&mut told, "output_index", json!(number));
                (name, told)
            }));
            events.push((
                "response.output_item.done",
                json!({"output_index": number, "item": item.done}),
            ));
            finished.push(item.done);
        }
        let last = if self.is_cut_short() {
            "response.incomplete"
        } else {
            "response.completed"
        };
        events.push((last, json!({"response": self.final_response(&finished)})));
        events
            .into_iter()
            .enumerate()
            .map(|(sequence, (name, fields))| {
                let fields = self.rotated(fields, sequence);
                event(name, sequence, fields)
            })
            .collect()
    }

    /// Other ids at each event, of the same kind, where the dialect says so.
    fn rotated(&self, mut fields: Value, sequence: usize) -> Value {
        if !self.message.dialect.responses.rotate_item_ids {
            return fields;
        }
        let another = |id: &Value| {
            let prefix = id.as_str().and_then(|id| id.split_once('_'));
            let prefix = prefix.map_or("item", |(prefix, _)| prefix);
            json!(mint::random_word(
                &format!("{prefix}_"),
                &format!("{id}{sequence}"),
                40
            ))
        };
        if let Some(id) = fields.get_mut("item_id") {
            *id = another(id);
        }
        if let Some(id) = fields.get_mut("item").and_then(|item| item.get_mut("id")) {
            *id = another(id);
        }
        fields
    }

    fn error_events(&self) -> Vec<Event> {
        let Some(fault) = &self.message.faults.error else {
            return Vec::new();
        };
        let code = error_type(&fault.kind);
        let mut failed = self.response("failed", &[]);
        put(
            &mut failed,
            "error",
            json!({"code": code, "message": fault.message}),
        );
        vec![
            event(
                "error",
                fault.after,
                json!({"code": code, "message": fault.message, "param": null}),
            ),
            event(
                "response.failed",
                fault.after + 1,
                json!({"response": failed}),
            ),
        ]
    }

    fn is_cut_short(&self) -> bool {
        matches!(
            self.message.effective_stop_reason(),
            "max_tokens" | "model_context_window_exceeded" | "content_filter"
        )
    }

    /// The response object at its end.
    fn final_response(&self, output: &[Value]) -> Value {
        let incomplete = self.is_cut_short();
        let status = if incomplete {
            "incomplete"
        } else {
            "completed"
        };
        let mut response = self.response(status, output);
        put(
            &mut response,
            "usage",
            usage(&self.message.usage, Wire::Responses),
        );
        if incomplete {
            let reason = match self.message.effective_stop_reason() {
                "content_filter" => "content_filter",
                _ => "max_output_tokens",
            };
            put(
                &mut response,
                "incomplete_details",
                json!({"reason": reason}),
            );
        }
        response
    }

    fn response(&self, status: &str, output: &[Value]) -> Value {
        let body = &self.request.body;
        let echo = |key: &str, default: Value| body.get(key).cloned().unwrap_or(default);
        let id = self
            .message
            .id
            .clone()
            .unwrap_or_else(|| mint::item_id("resp", &seed(self.request, "response"), None));
        let mut response = Map::new();
        for (key, value) in [
            ("id", json!(id)),
            ("object", json!("response")),
            ("created_at", json!(1_700_000_000)),
            ("status", json!(status)),
            ("background", json!(false)),
            ("error", Value::Null),
            ("incomplete_details", Value::Null),
            ("instructions", echo("instructions", Value::Null)),
            ("max_output_tokens", echo("max_output_tokens", Value::Null)),
            ("model", json!(model(self.message, self.request))),
            ("output", json!(output)),
            (
                "parallel_tool_calls",
                echo("parallel_tool_calls", json!(true)),
            ),
            (
                "previous_response_id",
                echo("previous_response_id", Value::Null),
            ),
            (
                "reasoning",
                echo("reasoning", json!({"effort": null, "summary": null})),
            ),
            ("store", echo("store", json!(true))),
            ("text", echo("text", json!({"format": {"type": "text"}}))),
            ("tool_choice", echo("tool_choice", json!("auto"))),
            ("tools", echo("tools", json!([]))),
            ("truncation", echo("truncation", json!("disabled"))),
            ("usage", Value::Null),
            ("metadata", echo("metadata", json!({}))),
        ] {
            response.insert(key.to_owned(), value);
        }
        response.extend(self.message.extra.clone());
        Value::Object(response)
    }
}

/// Code that the provider ran itself.
fn code_interpreter_item(id: &str, tool: &ToolBlock) -> Item {
    let item = |status: &str, outputs: Value| {
        json!({
            "id": id,
            "type": "code_interpreter_call",
            "status": status,
            "code": tool.input.to_string(),
            "container_id": "cntr_mock",
            "outputs": outputs,
        })
    };
    Item {
        added: item("in_progress", Value::Null),
        deltas: Vec::new(),
        done: item("completed", json!([])),
    }
}

/// An event whose data begins with its type.
fn event(name: &str, sequence: usize, fields: Value) -> Event {
    let mut data = Map::new();
    data.insert("type".to_owned(), json!(name));
    data.insert("sequence_number".to_owned(), json!(sequence));
    if let Value::Object(fields) = fields {
        data.extend(fields);
    }
    Event {
        name: name.to_owned(),
        data: Value::Object(data).to_string(),
        form: Form::Named,
    }
}
