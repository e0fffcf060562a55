//! The sandbox of a server that is a program, where its configuration wants one: the one that a session's
//! commands have.

use std::path::Path;

use conjure_exec_agent::sandbox_rules::SandboxRules;
use conjure_skill_sdk::Result;
use conjure_skill_sdk::protocol::Sandbox;
use serde::Deserialize;
use serde_json::{Value, json};

/// The setting `sandbox` of a server: `"none"`, `"working-dir"`, or a table of what is allowed besides.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "`sandbox` is \"none\", \"working-dir\", or a table of `mode`, `read`, `write` and `network`"
)]
pub(crate) enum SandboxSetting {
    Mode(ServerSandboxMode),
    Table(ServerSandboxTable),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerSandboxMode {
    /// The server does what the user may.
    None,
    /// It changes what is below its directory and the session's, and has no network.
    WorkingDir,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSandboxTable {
    #[serde(default = "working_dir")]
    mode: ServerSandboxMode,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    network: bool,
}

/// A table says what is allowed more, which has a meaning in a sandbox only.
fn working_dir() -> ServerSandboxMode {
    ServerSandboxMode::WorkingDir
}

impl Default for SandboxSetting {
    fn default() -> Self {
        Self::Mode(ServerSandboxMode::None)
    }
}

impl SandboxSetting {
    /// Whether the server is in a sandbox.
    pub(crate) fn is_on(&self) -> bool {
        let (Self::Mode(mode) | Self::Table(ServerSandboxTable { mode, .. })) = self;
        *mode == ServerSandboxMode::WorkingDir
    }

    /// Whether it allows something besides and is no sandbox.
    pub(crate) fn contradicts_itself(&self) -> bool {
        matches!(self, Self::Table(table) if !self.is_on()
            && (table.network || !table.read.is_empty() || !table.write.is_empty()))
    }

    /// What is allowed to a server that works in these directories, if it is in a sandbox.
    ///
    /// # Errors
    /// Which path cannot be allowed.
    pub(crate) fn rules<'a>(
        &self,
        dirs: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Option<SandboxRules>> {
        if !self.is_on() {
            return Ok(None);
        }
        let sandbox = match self {
            Self::Mode(_) => Sandbox::default(),
            Self::Table(table) => Sandbox {
                read: absolute(&table.read),
                write: absolute(&table.write),
                network: table.network,
            },
        };
        SandboxRules::of(&sandbox, dirs).map(Some)
    }

    /// JSON Schema of the setting.
    pub(crate) fn schema() -> Value {
        let mode = json!({ "enum": ["none", "working-dir"] });
        let paths = json!({ "type": "array", "items": { "type": "string" } });
        let table = json!({
            "type": "object",
            "properties": {
                "mode": mode,
                "read": paths,
                "write": paths,
                "network": { "type": "boolean" }
            },
            "additionalProperties": false
        });
        json!({ "anyOf": [mode, table] })
    }
}

/// With the home directory in the place of `~`.
fn absolute(paths: &[String]) -> Vec<String> {
    let home = std::env::home_dir();
    let absolute = |path: &String| match (Path::new(path).strip_prefix("~"), &home) {
        (Ok(rest), Some(home)) => home.join(rest).to_string_lossy().into_owned(),
        _ => path.clone(),
    };
    paths.iter().map(absolute).collect()
}
