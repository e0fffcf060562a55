//! The operations of a backend: sessions, catalogs, calls, and a share in a provider's request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FileRef, SkillMount, ToolDecl};

/// Opens a session: `backend.open`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Open {
    /// What the session file says for this backend.
    #[serde(default)]
    pub options: Value,
    /// Skill folders that the session uses on this backend.
    #[serde(default)]
    pub skills: Vec<SkillMount>,
    /// State that `backend.observe` handed out earlier in this thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
}

/// Asks what a backend offers a session: `backend.catalog`. A catalog may depend on the model;
/// the host asks again when the session's model is another provider's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CatalogRequest {
    /// The session's provider, such as `anthropic`, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// What a backend offers a session: the reply of `backend.catalog`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CatalogReply {
    /// Its tools, in a stable order.
    #[serde(default)]
    pub tools: Vec<ToolDecl>,
    /// Its resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Its resource templates, in the form of their source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_templates: Vec<Value>,
    /// Its prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<Prompt>,
    /// What the model should know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// What each of the servers behind it says about its use, in a stable order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_instructions: Vec<ServerInstructions>,
    /// Data in the form of its source, kept verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// What one of the servers behind a backend says about its use. The model reads it under the
/// server's name, apart from what others say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerInstructions {
    /// The server's name.
    pub server: String,
    /// Its words.
    pub text: String,
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resource {
    /// Its URI.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Data in the form of its source, kept verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl Resource {
    /// A resource with a name, and nothing else said about it.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: name.into(),
            description: None,
            media_type: None,
            meta: None,
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        self.description = Some(description.to_owned());
        self
    }

    /// Sets the media type, such as `image/png`.
    #[must_use]
    pub fn media_type(mut self, media_type: &str) -> Self {
        self.media_type = Some(media_type.to_owned());
        self
    }
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its arguments, in the form of their source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Value>,
    /// Data in the form of its source, kept verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// Calls a tool: `backend.call`. The reply is a [`super::ToolResult`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackendCall {
    /// The tool's own name, as in the catalog.
    pub name: String,
    /// The skill or server that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Value,
    /// Files of the session that the argument `files` names, by handle, name or path. The host
    /// fetches them first. Only for a plugin with `call.files/1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRef>,
}

/// Asks for fragments of the next request: `backend.contribute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Contribute {
    /// The session's provider, such as `anthropic`.
    pub provider: String,
    /// Its model.
    pub model: String,
}

/// Fragments of a provider's request, merged by its wire. Empty when the backend has no part in
/// requests to that provider.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Contribution {
    /// Server tools, in the provider's form; added behind the tools of the routing table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Top-level fields of the request, such as `container`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
    /// Content parts for the newest user message, in the provider's form. They move with every
    /// message, which costs the provider's cache of the conversation: what belongs to something
    /// that happened goes into `call_content`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_content: Vec<Value>,
    /// Content parts that stay where they came about, in the provider's form: by the id of a call,
    /// behind its result. Those of a call that the request does not show stand in its first
    /// message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub call_content: BTreeMap<String, Vec<Value>>,
    /// Headers of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What the model should know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// Shows a response to a backend that contributed to its request: `backend.observe`. A request
/// that came to nothing is shown too, with its `error`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observe {
    /// The session's provider.
    pub provider: String,
    /// The model that answered.
    pub model: String,
    /// The server items of the response, in the provider's form and order.
    #[serde(default)]
    pub server_items: Vec<Value>,
    /// Top-level fields of the response that the wire keeps, such as `container`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
    /// Why there is no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RequestError>,
}

/// Why a provider gave no response.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestError {
    /// A word for programs, such as `bad_request`.
    pub kind: String,
    /// What failed, with what the provider said.
    pub message: String,
}

/// What a backend saw in a response.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observation {
    /// Files that the provider made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRef>,
    /// Opaque state; logged with the thread and handed back at `backend.open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// Whether a request that came to nothing is sent again, once, with fragments that are asked
    /// for anew. Only of a request of which nothing came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
}

/// Reads a resource: `resource.read`. The reply is a [`super::ToolResult`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceRead {
    /// The URI.
    pub uri: String,
}

/// Asks to be told when a resource changes (`resource.subscribe`), or not any more
/// (`resource.unsubscribe`). The plugin tells by the event `resource_updated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceWatch {
    /// The URI.
    pub uri: String,
}

/// Fills in a prompt: `prompt.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromptGet {
    /// The prompt's name.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// A prompt that was filled in.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromptText {
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its messages, in the form of their source.
    pub messages: Vec<Value>,
    /// Data in the form of its source, kept verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl PromptText {
    /// One message of the user's.
    pub fn user(text: &str) -> Self {
        Self::default().and_user(text)
    }

    /// One more message of the user's.
    #[must_use]
    pub fn and_user(self, text: &str) -> Self {
        self.message("user", json!({ "type": "text", "text": text }))
    }

    /// One more message of the model's.
    #[must_use]
    pub fn and_assistant(self, text: &str) -> Self {
        self.message("assistant", json!({ "type": "text", "text": text }))
    }

    /// One more message, whose content is a block in MCP's form.
    #[must_use]
    pub fn message(mut self, role: &str, content: Value) -> Self {
        let role = ("role".to_owned(), json!(role));
        let message = Map::from_iter([role, ("content".to_owned(), content)]);
        self.messages.push(Value::Object(message));
        self
    }
}

impl From<String> for PromptText {
    fn from(text: String) -> Self {
        Self::user(&text)
    }
}

impl From<&str> for PromptText {
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

/// Completes an argument: `complete`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Complete {
    /// What is completed, in the form of its source: a prompt or a resource template.
    pub reference: Value,
    /// The argument's name.
    pub argument: String,
    /// What was typed so far.
    pub value: String,
    /// Arguments that are filled in already.
    #[serde(default)]
    pub context: BTreeMap<String, String>,
}

/// Values that would complete an argument.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Completions {
    /// At most 100.
    pub values: Vec<String>,
    /// Whether there are more.
    #[serde(default)]
    pub more: bool,
    /// How many there are, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

impl Completions {
    /// Completions from the candidates that begin with what was typed, in their order.
    pub fn beginning<I: IntoIterator<Item: Into<String>>>(typed: &str, candidates: I) -> Self {
        let candidates = candidates.into_iter().map(Into::into);
        Self::from(
            candidates
                .filter(|value| value.starts_with(typed))
                .collect::<Vec<String>>(),
        )
    }
}

impl From<Vec<String>> for Completions {
    fn from(values: Vec<String>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

/// Brings a file to the backend: `files.put`. The reply is the [`FileRef`] that the backend knows
/// it by: its `path` is where the backend's own tools find it, in their terms, and its `id` is
/// what `files.get` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilesPut {
    /// The file, with its path on the host.
    pub file: FileRef,
}

/// Fetches a file from the backend: `files.get`. The reply is the [`FileRef`] with its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilesGet {
    /// What the plugin calls it.
    pub id: String,
    /// Where to write it: absolute, inside the exchange directory; it does not exist yet.
    pub to: String,
}

/// State that one version hands to the next: `state.export` and `state.import`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct State {
    /// The version of the plugin that handed it out. The host fills it in before `state.import`;
    /// the reply of `state.export` leaves it empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The state, in the plugin's own form.
    pub state: Value,
}

/// A list of resources: the reply of `resource.list`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resources {
    /// The resources.
    pub resources: Vec<Resource>,
    /// Templates of resources, in the form of their source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_templates: Vec<Value>,
}

/// A list of prompts: the reply of `prompt.list`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prompts {
    /// The prompts.
    pub prompts: Vec<Prompt>,
}
