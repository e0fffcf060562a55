//! From the result of `tools/call` to the result of a call: parts, files, data.
//!
//! A block that this version does not know, or that is damaged, is handed on as it came.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_skill_sdk::protocol::{FileRef, Part, ToolResult};
use serde_json::{Map, Value};

/// What separates the parts of a lazy file's id.
const SEPARATOR: char = '\n';

/// Translates a result.
///
/// # Errors
/// Why it is none.
pub(crate) fn result(
    server: &str,
    mut value: Value,
    exchange_dir: Option<&Path>,
) -> Result<ToolResult, String> {
    let Some(fields) = value.as_object_mut() else {
        return Err("it is no object".to_owned());
    };
    let mut result = ToolResult {
        is_error: fields.get("isError").and_then(Value::as_bool) == Some(true),
        ..ToolResult::default()
    };
    let mut verbatim = None;
    match fields.remove("content") {
        Some(Value::Array(blocks)) => {
            if blocks.iter().any(says_more) {
                verbatim = Some(Value::Array(blocks.clone()));
            }
            let part = |block| part(server, block, exchange_dir);
            result.content = blocks.into_iter().map(part).collect();
        }
        None | Some(Value::Null) => {}
        Some(other) => result.content.push(raw(other)),
    }
    result.structured = fields
        .remove("structuredContent")
        .filter(|value| !value.is_null());
    let meta = fields.remove("_meta").map(|meta| ("mcp".to_owned(), meta));
    let content = verbatim.map(|blocks| ("mcp_content".to_owned(), blocks));
    let kept: Map<String, Value> = meta.into_iter().chain(content).collect();
    result.meta = (!kept.is_empty()).then_some(kept);
    Ok(result)
}

/// Whether a block has more than its part can say: then all are kept as they came, for whoever
/// hands the result on.
fn says_more(block: &Value) -> bool {
    let Some(fields) = block.as_object() else {
        return false;
    };
    let known: &[&str] = match block.get("type").and_then(Value::as_str) {
        Some("text") => &["type", "text"],
        Some("image") => &["type", "data", "mimeType"],
        Some("audio" | "resource" | "resource_link") => return true,
        // It is kept as it is.
        _ => return false,
    };
    fields.keys().any(|name| !known.contains(&name.as_str()))
}

/// Translates what a server says of a resource that was read. As it came it is kept beside, for
/// whoever hands it on.
pub(crate) fn contents(server: &str, value: Value, exchange_dir: Option<&Path>) -> ToolResult {
    let contents = value.get("contents").and_then(Value::as_array);
    let contents = contents.map(Vec::as_slice).unwrap_or_default();
    let content = match contents {
        // Whoever reads one knows which.
        [only] if only.get("text").is_some_and(Value::is_string) => {
            let text = only.get("text").and_then(Value::as_str);
            vec![Part::Text {
                text: text.unwrap_or_default().to_owned(),
            }]
        }
        several => {
            let part = |content: &Value| {
                embedded(server, content, exchange_dir).unwrap_or_else(|| raw(content.clone()))
            };
            several.iter().map(part).collect()
        }
    };
    ToolResult {
        content,
        meta: Some(Map::from_iter([("mcp".to_owned(), value)])),
        ..ToolResult::default()
    }
}

/// The bytes of one content of a `resources/read` result.
pub(crate) fn bytes(content: &Value) -> Option<Vec<u8>> {
    if let Some(text) = content.get("text").and_then(Value::as_str) {
        return Some(text.as_bytes().to_vec());
    }
    STANDARD.decode(content.get("blob")?.as_str()?).ok()
}

/// The server and the URI of a lazy file.
pub(crate) fn lazy_file(id: &str) -> Option<(&str, &str)> {
    id.split_once(SEPARATOR)
}

fn part(server: &str, block: Value, exchange_dir: Option<&Path>) -> Part {
    let kind = block
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let text = |field: &str| block.get(field).and_then(Value::as_str);
    let known = match kind {
        "text" => text("text").map(|text| Part::Text {
            text: text.to_owned(),
        }),
        "image" => text("data")
            .zip(text("mimeType"))
            .map(|(data, kind)| Part::Image {
                media_type: kind.to_owned(),
                data: data.to_owned(),
            }),
        "audio" => text("data").zip(text("mimeType")).and_then(|(data, kind)| {
            let extension = kind.rsplit('/').next().unwrap_or("bin");
            file(exchange_dir, &format!("audio.{extension}"), kind, data)
        }),
        "resource_link" => text("uri").map(|uri| Part::File {
            file: FileRef {
                media_type: text("mimeType").map(str::to_owned),
                size: block.get("size").and_then(Value::as_u64),
                ..FileRef::lazy(
                    format!("{server}{SEPARATOR}{uri}"),
                    text("name").unwrap_or(uri),
                )
            },
        }),
        "resource" => block
            .get("resource")
            .and_then(|content| embedded(server, content, exchange_dir)),
        _ => None,
    };
    known.unwrap_or_else(|| raw(block))
}

