//! Encodes a request: body and headers of `POST …/chat/completions`.
//!
//! Equal requests give equal bytes, and a longer conversation begins like the shorter one.
//! The key is added by the host.

use serde_json::{Map, Value, json};

use super::messages::messages;
use super::{AnswerForm, AnyTool, Dialect, Effort, Limit};
use crate::context::notes;
use crate::request::{ModelRequest, ToolChoice};
use crate::wire::files::FileEncoder;
use crate::wire::openai::{effort, reasons};
use crate::wire::tools::{self, ToolNotes};
use crate::wire::{Encoded, fragments, schema};

/// The most stop sequences that a request may have.
const MAX_STOP_SEQUENCES: usize = 4;

/// Encodes a request.
pub(in crate::wire) fn encode(request: &ModelRequest, dialect: &Dialect) -> Encoded {
    let mut told = ToolNotes::default();
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", request.model.as_str().into());
    let limit = match dialect.limit {
        Limit::MaxTokens => "max_tokens",
        Limit::MaxCompletionTokens => "max_completion_tokens",
    };
    set(limit, request.max_tokens.max(1).into());
    set("stream", request.stream.into());
    if request.stream && dialect.stream_usage {
        set("stream_options", json!({"include_usage": true}));
    }
    if let Some((name, value)) = thinking(request, dialect, &mut told.notes) {
        set(name, value);
    }
    let stops = stop_sequences(request, dialect, &mut told.notes);
    if !stops.is_empty() {
        set("stop", json!(stops));
    }
    let mut system: Vec<String> = request
        .system
        .iter()
        .filter(|text| !text.trim().is_empty())
        .cloned()
        .collect();
    if let Some(format) = &request.response_format {
        let (form, words) = response_format(&format.name, &format.schema, dialect);
        set("response_format", form);
        system.extend(words);
    }
    let tools = tools(request, dialect, &mut told);
    if let Some(choice) = tools::choice(request, tools.is_empty(), &mut told) {
        set("tool_choice", tool_choice(choice, dialect));
    }
    if !tools.is_empty() {
        set("tools", Value::Array(tools));
    }
    let mut list = Vec::new();
    if !system.is_empty() {
        list.push(json!({"role": "system", "content": system.join("\n\n")}));
    }
    let notes = &mut told.notes;
    list.extend(messages(
        request.messages.messages(),
        &request.contribution,
        dialect,
        &mut FileEncoder {
            attachments: &request.attachments,
            notes,
        },
    ));
    set("messages", Value::Array(list));
    let kept = ["model", "messages", "stream", "tools", limit, "n"];
    fragments::fields(&mut body, request, &kept, notes);
    Encoded {
        headers: fragments::headers(request, &[], "openai-", notes),
        body: fragments::bytes(&body),
        notes: told.notes,
        quarantined: told.quarantined,
    }
}

/// How much to think, as the dialect says it.
fn thinking(
    request: &ModelRequest,
    dialect: &Dialect,
    notes: &mut Vec<String>,
) -> Option<(&'static str, Value)> {
    let wanted = request.thinking_tokens.filter(|tokens| *tokens > 0);
    match (dialect.effort, wanted) {
        (Effort::Switch, wanted) => {
            let word = if wanted.is_some() {
                "enabled"
            } else {
                "disabled"
            };
            Some(("thinking", json!({"type": word})))
        }
        (_, None) => None,
        (Effort::Word, Some(tokens)) if reasons(&request.model) => {
            Some(("reasoning_effort", effort(tokens).into()))
        }
        (Effort::Budget, Some(tokens)) => Some(("reasoning", json!({"max_tokens": tokens}))),
        (Effort::Word | Effort::None, Some(_)) => {
            notes.push(format!(
                "how much to think is left out: {} has no setting for it with {}",
                dialect.title, request.model
            ));
            None
        }
    }
}

fn stop_sequences<'a>(
    request: &'a ModelRequest,
    dialect: &Dialect,
    notes: &mut Vec<String>,
) -> Vec<&'a String> {
    let mut stops: Vec<&String> = request
        .stop_sequences
        .iter()
        .filter(|stop| !stop.is_empty())
        .collect();
    if dialect.effort == Effort::Word && reasons(&request.model) && !stops.is_empty() {
        notes.push("stop sequences are left out: models that reason take none".to_owned());
        stops.clear();
    }
    if stops.len() > MAX_STOP_SEQUENCES {
        notes.push(format!(
            "only the first {MAX_STOP_SEQUENCES} stop sequences are sent"
        ));
        stops.truncate(MAX_STOP_SEQUENCES);
    }
    stops
}

/// The field, and words for the system where the field cannot say it all.
fn response_format(name: &str, schema: &Value, dialect: &Dialect) -> (Value, Option<String>) {
    if dialect.form == AnswerForm::AnyObject {
        let words = notes::answer_form(schema);
        return (json!({"type": "json_object"}), Some(words));
    }
    let closed = schema::closed(schema);
    let is_strict = closed.as_ref().is_some_and(schema::is_strict);
    let schema = closed
        .filter(|_| is_strict)
        .unwrap_or_else(|| schema.clone());
    let form = json!({"name": name, "schema": schema, "strict": is_strict});
    (json!({"type": "json_schema", "json_schema": form}), None)
}

fn tools(request: &ModelRequest, dialect: &Dialect, tool_notes: &mut ToolNotes) -> Vec<Value> {
    let mut tools: Vec<Value> =
        tools::encode_tools(request, tool_notes, |schema| Ok(schema::with_items(schema)))
            .into_iter()
            .map(|(tool, parameters)| {
                let is_strict = dialect.strict_tools && schema::is_strict(&parameters);
                let mut function = Map::new();
                function.insert("name".to_owned(), tool.name.as_str().into());
                if !tool.description.trim().is_empty() {
                    function.insert("description".to_owned(), tool.description.as_str().into());
                }
                function.insert("parameters".to_owned(), parameters);
                if is_strict {
                    function.insert("strict".to_owned(), true.into());
                }
                json!({"type": "function", "function": function})
            })
            .collect();
    tools.extend(request.contribution.tools.iter().cloned());
    tools
}

fn tool_choice(choice: &ToolChoice, dialect: &Dialect) -> Value {
    match (choice, dialect.any_tool) {
        (ToolChoice::Auto, _) => "auto".into(),
        (ToolChoice::Any, AnyTool::Required) => "required".into(),
        (ToolChoice::Any, AnyTool::Any) => "any".into(),
        (ToolChoice::None, _) => "none".into(),
        (ToolChoice::Tool(name), _) => json!({"type": "function", "function": {"name": name}}),
    }
}
