//! Messages: parts with a role.

use serde::{Deserialize, Serialize};

use super::{FunctionCall, Part, Usage};

/// Speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The host.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// Tools.
    Tool,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Speaker of the message.
    pub role: Role,
    /// What is said, in order.
    pub content: Vec<Part>,
    /// Origin of the message: its model, usage and so on; only on what a model said.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// How an assistant message came about.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Meta {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Such as `api_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<String>,
    /// The saved auth's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_name: Option<String>,
    /// Tokens of this round.
    #[serde(default)]
    pub usage: Usage,
    /// Public names of the tools that the model could call: their number.
    #[serde(default)]
    pub tools: usize,
    /// Tokens of their definitions, estimated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tool_tokens: u64,
    /// How often the request was made again before anything came of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// From the request to the end of the reply, in milliseconds.
    #[serde(default)]
    pub latency_ms: u64,
    /// The stop reason as the provider gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Whether the message is only what had come when it was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether the reply was begun again with other settings: people see it, models do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: Vec<Part>) -> Self {
        Self {
            role,
            content,
            meta: None,
        }
    }

    /// What a person said.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::text(text)])
    }

    /// What a model said.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![Part::text(text)])
    }

    /// All text parts, joined without a separator: a model's text is one text.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Part::as_text).collect()
    }

    /// The calls that it asks for, in order.
    pub fn calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.content.iter().filter_map(Part::as_call)
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
