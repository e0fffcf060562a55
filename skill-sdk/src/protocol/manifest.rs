//! The manifest: what a plugin says about itself before any of its instances exists.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A plugin's manifest. A host caches it by the file's hash: routing needs no plugin code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manifest {
    /// Version of the manifest's form; this one is 1.
    pub manifest: u32,
    /// `skill`, `executor` or `backend`, as in the file's header.
    pub kind: String,
    /// The plugin's name, as in the file's header.
    pub name: String,
    /// The plugin's version, as in the file's header.
    pub version: String,
    /// One or two sentences for the model and for people.
    #[serde(default)]
    pub description: String,
    /// What the plugin cannot do without.
    #[serde(default)]
    pub requires: Requires,
    /// What it can do: operations and features with their versions, such as `skill.execute/1`,
    /// `stream/1`, `start/1`. A host ignores those that it does not know.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// What it asks to be allowed.
    #[serde(default)]
    pub permissions: Permissions,
    /// JSON Schema of the configuration that `create` takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// Whether an instance serves one session or all of them.
    #[serde(default)]
    pub state: StateScope,
    /// The tools of a skill; backends have a catalog instead.
    #[serde(default)]
    pub tools: Vec<ToolDecl>,
    /// Examples for people and for tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

impl Manifest {
    /// Whether the capability is there, `name` with its version, such as `start/1`.
    pub fn has(&self, name: &str) -> bool {
        self.capabilities.iter().any(|c| c == name)
    }
}

/// What a plugin cannot do without.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Requires {
    /// Host operations with their versions, such as `http.send/1`. A host that lacks one refuses
    /// the plugin and names it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
}

/// What a plugin asks to be allowed. In the host's process this is policy; a worker process is
/// confined to it, and to the directories of its session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Permissions {
    /// Names that `secret.get` may ask for. One that ends in `*` stands for all that begin so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Hosts that `http.send` may reach, such as `api.example.com` or `*.example.com`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<String>,
    /// Whether it asks the session's model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sample: bool,
    /// Files and directories outside the session that it reads: absolute, or `~/…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Files and directories outside the session that it reads and changes: absolute, or `~/…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Whether it opens connections itself, beside `http.send`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
    /// Whether it starts programs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub commands: bool,
}

/// The keys of providers that a host may have, by the names of their variables. A host takes them out
/// of its environment; a plugin that passes variables of it on asks for them as secrets.
pub const PROVIDER_KEYS: [&str; 10] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "DEEPSEEK_API_KEY",
    "MISTRAL_API_KEY",
    "OPENROUTER_API_KEY",
    "LLAMACPP_API_KEY",
    "OLLAMA_API_KEY",
    "OPENAI_COMPATIBLE_API_KEY",
];

/// Whom an instance serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StateScope {
    /// One session: two sessions never see each other's state.
    #[default]
    Session,
    /// All sessions of the host.
    Shared,
}

/// A tool, as a manifest or a catalog declares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolDecl {
    /// The operation that runs it, such as `skill.execute`; for a backend always `backend.call`.
    pub op: String,
    /// The tool's own name, such as `execute`; raw, in any script.
    pub name: String,
    /// The skill or server that it belongs to, in a backend's catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub input_schema: Value,
    /// JSON Schema of its structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What it changes.
    #[serde(default)]
    pub effects: Effects,
    /// Whether calls depend on each other.
    #[serde(default)]
    pub mode: ToolMode,
    /// Whether it is short enough to be called without a thread of its own (at most 50 µs).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// How long a call may take, when the host's default does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Annotations in the form of their source, such as MCP's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    /// Data in the form of its source, kept verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl ToolDecl {
    /// A tool of a backend's catalog, run by `backend.call`. Its effects are
    /// [`Effects::Write`] and its mode is [`ToolMode::Stateful`] until they are set.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        Self {
            op: super::op::BACKEND_CALL.to_owned(),
            name: name.into(),
            skill: None,
            title: None,
            description: description.into(),
            input_schema,
            output_schema: None,
            effects: Effects::default(),
            mode: ToolMode::default(),
            in_place: false,
            timeout_ms: None,
            annotations: None,
            meta: None,
        }
    }
}

/// What a tool changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = super::schemas::open_words))]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// Nothing.
    Read,
    /// Something that cannot be undone.
    Destructive,
    /// Something, and it can be undone or does no harm. Also what an unknown word counts as.
    #[default]
    #[serde(other)]
    Write,
}

/// Whether calls of a tool depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = super::schemas::open_words))]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// Calls run at the same time.
    Stateless,
    /// Calls of a session run one after the other, in order. Also what an unknown word counts as.
    #[default]
    #[serde(other)]
    Stateful,
}

/// An example of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Example {
    /// The tool's own name.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// What comes out, or what to look for in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether the call fails, and `result` is in what it says then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Example {
    /// A call that works, with what to look for in its result; nothing where that is empty.
    pub fn new(tool: &str, arguments: Value, result: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments,
            result: (!result.is_empty()).then(|| result.to_owned()),
            is_error: false,
        }
    }

    /// A call that fails, with what to look for in what it says.
    pub fn failing(tool: &str, arguments: Value, says: &str) -> Self {
        Self {
            is_error: true,
            ..Self::new(tool, arguments, says)
        }
    }
}
