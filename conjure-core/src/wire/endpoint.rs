//! The provider at the other end of a wire, as a request is encoded for it and a reply decoded.

use serde::{Deserialize, Serialize};

use super::dialect::Dialect;

/// The provider at the other end of a wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The provider, as sidecars name it.
    pub provider: String,
    /// The model that was asked for; who signs, where the reply's own name for it is an alias. The
    /// Anthropic wire goes by the reply.
    #[serde(default)]
    pub model: Option<String>,
    /// Dialect of the `openai-chat` wire that the provider speaks; the other wires have no dialects.
    /// [`Endpoint::new`] takes that of the provider's name; read from a file without it, it is
    /// [`Dialect::compatible`].
    #[serde(default)]
    pub dialect: Dialect,
    /// Where the provider is, as a person may see it: for the words of errors, never for a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
}

impl Endpoint {
    /// A provider whose replies name the model themselves, with the dialect of its name.
    pub fn new(provider: impl Into<String>) -> Self {
        let provider = provider.into();
        Self {
            dialect: Dialect::of(&provider),
            provider,
            model: None,
            base_url: None,
        }
    }

    /// Sets the provider's address as a person may see it: without a user or a password in it.
    #[must_use]
    pub fn at(self, base_url: impl Into<String>) -> Self {
        Self {
            base_url: Some(base_url.into()),
            ..self
        }
    }

    /// Sets the model that is asked for.
    #[must_use]
    pub fn with_model(self, model: impl Into<String>) -> Self {
        Self {
            model: Some(model.into()),
            ..self
        }
    }
}
