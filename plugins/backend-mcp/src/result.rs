//! From the result of `tools/call` to the result of a call: parts, files, data.
//!
//! The parts are for a model. A program on the other side of the session gets the server's result
//! as it came, in the place of them. A block that this version does not know, or that is
//! damaged, is handed on as it came in any case.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::{FileRef, INLINE_LIMIT, Part, ToolResult};
use serde_json::{Map, Value};

/// What separates the parts of a lazy file's id.
const SEPARATOR: char = '\n';

/// The name of a server's result as it came, in the data beside a result, and of the file that a
/// large one is in.
const RESULT_KEY: &str = "mcp_result";
const RESULT_FILE_KEY: &str = "mcp_result_file";

/// Context of whoever receives a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiver<'a> {
    /// Directory in which files may be made.
    pub(crate) exchange_dir: Option<&'a Path>,
    /// Whether a program on the other side of the session gets the server's words.
    pub(crate) verbatim: bool,
}

impl<'a> Receiver<'a> {
    /// Whoever a call is for.
    pub(crate) fn of(cx: &'a Cx) -> Self {
        Self {
            exchange_dir: cx.exchange_dir(),
            verbatim: cx.client().is_some(),
        }
    }

    /// A result as it came, in the data beside it; in a file when it is large.
    pub(crate) fn full_result(self, value: Value) -> Map<String, Value> {
        let text = value.to_string();
        let file = (text.len() > INLINE_LIMIT)
            .then(|| path_in(self.exchange_dir?))
            .flatten()
            .filter(|path| write_new(path, text.as_bytes()).is_ok());
        let kept = match file.as_deref().and_then(Path::to_str) {
            Some(path) => (RESULT_FILE_KEY.to_owned(), path.into()),
            None => (RESULT_KEY.to_owned(), value),
        };
        Map::from_iter([kept])
    }
}

