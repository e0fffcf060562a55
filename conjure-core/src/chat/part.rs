//! Parts: what a message is made of.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One part of a message, with what its signer wants to see again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What the part says, in neutral form.
    #[serde(flatten)]
    pub content: Content,
    /// Provider-private data that belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
}

/// The neutral content of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought. Empty when only the sidecar says what (redacted thinking).
    Reasoning {
        /// The readable part.
        text: String,
    },
    /// A call that the model asks for.
    FunctionCall(FunctionCall),
    /// What a call gave back.
    FunctionCallOutput(FunctionCallOutput),
    /// An image.
    Image {
        /// Handle of the image.
        artifact: ArtifactRef,
    },
    /// A file.
    File {
        /// Handle of the file.
        artifact: ArtifactRef,
    },
    /// An item of a provider's own tools, opaque: passed back to that provider as it came, told
    /// to others as text or not at all.
    ServerItem {
        /// Provider that the item belongs to.
        provider: String,
        /// The item in the provider's form, verbatim.
        item: Value,
    },
}

/// A call that the model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Pairs the call with its output; unique in its thread.
    pub call_id: String,
    /// The tool's public name, as the model wrote it.
    pub name: String,
    /// The arguments. Whatever the model wrote that is not a JSON object is in
    /// `arguments_text`, and this is `{}`.
    pub arguments: Value,
    /// The raw arguments when they are not a JSON object, have a whole number that would be another
    /// one as a value, or were cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_text: Option<String>,
}

/// What a call gave back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCallOutput {
    /// The call's id.
    pub call_id: String,
    /// What the model reads.
    pub output: Vec<OutputPart>,
    /// Whether the call failed.
    #[serde(default)]
    pub is_error: bool,
}

impl FunctionCallOutput {
    /// An output of one text.
    pub fn text(call_id: impl Into<String>, text: impl Into<String>, is_error: bool) -> Self {
        Self {
            call_id: call_id.into(),
            output: vec![OutputPart::Text { text: text.into() }],
            is_error,
        }
    }

    /// All text of the output, joined by line breaks.
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self
            .output
            .iter()
            .filter_map(|part| match part {
                OutputPart::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }
}

/// One piece of a call's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image that the model can look at.
    Image {
        /// Handle of the image.
        artifact: ArtifactRef,
    },
    /// A file that the call made.
    File {
        /// Handle of the file.
        artifact: ArtifactRef,
    },
}

/// A file of the session, by handle. The host knows where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArtifactRef {
    /// The handle; stable in a session and never a path.
    pub id: String,
    /// What a person would call it.
    pub name: String,
    /// Such as `text/csv`.
    pub media_type: String,
    /// Bytes, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// Provider-private data beside a part: a thinking signature, encrypted reasoning, an item id.
///
/// Goes back only to the provider and model family that made it, byte for byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Provider that made the data, such as `anthropic`.
    pub provider: String,
    /// The model that made it, as the provider names it.
    pub model_family: String,
    /// The data.
    pub data: Value,
}

impl Part {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text { text: text.into() }.into()
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text { text } => Some(text),
            _ => None,
        }
    }

    /// The call, if it is one.
    pub fn as_call(&self) -> Option<&FunctionCall> {
        match &self.content {
            Content::FunctionCall(call) => Some(call),
            _ => None,
        }
    }
}

impl From<Content> for Part {
    fn from(content: Content) -> Self {
        Self {
            content,
            sidecar: None,
        }
    }
}
