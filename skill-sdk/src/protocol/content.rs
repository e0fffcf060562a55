//! What a tool call gives back: content parts, files, structured data.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::Part;

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolResult {
    /// What the model reads, in order.
    #[serde(default)]
    pub content: Vec<Part>,
    /// The same as data of any kind, `null` too, when the tool has an output schema.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured: Option<Value>,
    /// Whether the call failed; the content then says how to go on.
    #[serde(default)]
    pub is_error: bool,
    /// Files that the call made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRef>,
    /// Data for programs, kept with the call and not shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// What a backend wants to find again: opaque, logged with the thread and handed back at
    /// `backend.open`, as that of an observation is. Of no meaning in a skill's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// What the call paid for at models of its own; it counts in the budget of the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<Spent>,
}

/// Tokens that were paid for at a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spent {
    /// The provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// Input that was neither read from nor written to a cache.
    #[serde(default)]
    pub input: u64,
    /// Input read from a cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Input written to a cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Output, reasoning included.
    #[serde(default)]
    pub output: u64,
    /// How much of the output was reasoning.
    #[serde(default)]
    pub reasoning: u64,
}

impl ToolResult {
    /// A result of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Part::Text { text: text.into() }],
            ..Self::default()
        }
    }

    /// A failed call, with what the model needs to go on.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::text(text)
        }
    }

    /// A result of structured data; the text is a full rendering of it.
    pub fn json(value: Value) -> Self {
        let text = value.to_string();
        Self {
            structured: Some(value),
            ..Self::text(text)
        }
    }

    /// Adds a file to the result.
    #[must_use]
    pub fn with_file(mut self, file: FileRef) -> Self {
        self.files.push(file);
        self
    }

    /// All text parts, joined by line breaks.
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }
}

/// What is there, also where it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A file that one side offers the other.
///
/// `path` says where its bytes are now; with `id` alone they stay where they are until
/// `files.get` asks for them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileRef {
    /// What a person would call it; never used as a path.
    pub name: String,
    /// Where it is: absolute, inside the working or the exchange directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the plugin calls it; opaque to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Such as `text/csv`, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Bytes, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// SHA-256 in lower-case hex, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl FileRef {
    /// A file at a path, named after its last component.
    pub fn at(path: impl Into<String>) -> Self {
        let path = path.into();
        let name = path.rsplit(['/', '\\']).next().unwrap_or(&path).to_owned();
        Self {
            name,
            path: Some(path),
            ..Self::default()
        }
    }

    /// A file that stays where it is until it is asked for.
    pub fn lazy(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            id: Some(id.into()),
            ..Self::default()
        }
    }
}
