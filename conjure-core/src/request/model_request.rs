//! A model request in canonical form: what is compiled here and a wire encodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chat::Message;
use crate::repair::{RepairTarget, Sendable, repair};

/// A request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The provider, as sidecars name it.
    pub provider: String,
    /// The model, as the provider names it.
    pub model: String,
    /// Instructions; one block a cause, in a stable order.
    pub system: Vec<String>,
    /// The conversation, repaired.
    pub messages: Sendable,
    /// The tools that the model may call, in the routing table's order.
    pub tools: Vec<ToolDefinition>,
    /// Whether the model must call one of the tools, and which.
    pub tool_choice: ToolChoice,
    /// The most tokens of output.
    pub max_tokens: u32,
    /// How much the model may think, in tokens; none when absent.
    pub thinking_tokens: Option<u32>,
    /// Texts that end the output.
    pub stop_sequences: Vec<String>,
    /// The form that the answer must have; as the model likes when absent.
    pub response_format: Option<OutputFormat>,
    /// Fragments of backends that have a share in this provider's requests.
    pub contribution: ProviderFragments,
    /// Bytes of artifacts that the model is to look at, by handle. An artifact that is not here
    /// is told as text.
    pub attachments: BTreeMap<String, Attachment>,
    /// Whether the reply streams.
    pub stream: bool,
}

/// The bytes of an artifact, as a request carries them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Such as `image/png`; what the bytes are, not what a name says.
    pub media_type: String,
    /// The bytes in standard base64 with padding.
    pub data: String,
}

impl ModelRequest {
    /// A request that says nothing yet.
    #[must_use]
    pub fn empty(target: &RepairTarget) -> Self {
        Self {
            provider: target.provider.clone(),
            model: target.model.clone(),
            system: Vec::new(),
            messages: Sendable::default(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_tokens: 8192,
            thinking_tokens: None,
            stop_sequences: Vec::new(),
            response_format: None,
            contribution: ProviderFragments::default(),
            attachments: BTreeMap::new(),
            stream: true,
        }
    }

    /// A request of a conversation without tools and instructions.
    #[must_use]
    pub fn bare(target: &RepairTarget, messages: Vec<Message>) -> Self {
        Self {
            messages: repair(messages, target),
            ..Self::empty(target)
        }
    }
}

/// The form of an answer: one JSON value that fits a schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputFormat {
    /// Name of the form; letters, digits, `_` and `-`.
    pub name: String,
    /// JSON Schema of the answer, an object at its top.
    pub schema: Value,
}

/// A tool as a model is told about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// The tool's public name.
    pub name: String,
    /// What the tool does.
    pub description: String,
    /// JSON Schema of the tool's arguments.
    pub input_schema: Value,
}

/// Whether a model must call a tool, and which.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model calls a tool or none, as it likes.
    #[default]
    Auto,
    /// The model must call some tool.
    Any,
    /// The model must call no tool.
    None,
    /// The model must call the tool with this name.
    Tool(String),
}

/// What backends add to a provider's request, in the provider's own form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProviderFragments {
    /// Server tools, behind the tools of the routing table.
    #[serde(default)]
    pub tools: Vec<Value>,
    /// Top-level fields; objects are merged, anything else replaces.
    #[serde(default)]
    pub fields: Map<String, Value>,
    /// Content parts for the newest user message.
    #[serde(default)]
    pub user_content: Vec<Value>,
    /// Content parts that stay behind the result of a call, by its id.
    #[serde(default)]
    pub call_content: BTreeMap<String, Vec<Value>>,
    /// Headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}
