//! What backends add to a request, merged in, and the bytes of the whole.
//!
//! A backend may bring tools, top-level fields and headers of its provider. What belongs to the
//! session stays the session's.

use serde_json::{Map, Value};

use crate::request::ModelRequest;

/// Merges a backend's top-level fields in: objects are merged, anything else replaces. Fields that
/// are in `kept` are the session's.
pub(super) fn fields(
    body: &mut Map<String, Value>,
    request: &ModelRequest,
    kept: &[&str],
    notes: &mut Vec<String>,
) {
    for (name, value) in &request.contribution.fields {
        if kept.contains(&name.as_str()) {
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

/// Adds a backend's tools behind the routing table's, except where a name is taken.
pub(super) fn tools(tools: &mut Vec<Value>, request: &ModelRequest, notes: &mut Vec<String>) {
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
}

/// The headers of a request: what the reply may be, those of the wire, and those of backends whose
/// names begin with `prefix`. Credentials and framing are the host's.
pub(super) fn headers(
    request: &ModelRequest,
    own: &[(&str, &str)],
    prefix: &str,
    notes: &mut Vec<String>,
) -> Vec<(String, String)> {
    let accept = if request.stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    let mut headers: Vec<(String, String)> =
        [("accept", accept), ("content-type", "application/json")]
            .iter()
            .chain(own)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
    for (name, value) in &request.contribution.headers {
        let name = name.to_ascii_lowercase();
        if !name.starts_with(prefix) {
            notes.push(format!(
                "a backend's header `{name}` is left out: backends may set only `{prefix}…`"
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

/// A body as compact JSON. A map of JSON values can always be written.
pub(super) fn bytes(body: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}
