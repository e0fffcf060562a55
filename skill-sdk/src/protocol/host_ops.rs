//! The operations that a plugin asks of the host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::FileRef;

/// A key of the plugin's own namespace: `kv.get`, `kv.delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvKey {
    /// At most 512 bytes.
    pub key: String,
}

/// What a key holds: the reply of `kv.get`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvValue {
    /// The value, absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// Writes a value: `kv.set`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvSet {
    /// At most 512 bytes.
    pub key: String,
    /// At most 64 KiB of JSON.
    pub value: Value,
}

/// Lists keys: `kv.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvList {
    /// Only keys that begin so.
    #[serde(default)]
    pub prefix: String,
}

/// Keys in byte order: the reply of `kv.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvKeys {
    /// The keys.
    pub keys: Vec<String>,
}

/// Reads a secret: `secret.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecretGet {
    /// A name that fits the manifest's `permissions.secrets`.
    pub name: String,
}

/// A secret: the reply of `secret.get`. It has no `Debug` on purpose.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Secret {
    /// The secret.
    pub value: String,
}

/// Sends an HTTP request: `http.send`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpRequest {
    /// Such as `GET`.
    pub method: String,
    /// `http` or `https`, to a host from the manifest's `permissions.http`.
    pub url: String,
    /// Headers, in order.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// A text body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// A body from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_file: Option<FileRef>,
}

/// The answer to an HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// Headers, in order.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body, when it is UTF-8 and at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body as a file, otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_file: Option<FileRef>,
}

/// Asks the session's model: `sample`. Waiting for it stops the call's clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sample {
    /// Instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Messages, the oldest first.
    pub messages: Vec<SampleMessage>,
    /// How many tokens the answer may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// More of the request in the form of its source, such as MCP's `modelPreferences`. A host
    /// that asks a model of its own leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A message of a `sample` request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SampleMessage {
    /// `user` or `assistant`.
    pub role: String,
    /// Its text.
    #[serde(default)]
    pub text: String,
    /// Its content in MCP's form, a block or several, when it is more than the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

impl SampleMessage {
    /// A text that the user says.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: "user".to_owned(),
            text: text.into(),
            content: None,
        }
    }

    /// A text that the model said.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            role: "assistant".to_owned(),
            ..Self::user(text)
        }
    }
}

/// What the model said: the reply of `sample`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sampled {
    /// The model that answered.
    pub model: String,
    /// Its text.
    pub text: String,
    /// Its content in MCP's form, a block or several, when it is more than the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// The stop reason as the provider gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// Asks the person: `elicit`. Waiting for them stops the call's clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Elicit {
    /// The question.
    pub message: String,
    /// A flat JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A page to visit instead of a form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What the asker calls this visit, to say later that it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation_id: Option<String>,
}

/// What the person answered: the reply of `elicit`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Elicited {
    /// `accept`, `decline` or `cancel`.
    pub action: String,
    /// The answer, when it was accepted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub content: BTreeMap<String, Value>,
}

/// A directory that the session works in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Root {
    /// A `file:` URI.
    pub uri: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The directories that a session works in: the reply of `roots`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Roots {
    /// The directories.
    pub roots: Vec<Root>,
}

/// Registers a file: `file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegisterFile {
    /// The file.
    pub file: FileRef,
}

/// A registered file: the reply of `file`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Registered {
    /// The artifact's handle, as the model and other backends know it.
    pub artifact: String,
}
