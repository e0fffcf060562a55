//! Encodes a request: body and headers of `POST /v1/responses`.
//!
//! Equal requests give equal bytes, and a longer conversation begins like the shorter one.
//! Nothing is stored at the provider. The key is added by the host.

use serde_json::{Map, Value, json};

use super::messages;
use crate::request::{ModelRequest, ToolChoice};
use crate::wire::files::FileEncoder;
use crate::wire::openai::{effort, reasons};
use crate::wire::tools::{self, ToolNotes};
use crate::wire::{Encoded, fragments, schema};

/// The least that the API takes as a limit on output.
const MIN_OUTPUT_TOKENS: u32 = 16;

/// Encodes a request.
pub(in crate::wire) fn encode(request: &ModelRequest) -> Encoded {
    let mut told = ToolNotes::default();
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", request.model.as_str().into());
    set(
        "max_output_tokens",
        request.max_tokens.max(MIN_OUTPUT_TOKENS).into(),
    );
    set("stream", request.stream.into());
    set("store", false.into());
    let thinks = request.thinking_tokens.filter(|tokens| *tokens > 0);
    if reasons(&request.model) {
        set("include", json!(["reasoning.encrypted_content"]));
        if let Some(tokens) = thinks {
            set(
                "reasoning",
                json!({"effort": effort(tokens), "summary": "auto"}),
            );
        }
    } else if thinks.is_some() {
        told.notes.push(format!(
            "thinking is left out: {} does not think",
            request.model
        ));
    }
    if !request.stop_sequences.is_empty() {
        told.notes
            .push("stop sequences are left out: this API has none".to_owned());
    }
    if let Some(format) = &request.response_format {
        let closed = schema::closed(&format.schema);
        let is_strict = closed.as_ref().is_some_and(schema::is_strict);
        let schema = closed.filter(|_| is_strict);
        let format = json!({
            "type": "json_schema",
            "name": format.name,
            "schema": schema.unwrap_or_else(|| format.schema.clone()),
            "strict": is_strict,
        });
        set("text", json!({ "format": format }));
    }
    let tools = tools(request, &mut told);
    if let Some(choice) = tools::choice(request, tools.is_empty(), &mut told) {
        set("tool_choice", tool_choice(choice));
    }
    if !tools.is_empty() {
        set("tools", Value::Array(tools));
    }
    let system: Vec<&str> = request
        .system
        .iter()
        .map(String::as_str)
        .filter(|text| !text.trim().is_empty())
        .collect();
    if !system.is_empty() {
        set("instructions", system.join("\n\n").into());
    }
    let notes = &mut told.notes;
    let input = messages::items(
        request.messages.messages(),
        &request.contribution,
        &mut FileEncoder {
            attachments: &request.attachments,
            notes,
        },
    );
    set("input", Value::Array(input));
    fragments::fields(
        &mut body,
        request,
        &[
            "model",
            "input",
            "stream",
            "store",
            "tools",
            "instructions",
            "max_output_tokens",
            "previous_response_id",
            "conversation",
            "background",
        ],
        notes,
    );
    Encoded {
        headers: fragments::headers(request, &[], "openai-", notes),
        body: fragments::bytes(&body),
        notes: told.notes,
        quarantined: told.quarantined,
    }
}

fn tools(request: &ModelRequest, tool_notes: &mut ToolNotes) -> Vec<Value> {
    let mut tools: Vec<Value> =
        tools::encode_tools(request, tool_notes, |schema| Ok(schema::with_items(schema)))
            .into_iter()
            .map(|(tool, parameters)| {
                let is_strict = schema::is_strict(&parameters);
                let mut definition = json!({"type": "function", "name": tool.name});
                if let Some(fields) = definition.as_object_mut() {
                    if !tool.description.trim().is_empty() {
                        fields.insert("description".to_owned(), tool.description.as_str().into());
                    }
                    fields.insert("parameters".to_owned(), parameters);
                    // Left out, the API would make the schema strict by itself.
                    fields.insert("strict".to_owned(), is_strict.into());
                }
                definition
            })
            .collect();
    fragments::tools(&mut tools, request, &mut tool_notes.notes);
    tools
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::Any => "required".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
    }
}
