//! Encodes a request: body and headers of `POST /v1/messages`.
//!
//! Equal requests give equal bytes, and a longer conversation begins like the shorter one, so
//! that the provider's cache finds it again. The key is added by the host.

use serde_json::{Map, Value, json};

use super::output::{self, FormRequest};
use super::{API_VERSION, cache, messages, thinking};
use crate::request::{ModelRequest, ToolChoice};
use crate::wire::tools::{self, ToolNotes};
use crate::wire::{Encoded, fragments};

/// Encodes a request.
#[must_use]
pub fn encode(request: &ModelRequest) -> Encoded {
    let mut told = ToolNotes::default();
    let mut body = Map::new();
    body.insert("model".to_owned(), request.model.as_str().into());
    body.insert("max_tokens".to_owned(), request.max_tokens.max(1).into());
    body.insert("stream".to_owned(), request.stream.into());
    let (tools, own_tools) = tools(request, &mut told);
    let choice = tools::choice(request, tools.is_empty(), &mut told).map(tool_choice);
    let notes = &mut told.notes;
    let stops = stop_sequences(request, notes);
    if !stops.is_empty() {
        body.insert("stop_sequences".to_owned(), json!(stops));
    }
    let thinking = thinking::thinking(request, notes);
    if let Some(field) = thinking.field {
        body.insert("thinking".to_owned(), field);
    }
    if let Some(choice) = choice {
        body.insert("tool_choice".to_owned(), choice);
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    let form = request.response_format.as_ref();
    let (form, asked) = match form.map(|format| output::form_request(format, notes)) {
        Some(FormRequest::Config(config)) => (Some(config), None),
        Some(FormRequest::Instruction(words)) => (None, Some(words)),
        None => (None, None),
    };
    let system = system(request, asked.as_ref());
    if !system.is_empty() {
        body.insert("system".to_owned(), Value::Array(system));
    }
    let messages = messages::messages(
        request.messages.messages(),
        thinking.thoughts_end,
        &request.attachments,
        &request.contribution,
        notes,
    );
    body.insert("messages".to_owned(), Value::Array(messages));
    if let Some(config) = form {
        body.insert("output_config".to_owned(), config);
    }
    fragments::fields(
        &mut body,
        request,
        &[
            "model",
            "messages",
            "stream",
            "tools",
            "system",
            "max_tokens",
        ],
        notes,
    );
    cache::mark(&mut body, own_tools);
    Encoded {
        headers: fragments::headers(
            request,
            &[("anthropic-version", API_VERSION)],
            "anthropic-",
            notes,
        ),
        body: fragments::bytes(&body),
        notes: told.notes,
        quarantined: told.quarantined,
    }
}

/// The stop sequences that the API takes.
fn stop_sequences<'a>(request: &'a ModelRequest, notes: &mut Vec<String>) -> Vec<&'a String> {
    let all = request.stop_sequences.iter();
    let stops: Vec<&String> = all.filter(|stop| !stop.trim().is_empty()).collect();
    if stops.len() < request.stop_sequences.len() {
        notes.push("a stop sequence of white space only is left out".to_owned());
    }
    stops
}

/// The instructions, and behind them what an answer's form is asked for with.
fn system(request: &ModelRequest, form_instruction: Option<&String>) -> Vec<Value> {
    let blocks = request.system.iter().chain(form_instruction);
    blocks
        .filter(|text| !text.trim().is_empty())
        .map(|text| json!({"type": "text", "text": text}))
        .collect()
}

/// The routing table's tools in its order, then those that backends add; and how many the first
/// are.
fn tools(request: &ModelRequest, tool_notes: &mut ToolNotes) -> (Vec<Value>, usize) {
    let mut tools: Vec<Value> = Vec::new();
    for (tool, input_schema) in tools::encode_tools(request, tool_notes, Ok) {
        let mut definition = json!({"name": tool.name});
        if let Some(fields) = definition.as_object_mut() {
            if !tool.description.trim().is_empty() {
                fields.insert("description".to_owned(), tool.description.as_str().into());
            }
            fields.insert("input_schema".to_owned(), input_schema);
        }
        tools.push(definition);
    }
    let own = tools.len();
    fragments::tools(&mut tools, request, &mut tool_notes.notes);
    (tools, own)
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::Any => json!({"type": "any"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    }
}
