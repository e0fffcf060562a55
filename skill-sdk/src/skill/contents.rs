//! What reading a resource gives.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::protocol::{FileRef, INLINE_LIMIT, Part, ToolResult};
use crate::spill;

/// What reading a resource gives: text, bytes, or parts made by hand (several contents, or other
/// URIs than the one that was asked for).
#[derive(Debug, Clone, PartialEq)]
pub enum Contents {
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Parts, each one of the resource's contents.
    Parts(Vec<Part>),
}

impl From<String> for Contents {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Contents {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<u8>> for Contents {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Value> for Contents {
    fn from(value: Value) -> Self {
        Self::Text(value.to_string())
    }
}

impl From<Vec<Part>> for Contents {
    fn from(parts: Vec<Part>) -> Self {
        Self::Parts(parts)
    }
}

impl Contents {
    /// As the reply of `resource.read`. What is too large for JSON crosses as a file.
    pub(super) fn reply(
        self,
        uri: &str,
        media_type: Option<&str>,
        exchange_dir: Option<&Path>,
    ) -> ToolResult {
        let file = |bytes: &[u8], media_type: &str| {
            let dir = exchange_dir.filter(|_| bytes.len() > INLINE_LIMIT / 2)?;
            Some(Part::File {
                file: FileRef {
                    name: uri.rsplit('/').next().unwrap_or(uri).to_owned(),
                    media_type: Some(media_type.to_owned()),
                    ..spill::write(dir, bytes)?
                },
            })
        };
        let content = match self {
            Self::Text(text) => {
                let media_type = media_type.unwrap_or("text/plain");
                let part = file(text.as_bytes(), media_type);
                vec![part.unwrap_or_else(|| Part::text_resource(uri, media_type, &text))]
            }
            Self::Bytes(bytes) => {
                let media_type = media_type.unwrap_or("application/octet-stream");
                let part = file(&bytes, media_type);
                let encoded = || STANDARD.encode(&bytes);
                vec![part.unwrap_or_else(|| Part::binary_resource(uri, media_type, &encoded()))]
            }
            Self::Parts(parts) => parts,
        };
        ToolResult {
            content,
            ..ToolResult::default()
        }
    }
}
