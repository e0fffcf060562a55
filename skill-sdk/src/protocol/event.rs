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
    },
    /// The backend's own state changed.
    State {
        /// Such as `starting`, `ready`, `backoff`, `failed`.
        state: String,
        /// Why.
        #[serde(default)]
        detail: String,
    },
    /// Something that a person should know.
    Notice {
        /// `info`, `warn` or `error`.
        level: String,
        /// What.
        text: String,
    },
    /// An event of a kind that this version does not know.
    #[serde(untagged)]
    Other(Value),
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