fn embedded(server: &str, content: &Value, exchange_dir: Option<&Path>) -> Option<Part> {
    let text = |field: &str| content.get(field).and_then(Value::as_str);
    let uri = text("uri").unwrap_or(server);
    if let Some(body) = text("text") {
        return Some(Part::Text {
            text: format!("[resource {uri}]\n{body}"),
        });
    }
    let name = uri.rsplit('/').next().filter(|name| !name.is_empty());
    let kind = text("mimeType").unwrap_or("application/octet-stream");
    file(
        exchange_dir,
        name.unwrap_or("resource"),
        kind,
        text("blob")?,
    )
}

/// A file in the exchange directory.
fn file(dir: Option<&Path>, name: &str, media_type: &str, data: &str) -> Option<Part> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let bytes = STANDARD.decode(data).ok()?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = dir?.join(format!("mcp-{}-{number}", std::process::id()));
    let size = bytes.len() as u64;
    write_new(&path, &bytes).ok()?;
    Some(Part::File {
        file: FileRef {
            name: name.to_owned(),
            path: Some(path.to_str()?.to_owned()),
            media_type: Some(media_type.to_owned()),
            size: Some(size),
            ..FileRef::default()
        },
    })
}

/// Writes a file that does not exist yet.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)?;
    file.write_all(bytes)
}

fn raw(value: Value) -> Part {
    Part::Raw {
        source: "mcp".to_owned(),
        value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_content_becomes_a_part() {
        let dir = tempfile::tempdir().unwrap();
        let unknown = json!({ "type": "hologram", "x": 1 });
        let damaged = json!({ "type": "image", "data": 7 });
        let value = json!({
            "content": [
                { "type": "text", "text": "a" },
                { "type": "image", "data": "aGk=", "mimeType": "image/png" },
                { "type": "audio", "data": "aGk=", "mimeType": "audio/wav" },
                { "type": "resource_link", "uri": "x://y", "name": "y.csv", "size": 3 },
                { "type": "resource", "resource": { "uri": "x://t", "text": "body" } },
                { "type": "resource", "resource": { "uri": "x://b/data.bin", "blob": "aGk=" } },
                unknown,
                damaged,
            ],
            "structuredContent": { "n": 1 },
            "isError": true,
            "_meta": { "k": "v" },
        });
        let blocks = value["content"].clone();
        let result = result("s", value, Some(dir.path())).unwrap();
        assert!(result.is_error);
        assert_eq!(result.structured, Some(json!({ "n": 1 })));
        let meta = result.meta.unwrap();
        assert_eq!(meta["mcp"], json!({ "k": "v" }));
        assert_eq!(
            meta["mcp_content"], blocks,
            "nothing is lost for who hands it on"
        );
        let mut files = Vec::new();
        let shown: Vec<Value> = result
            .content
            .iter()
            .map(|part| match part {
                Part::File { file } => {
                    files.push(file.clone());
                    json!(file.name)
                }
                part => serde_json::to_value(part).unwrap(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                json!({ "type": "text", "text": "a" }),
                json!({ "type": "image", "media_type": "image/png", "data": "aGk=" }),
                json!("audio.wav"),
                json!("y.csv"),
                json!({ "type": "text", "text": "[resource x://t]\nbody" }),
                json!("data.bin"),
                json!({ "type": "raw", "source": "mcp", "value": unknown }),
                json!({ "type": "raw", "source": "mcp", "value": damaged }),
            ]
        );
        assert_eq!(
            std::fs::read(files[0].path.as_ref().unwrap()).unwrap(),
            b"hi"
        );
        assert_eq!(
            lazy_file(files[1].id.as_ref().unwrap()),
            Some(("s", "x://y"))
        );
        assert_eq!(files[2].size, Some(2));
    }

    #[test]
    fn blocks_are_kept_twice_only_when_a_part_says_less() {
        let kept = |block: Value| {
            let result = result("s", json!({ "content": [block] }), None).unwrap();
            result
                .meta
                .is_some_and(|meta| meta.contains_key("mcp_content"))
        };
        assert!(!kept(json!({ "type": "text", "text": "a" })));
        assert!(!kept(json!({ "type": "hologram", "x": 1 })));
        let annotations = json!({ "audience": ["user"] });
        assert!(kept(
            json!({ "type": "text", "text": "a", "annotations": annotations })
        ));
    }

    #[test]
    fn what_is_no_result_is_said() {
        assert_eq!(
            result("s", json!(5), None),
            Err("it is no object".to_owned())
        );
        let odd = result("s", json!({ "content": "text" }), None).unwrap();
        assert_eq!(odd.content, [raw(json!("text"))]);
    }
}
