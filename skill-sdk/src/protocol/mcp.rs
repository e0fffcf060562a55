//! Content that keeps the form which MCP gives it: audio, embedded resources, links, annotations.
//!
//! Each is a part of the kind `raw` with the source `mcp`, so a host that serves MCP passes it on
//! as it is. Files that a call makes are better [`ToolResult::files`](super::ToolResult).

use serde_json::{Map, Value, json};

use super::Part;

/// Source of every part that is built here ([`Part::Raw`]).
const SOURCE: &str = "mcp";

impl Part {
    /// A content block in MCP's own form, verbatim.
    pub fn mcp(block: Value) -> Self {
        Self::Raw {
            source: SOURCE.to_owned(),
            value: block,
        }
    }

    /// Sound, such as `audio/wav`; `data` is base64 of its bytes.
    pub fn audio(media_type: &str, data: &str) -> Self {
        Self::mcp(json!({ "type": "audio", "data": data, "mimeType": media_type }))
    }

    /// A resource with its text.
    pub fn text_resource(uri: &str, media_type: &str, text: &str) -> Self {
        Self::mcp(json!({
            "type": "resource",
            "resource": { "uri": uri, "mimeType": media_type, "text": text },
        }))
    }

    /// A resource with its bytes; `data` is their base64.
    pub fn binary_resource(uri: &str, media_type: &str, data: &str) -> Self {
        Self::mcp(json!({
            "type": "resource",
            "resource": { "uri": uri, "mimeType": media_type, "blob": data },
        }))
    }

    /// A resource to be read when it is needed.
    pub fn link(uri: &str, name: &str) -> Self {
        Self::mcp(json!({ "type": "resource_link", "uri": uri, "name": name }))
    }

    /// Adds MCP's annotations, such as `{"audience": ["user"], "priority": 0.5}`. A file and a part
    /// of another source stay as they are.
    #[must_use]
    pub fn annotated(self, annotations: Value) -> Self {
        let mut block = match self {
            Self::Text { text } => {
                Map::from_iter([("type".into(), json!("text")), ("text".into(), json!(text))])
            }
            Self::Image { media_type, data } => Map::from_iter([
                ("type".into(), json!("image")),
                ("data".into(), json!(data)),
                ("mimeType".into(), json!(media_type)),
            ]),
            Self::Raw {
                source,
                value: Value::Object(block),
            } if source == SOURCE => block,
            other => return other,
        };
        block.insert("annotations".to_owned(), annotations);
        Self::mcp(Value::Object(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FileRef;

    #[test]
    fn annotations_go_where_mcp_has_them() {
        let priority = json!({ "priority": 1 });
        let text = Part::Text { text: "t".into() };
        assert_eq!(
            text.annotated(priority.clone()),
            Part::mcp(json!({ "type": "text", "text": "t", "annotations": { "priority": 1 } }))
        );
        let link = Part::link("a://b", "b").annotated(priority.clone());
        assert_eq!(
            link,
            Part::mcp(json!({
                "type": "resource_link",
                "uri": "a://b",
                "name": "b",
                "annotations": { "priority": 1 },
            }))
        );
        for kept in [
            Part::File {
                file: FileRef::lazy("1", "n"),
            },
            Part::Raw {
                source: "other".into(),
                value: json!({}),
            },
        ] {
            assert_eq!(kept.clone().annotated(priority.clone()), kept);
        }
    }
}
