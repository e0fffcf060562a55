//! What a model's reply decodes to, whole and while it streams.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Content, Part, Usage};

/// A model's reply, decoded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Response {
    /// The provider's id of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The model that answered, as the provider names it.
    #[serde(default)]
    pub model: String,
    /// What it said, in its order.
    pub parts: Vec<Part>,
    /// Why it stopped; absent when the bytes just stop, and when the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Tokens.
    pub usage: Usage,
    /// Top-level fields that concern the conversation, such as `container`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
    /// Whether it ended as its wire says it must.
    pub complete: bool,
}

impl Response {
    /// The items of the provider's own tools, in order.
    pub fn server_items(&self) -> impl Iterator<Item = &Value> {
        self.parts.iter().filter_map(|part| match &part.content {
            Content::ServerItem { item, .. } => Some(item),
            _ => None,
        })
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// What it means for a turn.
    pub reason: StopReason,
    /// The word that the provider used.
    pub raw: String,
    /// The stop sequence that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
}

/// What a stop means for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model is done.
    EndTurn,
    /// The model waits for tools.
    ToolUse,
    /// A stop sequence matched.
    StopSequence,
    /// Cut short by the limit on output: its calls never run.
    MaxTokens,
    /// Cut short by the context window: its calls never run.
    ContextWindow,
    /// The provider paused a long turn and wants its content back as it is.
    Pause,
    /// The provider or the model refused: its calls never run.
    Refusal,
    /// A word that this version does not know.
    Other,
}

impl StopReason {
    /// Whether calls of such a reply may run.
    pub fn calls_may_run(self) -> bool {
        match self {
            Self::EndTurn | Self::ToolUse | Self::StopSequence | Self::Pause | Self::Other => true,
            Self::MaxTokens | Self::ContextWindow | Self::Refusal => false,
        }
    }
}

/// What a decoder says while a reply comes in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent {
    /// A piece of thought.
    Thinking {
        /// The text.
        delta: String,
    },
    /// A piece of the answer.
    Content {
        /// The text.
        delta: String,
    },
    /// A call has begun; its arguments are still coming.
    CallStarted {
        /// Id of the call.
        call_id: String,
        /// The tool's public name.
        name: String,
    },
    /// A call is whole, at the end of its block.
    Call {
        /// Id of the call.
        call_id: String,
    },
    /// A server item is whole.
    ServerItem {
        /// The item, verbatim.
        item: Value,
    },
    /// Tokens so far, in all.
    Usage(Usage),
}