/// Translates a result.
///
/// # Errors
/// Why it is none.
pub(crate) fn result(
    server: &str,
    mut value: Value,
    to: Receiver<'_>,
) -> Result<ToolResult, String> {
    let Some(fields) = value.as_object_mut() else {
        return Err("it is no object".to_owned());
    };
    let mut result = ToolResult {
        is_error: fields.get("isError").and_then(Value::as_bool) == Some(true),
        ..ToolResult::default()
    };
    if to.verbatim {
        // There is no model that would read parts.
        result.meta = Some(to.full_result(value));
        return Ok(result);
    }
    let mut verbatim = None;
    match fields.remove("content") {
        Some(Value::Array(blocks)) => {
            if blocks.iter().any(has_extra_fields) {
                verbatim = Some(Value::Array(blocks.clone()));
            }
            let parts = |block| parts(server, block, to.exchange_dir);
            result.content = blocks.into_iter().flat_map(parts).collect();
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
fn has_extra_fields(block: &Value) -> bool {
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

/// Translates what a server says of a resource that was read.
pub(crate) fn contents(server: &str, value: Value, to: Receiver<'_>) -> ToolResult {
    if to.verbatim {
        return ToolResult {
            meta: Some(to.full_result(value)),
            ..ToolResult::default()
        };
    }
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
            let parts = |content: &Value| {
                let known = embedded(server, content, to.exchange_dir);
                known.unwrap_or_else(|| vec![raw(content.clone())])
            };
            several.iter().flat_map(parts).collect()
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

fn parts(server: &str, block: Value, exchange_dir: Option<&Path>) -> Vec<Part> {
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
            let bytes = STANDARD.decode(data).ok()?;
            file(exchange_dir, &format!("audio.{extension}"), kind, &bytes)
        }),
        "resource_link" => text("uri").map(|uri| Part::File {
            file: FileRef {
                media_type: text("mimeType").map(str::to_owned),
                size: block.get("size").and_then(Value::as_u64),
                ..FileRef::lazy(id(server, uri), text("name").unwrap_or(uri))
            },
        }),
        "resource" => {
            let content = block.get("resource");
            let parts = content.and_then(|content| embedded(server, content, exchange_dir));
            return parts.unwrap_or_else(|| vec![raw(block)]);
        }
        _ => None,
    };
    vec![known.unwrap_or_else(|| raw(block))]
}

/// A resource that a result holds: a file, and beside it the text of one that is a text, for
/// whoever reads on.
fn embedded(server: &str, content: &Value, exchange_dir: Option<&Path>) -> Option<Vec<Part>> {
    let text = |field: &str| content.get(field).and_then(Value::as_str);
    let uri = text("uri").unwrap_or(server);
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().filter(|name| !name.is_empty());
    let name = name.unwrap_or("resource");
    let Some(body) = text("text") else {
        let kind = text("mimeType").unwrap_or("application/octet-stream");
        let bytes = STANDARD.decode(text("blob")?).ok()?;
        return Some(vec![file(exchange_dir, name, kind, &bytes)?]);
    };
    let mut parts = vec![Part::Text {
        text: format!("[resource {uri}]\n{body}"),
    }];
    let kind = text("mimeType").unwrap_or("text/plain");
    // By its id it is a file, and no text that only crosses as one.
    if let Some(Part::File { file }) = file(exchange_dir, name, kind, body.as_bytes()) {
        parts.push(Part::File {
            file: FileRef {
                id: Some(id(server, uri)),
                ..file
            },
        });
    }
    Some(parts)
}

/// The id of a resource as a file.
fn id(server: &str, uri: &str) -> String {
    format!("{server}{SEPARATOR}{uri}")
}

/// A file in the exchange directory.
fn file(dir: Option<&Path>, name: &str, media_type: &str, bytes: &[u8]) -> Option<Part> {
    let path = path_in(dir?)?;
    write_new(&path, bytes).ok()?;
    Some(Part::File {
        file: FileRef {
            name: name.to_owned(),
            path: Some(path.to_str()?.to_owned()),
            media_type: Some(media_type.to_owned()),
            size: Some(bytes.len() as u64),
            ..FileRef::default()
        },
    })
}

/// A path in a directory at which there is nothing yet.
fn path_in(dir: &Path) -> Option<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!("mcp-{}-{number}", std::process::id()));
    path.to_str().is_some().then_some(path)
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

    fn to_model(exchange_dir: Option<&Path>) -> Receiver<'_> {
        Receiver {
            exchange_dir,
            verbatim: false,
        }
    }

    #[test]
    fn a_program_on_the_other_side_gets_the_whole_result_in_a_file_when_it_is_large() {
        let dir = tempfile::tempdir().unwrap();
        let to = Receiver {
            exchange_dir: Some(dir.path()),
            verbatim: true,
        };
        for length in [1, INLINE_LIMIT] {
            let text = "x".repeat(length);
            let whole = json!({
                "content": [{ "type": "text", "text": text, "vendor": 1 }],
                "structuredContent": null, "isError": false, "more": { "b": 1, "a": 2 },
            });
            let meta = result("s", whole.clone(), to).unwrap().meta.unwrap();
            assert_eq!(meta.len(), 1);
            let kept = match meta.get(RESULT_FILE_KEY).and_then(Value::as_str) {
                Some(path) => {
                    assert!(length > 1);
                    std::fs::read_to_string(path).unwrap()
                }
                None => meta[RESULT_KEY].to_string(),
            };
            assert_eq!(kept, whole.to_string(), "to the letter, and in its order");
        }
    }

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
        let result = result("s", value, to_model(Some(dir.path()))).unwrap();
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
                json!("t"),
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
        let text = &files[2];
        assert_eq!(
            (text.size, text.media_type.as_deref()),
            (Some(4), Some("text/plain"))
        );
        assert_eq!(lazy_file(text.id.as_ref().unwrap()), Some(("s", "x://t")));
        assert_eq!(std::fs::read(text.path.as_ref().unwrap()).unwrap(), b"body");
        assert_eq!(files[3].size, Some(2));
    }

    #[test]
    fn blocks_are_kept_twice_only_when_a_part_says_less() {
        let kept = |block: Value| {
            let result = result("s", json!({ "content": [block] }), to_model(None)).unwrap();
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
            result("s", json!(5), to_model(None)),
            Err("it is no object".to_owned())
        );
        let odd = result("s", json!({ "content": "text" }), to_model(None)).unwrap();
        assert_eq!(odd.content, [raw(json!("text"))]);
    }
}
