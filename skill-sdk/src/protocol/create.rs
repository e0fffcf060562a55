//! What `create` gets.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first argument of `create`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Create {
    /// Who loads the plugin.
    pub host: HostInfo,
    /// The session that the instance is for; absent for shared state and for backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The name of the backend instance, such as `docker-gpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// What the person configured, checked against the manifest's `config_schema`.
    #[serde(default)]
    pub config: Value,
    /// A directory that is the plugin's own and outlives it, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<String>,
}

/// A host, as it introduces itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostInfo {
    /// `conjure`, or what an embedding program calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The host operations that it serves, with their versions, such as `kv.get/1`.
    #[serde(default)]
    pub operations: Vec<String>,
}
