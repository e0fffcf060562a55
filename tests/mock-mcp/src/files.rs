//! Tools that read files of this machine: one says what is in a file, one shares it as a resource.

use serde_json::{Value, json};

/// What the URI of a shared file begins with.
const SHARED_PREFIX: &str = "shared://";

/// The tools, of a server with the trait `files`.
pub(crate) fn tools() -> [Value; 2] {
    [
        ("read_file", "Says what is in a file"),
        ("share_file", "Shares a file as a resource"),
    ]
    .map(|(name, description)| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": { "path": { "type": "string" } },
                "required": ["path"],
            },
        })
    })
}

/// The answer of `read_file`.
pub(crate) fn read(arguments: &Value) -> Value {
    answer(content(path(arguments)).map(|text| json!({ "type": "text", "text": text })))
}

/// The answer of `share_file`.
pub(crate) fn share(arguments: &Value) -> Value {
    let path = path(arguments);
    let name = format!("shared-{}", path.rsplit('/').next().unwrap_or(path));
    answer(content(path).map(
        |_| json!({ "type": "resource_link", "uri": format!("{SHARED_PREFIX}{path}"), "name": name }),
    ))
}

/// The content of a shared file, if the URI is one's.
pub(crate) fn resource(uri: &str) -> Option<String> {
    content(uri.strip_prefix(SHARED_PREFIX)?).ok()
}

fn path(arguments: &Value) -> &str {
    arguments["path"].as_str().unwrap_or_default()
}

fn content(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn answer(block: Result<Value, String>) -> Value {
    match block {
        Ok(block) => json!({ "content": [block] }),
        Err(text) => json!({ "content": [{ "type": "text", "text": text }], "isError": true }),
    }
}
