//! Events that a plugin emits: during a call, or outside any call through `backend.watch`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::FileRef;

/// One event, as `emit` carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = super::schemas::open_kinds))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PluginEvent {
    /// How far a call is.
    Progress(Progress),
    /// A file that a call made.
    File {
        /// The file.
        file: FileRef,
    },
    /// The catalog is another one now: the host asks for it again.
    CatalogChanged {
        /// Sessions that it concerns; all when empty.
        #[serde(default)]
        sessions: Vec<String>,
        /// Which of its lists: `tools`, `resources`, `prompts`; all when empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        what: Vec<String>,
    },
    /// A resource says something else now.
    ResourceUpdated {
        /// Its URI.
        uri: String,
        /// Sessions that it concerns; all when empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sessions: Vec<String>,
    },
    /// A message for whoever asked for the call, when they want such messages. What only the
    /// host's operator should see goes to the host's log instead.
    Log(Message),
    /// The backend's own state changed.
    State {
        /// Such as `starting`, `ready`, `backoff`, `failed`.
        state: String,
        /// What led to it, for people.
        #[serde(default)]
        detail: String,
    },
    /// Something that a person should know.
    Notice {
        /// `info`, `warn` or `error`.
        level: String,
        /// What the person is told.
        text: String,
    },
    /// An event of a kind that this version does not know.
    #[serde(untagged)]
    Other(Value),
}

/// A message that a call sends while it runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`, as in
    /// RFC 5424.
    pub level: String,
    /// Who says it, when that is not the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// What: a text, or any data.
    #[serde(default)]
    pub data: Value,
}

/// How much a message matters, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageLevel {
    /// For who looks for a fault.
    Debug,
    /// What happens.
    Info,
    /// What is normal and matters.
    Notice,
    /// What may become a fault.
    Warning,
    /// What failed.
    Error,
    /// What failed and is needed.
    Critical,
    /// What somebody must do something about now.
    Alert,
    /// Nothing works.
    Emergency,
}

impl MessageLevel {
    /// The level's word in [`Message::level`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

/// One of the lists that a plugin has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The tools.
    Tools,
    /// The resources and their templates.
    Resources,
    /// The prompts.
    Prompts,
}

impl List {
    /// The list's word in [`PluginEvent::CatalogChanged`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
        }
    }
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Progress {
    /// What is done, in any unit.
    pub done: f64,
    /// What there is to do, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
