//! Encodes a request: body and headers of `POST /v1/messages`.
//!
//! The same request gives the same bytes, and a longer conversation begins like the shorter one, so
//! that the provider's cache finds it again. The key is added by the host.

use serde_json::{Map, Value, json};

use super::{API_VERSION, cache, messages, schema, thinking};
use crate::request::{ModelRequest, ToolChoice};
use crate::wire::Encoded;

/// Encodes a request.
#[must_use]
pub fn encode(request: &ModelRequest) -> Encoded {
    let mut notes = Vec::new();
    let mut body = Map::new();
    body.insert("model".to_owned(), request.model.as_str().into());
    body.insert("max_tokens".to_owned(), request.max_tokens.max(1).into());
    body.insert("stream".to_owned(), request.stream.into());
    let (tools, own_tools) = tools(request, &mut notes);
    let choice = tool_choice(request, tools.is_empty(), &mut notes);
    let stops: Vec<&String> = request
        .stop_sequences
        .iter()
        .filter(|stop| !stop.trim().is_empty())
        .collect();
    if stops.len() < request.stop_sequences.len() {
        notes.push("a stop sequence of white space only is left out".to_owned());
    }
    if !stops.is_empty() {
        body.insert("stop_sequences".to_owned(), json!(stops));
    }
    if let Some(thinking) = thinking::thinking(request, &mut notes) {
        body.insert("thinking".to_owned(), thinking);
    }
    if let Some(choice) = choice {
        body.insert("tool_choice".to_owned(), choice);
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    let system: Vec<Value> = request
        .system
        .iter()
        .filter(|text| !text.trim().is_empty())
        .map(|text| json!({"type": "text", "text": text}))
        .collect();
    if !system.is_empty() {
        body.insert("system".to_owned(), Value::Array(system));
    }
    let messages = messages::messages(
        request.messages.messages(),
        &request.attachments,
        &request.contribution.user_content,
        &mut notes,
    );
    body.insert("messages".to_owned(), Value::Array(messages));
    contribute(&mut body, &request.contribution.fields, &mut notes);
    cache::mark(&mut body, own_tools);
    Encoded {
        headers: headers(request, &mut notes),
        body: Value::Object(body).to_string().into_bytes(),
        notes,
    }
}

/// The routing table's tools in its order, then those that backends add; and how many the first
/// are.
fn tools(request: &ModelRequest, notes: &mut Vec<String>) -> (Vec<Value>, usize) {
    let mut tools = Vec::new();
    for tool in &request.tools {
        let (input_schema, note) = schema::input_schema(&tool.input_schema);
        if let Some(note) = note {
            notes.push(format!("tool `{}`: {note}", tool.name));
        }
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
    for tool in &request.contribution.tools {
        let name = tool.get("name").and_then(Value::as_str);
        let taken = name.filter(|name| {
            let same = |other: &Value| other.get("name").is_some_and(|other| other == name);
            tools.iter().any(same)
        });
        match taken {
            Some(name) => notes.push(format!(
                "a backend's tool `{name}` is left out: the name is taken"
            )),
            None => tools.push(tool.clone()),
        }
    }
    (tools, own)
}

fn tool_choice(request: &ModelRequest, no_tools: bool, notes: &mut Vec<String>) -> Option<Value> {
    let choice = match &request.tool_choice {
        ToolChoice::Auto => return None,
        ToolChoice::Any => json!({"type": "any"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if no_tools {
        if request.tool_choice != ToolChoice::None {
            notes.push("the choice of a tool is left out: there are no tools".to_owned());
        }
        return None;
    }
    Some(choice)
}

/// Merges a backend's top-level fields in: objects are merged, anything else replaces.
fn contribute(body: &mut Map<String, Value>, fields: &Map<String, Value>, notes: &mut Vec<String>) {
    for (name, value) in fields {
        if matches!(
            name.as_str(),
            "model" | "messages" | "stream" | "tools" | "system" | "max_tokens"
        ) {
            notes.push(format!(
                "a backend's field `{name}` is left out: it is the session's"
            ));
            continue;
        }
        merge(body, name, value);
    }
}

fn merge(into: &mut Map<String, Value>, name: &str, value: &Value) {
    match (into.get_mut(name), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            for (name, value) in new {
                merge(old, name, value);
            }
        }
        _ => {
            into.insert(name.to_owned(), value.clone());
        }
    }
}

fn headers(request: &ModelRequest, notes: &mut Vec<String>) -> Vec<(String, String)> {
    let accept = if request.stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    let mut headers: Vec<(String, String)> = [
        ("accept", accept),
        ("content-type", "application/json"),
        ("anthropic-version", API_VERSION),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    for (name, value) in &request.contribution.headers {
        let name = name.to_ascii_lowercase();
        // Credentials and framing are the host's.
        if !name.starts_with("anthropic-") {
            notes.push(format!(
                "a backend's header `{name}` is left out: backends may set only `anthropic-…`"
            ));
            continue;
        }
        match headers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => old.clone_from(value),
            None => headers.push((name, value.clone())),
        }
    }
    headers
}
