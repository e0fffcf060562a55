//! The wires by name: the one door through which a host or a program reaches them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Decoded, Decoder, Encoded, WireError, anthropic};
use crate::request::ModelRequest;

/// A wire, by the name that people type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Anthropic's Messages API: `anthropic`.
    Anthropic,
}

/// Whose reply is decoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The provider, as sidecars name it.
    pub provider: String,
    /// The model that was asked for; who signs, where the reply's own name for it is an alias. The
    /// Anthropic wire goes by the reply.
    #[serde(default)]
    pub model: Option<String>,
}

impl Endpoint {
    /// A provider whose replies name the model themselves.
    pub fn new(provider: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            model: None,
        }
    }
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
    pub const ALL: [Self; 1] = [Self::Anthropic];

    /// The name that people type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
        }
    }

    /// Encodes a request.
    #[must_use]
    pub fn encode(self, request: &ModelRequest) -> Encoded {
        match self {
            Self::Anthropic => anthropic::encode(request),
        }
    }

    /// A decoder for one reply, streamed or in one JSON body.
    #[must_use]
    pub fn decoder(self, _endpoint: &Endpoint) -> Box<dyn Decoder> {
        match self {
            Self::Anthropic => Box::new(anthropic::decoder()),
        }
    }

    /// Decodes the body of a reply that does not stream.
    #[must_use]
    pub fn decode_body(self, _endpoint: &Endpoint, body: &[u8]) -> Decoded {
        match self {
            Self::Anthropic => anthropic::decode_body(body),
        }
    }

    /// What a reply with a status that is no success means. Header names may have any case.
    #[must_use]
    pub fn error(
        self,
        _endpoint: &Endpoint,
        status: u16,
        headers: &[(String, String)],
        body: &[u8],
    ) -> WireError {
        match self {
            Self::Anthropic => anthropic::error_with_headers(status, headers, body),
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
