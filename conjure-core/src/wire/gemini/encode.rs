//! Encodes a request: body and headers of `generateContent`.
//!
//! Equal requests give equal bytes, and a longer conversation begins like the shorter one.
//! The model and whether the reply streams stand in the URL; the key is added by the host.

use serde_json::{Map, Value, json};

use super::contents::contents;
use super::{schema, thinking};
use crate::context::notes as words;
use crate::request::{ModelRequest, ToolChoice};
use crate::wire::files::FileEncoder;
use crate::wire::tools::{self, ToolNotes};
use crate::wire::{Encoded, fragments};

/// The most stop sequences that a request may have.
const MAX_STOP_SEQUENCES: usize = 5;

/// Encodes a request.
pub(in crate::wire) fn encode(request: &ModelRequest) -> Encoded {
    let mut told = ToolNotes::default();
    let mut body = Map::new();
    let third = thinking::is_third(&request.model);
    let declared = tools::encode_tools(request, &mut told, |schema| schema::project(&schema));
    let has_tools = !declared.is_empty();
    let mut tools = Vec::new();
    if has_tools {
        let declarations: Vec<Value> = declared
            .into_iter()
            .map(|(tool, parameters)| {
                let mut fields = Map::new();
                fields.insert("name".to_owned(), tool.name.as_str().into());
                if !tool.description.trim().is_empty() {
                    fields.insert("description".to_owned(), tool.description.as_str().into());
                }
                // A tool without arguments has no parameters at all here.
                if parameters.get("properties").is_some() {
                    fields.insert("parameters".to_owned(), parameters);
                }
                Value::Object(fields)
            })
            .collect();
        tools.push(json!({ "functionDeclarations": declarations }));
    }
    tools.extend(request.contribution.tools.iter().cloned());
    let mut system: Vec<Value> = request
        .system
        .iter()
        .filter(|text| !text.trim().is_empty())
        .map(|text| json!({ "text": text }))
        .collect();
    let mut config = config(request, &mut told.notes);
    if let Some(format) = &request.response_format {
        if has_tools && !third {
            // The older models take a form or tools, not both.
            let asked = words::answer_form(&format.schema);
            system.push(json!({ "text": asked }));
            told.notes.push(format!(
                "the form `{}` is asked for in words: this model takes none beside tools",
                format.name
            ));
        } else {
            config.insert("responseMimeType".to_owned(), "application/json".into());
            config.insert("responseJsonSchema".to_owned(), format.schema.clone());
        }
    }
    if let Some(choice) = tools::choice(request, !has_tools, &mut told) {
        body.insert(
            "toolConfig".to_owned(),
            json!({"functionCallingConfig": calling(choice)}),
        );
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    if !system.is_empty() {
        body.insert("systemInstruction".to_owned(), json!({ "parts": system }));
    }
    body.insert("generationConfig".to_owned(), Value::Object(config));
    let notes = &mut told.notes;
    let contents = contents(
        request.messages.messages(),
        &request.contribution,
        third,
        &mut FileEncoder {
            attachments: &request.attachments,
            notes,
        },
    );
    body.insert("contents".to_owned(), Value::Array(contents));
    let kept = ["contents", "tools", "systemInstruction"];
    fragments::fields(&mut body, request, &kept, notes);
    Encoded {
        headers: fragments::headers(request, &[], "x-goog-request-", notes),
        body: fragments::bytes(&body),
        notes: told.notes,
        quarantined: told.quarantined,
    }
}

/// Where the request goes, below the API's version. A model's name never leads elsewhere.
pub(in crate::wire) fn resource(request: &ModelRequest) -> String {
    let model = request.model.trim_start_matches("models/");
    let mut place = String::from("models/");
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'@') {
            place.push(char::from(byte));
        } else {
            place.push_str(&format!("%{byte:02X}"));
        }
    }
    place.push_str(if request.stream {
        ":streamGenerateContent?alt=sse"
    } else {
        ":generateContent"
    });
    place
}

fn config(request: &ModelRequest, notes: &mut Vec<String>) -> Map<String, Value> {
    let mut config = Map::new();
    config.insert(
        "maxOutputTokens".to_owned(),
        request.max_tokens.max(1).into(),
    );
    let stops: Vec<&String> = request
        .stop_sequences
        .iter()
        .filter(|stop| !stop.is_empty())
        .take(MAX_STOP_SEQUENCES)
        .collect();
    if stops.len() < request.stop_sequences.len() {
        notes.push(format!("only {} stop sequences are sent", stops.len()));
    }
    if !stops.is_empty() {
        config.insert("stopSequences".to_owned(), json!(stops));
    }
    if let Some(thinking) = thinking::thinking(request, notes) {
        config.insert("thinkingConfig".to_owned(), thinking);
    }
    config
}

fn calling(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::Any => json!({"mode": "ANY"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    }
}
