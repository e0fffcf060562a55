//! The wires by name: which there are, and which provider speaks which. What they do is in
//! [`crate::wire`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A wire, by the name that people type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Anthropic's Messages API: `anthropic`.
    Anthropic,
    /// OpenAI's Responses API: `openai-responses`.
    OpenaiResponses,
    /// OpenAI's Chat Completions API and its dialects: `openai-chat`.
    OpenaiChat,
    /// Google's `generateContent`: `gemini`.
    Gemini,
}

/// No wire has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no wire `{name}`; the wires are {}", Wire::ALL.map(Wire::as_str).join(", "))]
pub struct UnknownWire {
    /// What was asked for.
    pub name: String,
}

impl Wire {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Anthropic,
        Self::OpenaiResponses,
        Self::OpenaiChat,
        Self::Gemini,
    ];

    /// The name that people type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiResponses => "openai-responses",
            Self::OpenaiChat => "openai-chat",
            Self::Gemini => "gemini",
        }
    }

    /// The wire that a provider of this name speaks: its own where it has one, else the one that
    /// compatible servers speak.
    #[must_use]
    pub fn of_provider(provider: &str) -> Self {
        match provider {
            "anthropic" => Self::Anthropic,
            "openai" => Self::OpenaiResponses,
            "gemini" | "google" => Self::Gemini,
            _ => Self::OpenaiChat,
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl FromStr for Wire {
    type Err = UnknownWire;

    fn from_str(name: &str) -> Result<Self, UnknownWire> {
        let known = Self::ALL.into_iter().find(|wire| wire.as_str() == name);
        known.ok_or_else(|| UnknownWire {
            name: name.to_owned(),
        })
    }
}
