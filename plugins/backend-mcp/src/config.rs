//! What a person configures: servers, how to reach them, and how far they are trusted.
//!
//! Read once an instance. A server that does not fit is a server in the state `failed`, with the
//! reason; the others work. Secrets are named here and asked of the host when a session opens.

use std::collections::BTreeMap;
use std::time::Duration;

use conjure_skill_sdk::protocol::ToolMode;
use conjure_skill_sdk::{Error, Result, Setup};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::sandbox::SandboxSetting;

/// The instance's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `servers`")]
struct McpConfig {
    #[serde(default)]
    servers: Map<String, Value>,
    #[serde(default = "four")]
    max_starting: usize,
    #[serde(default = "catalog_wait")]
    catalog_wait_ms: u64,
}

/// The settings of one instance.
#[derive(Debug)]
pub(crate) struct McpSettings {
    /// The servers in the order of the configuration; those that do not fit with the reason.
    pub(crate) servers: Vec<(String, Result<ServerConfig, String>)>,
    /// How many servers may be starting at the same time.
    pub(crate) max_starting: usize,
    /// How long a session waits for the tools of servers that are starting.
    pub(crate) catalog_wait: Duration,
}

/// Settings of one server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with its settings")]
pub(crate) struct ServerConfig {
    /// The program of a server that speaks over its standard input and output.
    pub(crate) command: Option<PlainSetting>,
    #[serde(default)]
    pub(crate) args: Vec<Setting>,
    /// Variables beside those of the allowlist.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, Setting>,
    /// Names of more variables of the host's that the server sees.
    #[serde(default)]
    pub(crate) pass_env: Vec<String>,
    pub(crate) cwd: Option<PlainSetting>,
    /// Whether a program is kept from the host's own files and from its processes.
    #[serde(default = "yes")]
    pub(crate) confine: bool,
    /// What a program may change, and whether it reaches the network.
    #[serde(default)]
    pub(crate) sandbox: SandboxSetting,
    /// The endpoint of a server that speaks streamable HTTP.
    pub(crate) url: Option<Setting>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Setting>,
    /// How the login to a server over HTTP is done.
    #[serde(default)]
    pub(crate) oauth: OAuthConfig,
    #[serde(default)]
    pub(crate) era: EraChoice,
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    #[serde(default)]
    pub(crate) start: StartMode,
    #[serde(default = "request_timeout")]
    request_timeout_ms: u64,
    #[serde(default = "initialize_timeout")]
    initialize_timeout_ms: u64,
    #[serde(default = "probe_timeout")]
    probe_timeout_ms: u64,
    #[serde(default = "total_timeout")]
    total_timeout_ms: u64,
    #[serde(default = "message_bytes")]
    pub(crate) max_message_bytes: usize,
    /// The mode of tools that have none of their own.
    pub(crate) mode: Option<ToolMode>,
    /// Whether the server keeps nothing between calls: stateful calls are refused.
    #[serde(default)]
    pub(crate) stateless_only: bool,
    #[serde(default)]
    pub(crate) tools: BTreeMap<String, ToolConfig>,
    /// Whether `readOnlyHint` counts: then such a tool may run without asking.
    #[serde(default)]
    pub(crate) trust_annotations: bool,
    /// Whether the model and clients are told what it says about its use.
    #[serde(default = "yes")]
    pub(crate) instructions: bool,
    /// Whether the server's resources are offered.
    #[serde(default = "yes")]
    pub(crate) resources: bool,
    #[serde(default = "yes")]
    pub(crate) elicitation: bool,
    /// Without it, what a program on the other side of the session says; else no.
    pub(crate) sampling: Option<bool>,
    #[serde(default = "yes")]
    pub(crate) roots: bool,
    /// From which level on the server's messages are wanted. Without it a server of the older era
    /// decides, and of the newer one it is `info`.
    pub(crate) log_level: Option<Level>,
}

/// How much a message matters, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Debug,
    #[default]
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    /// MCP's word for it.
    pub(crate) fn name(self) -> &'static str {
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

/// Settings of one tool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with its settings")]
pub(crate) struct ToolConfig {
    pub(crate) mode: Option<ToolMode>,
    pub(crate) idempotent: Option<bool>,
    request_timeout_ms: Option<u64>,
    total_timeout_ms: Option<u64>,
}

/// How the login to a server is done, where its authorization server does not say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with its settings")]
pub(crate) struct OAuthConfig {
    /// The name by which the authorization server knows the host, when it was registered by hand.
    pub(crate) client_id: Option<String>,
    /// The secret that belongs to it.
    pub(crate) client_secret: Option<Setting>,
    /// The address of a document that says who the host is; the name by which it is known to
    /// authorization servers that read such documents.
    pub(crate) client_metadata_url: Option<String>,
    /// The rights that are asked for; those that the server names without it.
    pub(crate) scopes: Option<Vec<String>>,
    /// The port on this machine at which the browser ends; a free one without it.
    pub(crate) callback_port: Option<u16>,
}

/// A value as it is, or the name of a secret.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "a value is a text, `{\"expand\": …}` or `{\"secret\": …}`"
)]
pub(crate) enum Setting {
    Plain(PlainSetting),
    Secret(SecretName),
}

/// A value as it is, or with variables in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "`command` and `cwd` are a text or `{\"expand\": …}`"
)]
pub(crate) enum PlainSetting {
    Text(String),
    Expanded { expand: String },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretName {
    pub(crate) secret: String,
    /// Put before the secret, such as `Bearer `.
    #[serde(default)]
    pub(crate) prefix: String,
}

/// Era of the protocol that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EraChoice {
    /// The newer one that the server speaks.
    #[default]
    Auto,
    /// 2025-11-25 and before: a handshake, and sessions over HTTP.
    Legacy,
    /// 2026-07-28: neither.
    Modern,
}

/// When a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StartMode {
    /// With the session, in the background.
    #[default]
    Background,
    /// When its tools are called. They are offered once they were listed at some time.
    Lazy,
}

/// The time limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestLimits {
    /// Without an answer or progress.
    pub(crate) idle: Duration,
    /// Whatever happens.
    pub(crate) total: Duration,
}

fn yes() -> bool {
    true
}

fn four() -> usize {
    4
}

fn catalog_wait() -> u64 {
    5_000
}

fn request_timeout() -> u64 {
    30_000
}

fn initialize_timeout() -> u64 {
    10_000
}

fn probe_timeout() -> u64 {
    3_000
}

fn total_timeout() -> u64 {
    600_000
}

fn message_bytes() -> usize {
    16 * 1024 * 1024
}

impl McpSettings {
    /// Reads the configuration.
    pub(crate) fn from_setup(setup: &Setup) -> Result<Self> {
        Self::of(setup.config()?)
    }

    /// The settings of what a session says.
    pub(crate) fn from_options(options: Value) -> Result<Self> {
        let config = serde_json::from_value(options);
        Self::of(config.map_err(|error| Error::invalid(format!("its options: {error}")))?)
    }

    fn of(config: McpConfig) -> Result<Self> {
        let read = |(name, value): (String, Value)| {
            let server = serde_json::from_value::<ServerConfig>(value)
                .map_err(|error| error.to_string())
                .and_then(ServerConfig::validated);
            (name, server)
        };
        if config.max_starting == 0 {
            return Err(Error::invalid("`max_starting` is 0; it must be at least 1"));
        }
        Ok(Self {
            servers: config.servers.into_iter().map(read).collect(),
            max_starting: config.max_starting,
            catalog_wait: Duration::from_millis(config.catalog_wait_ms),
        })
    }
}

impl ServerConfig {
    fn validated(self) -> Result<Self, String> {
        if self.request_timeout_ms == 0
            || self.total_timeout_ms == 0
            || self.initialize_timeout_ms == 0
        {
            return Err("a time-out is 0; each must be at least 1 ms".to_owned());
        }
        if self.oauth.client_secret.is_some() && self.oauth.client_id.is_none() {
            return Err("`oauth` has a `client_secret` without a `client_id`".to_owned());
        }
        if self.sandbox.is_on() && !self.confine {
            return Err(
                "it has a `sandbox`, and `confine = false`, which turns that off too; leave one out"
                    .to_owned(),
            );
        }
        if self.sandbox.contradicts_itself() {
            return Err(
                "`sandbox` has the mode `none` and allows something more; without a sandbox \
                 everything is allowed, so leave out `read`, `write` and `network`"
                    .to_owned(),
            );
        }
        match (&self.command, &self.url) {
            (Some(_), Some(_)) => {
                Err("it has a `command` and a `url`: a server is reached by one of them".to_owned())
            }
            (None, None) => Err("it has neither a `command` nor a `url`".to_owned()),
            (Some(_), None) if !self.headers.is_empty() => {
                Err("`headers` are for servers with a `url`".to_owned())
            }
            (None, Some(_)) if self.sandbox.is_on() => {
                Err("`sandbox` is for servers with a `command`".to_owned())
            }
            (None, Some(Setting::Plain(PlainSetting::Text(url)))) => {
                check_address(url).map(|()| self)
            }
            _ => Ok(self),
        }
    }

    /// The limits of a request that is no tool call.
    pub(crate) fn limits(&self) -> RequestLimits {
        RequestLimits {
            idle: Duration::from_millis(self.request_timeout_ms),
            total: Duration::from_millis(self.total_timeout_ms),
        }
    }

    /// The limits of a tool's calls.
    pub(crate) fn limits_of(&self, tool: &str) -> RequestLimits {
        let own = self.tools.get(tool);
        let idle = own.and_then(|own| own.request_timeout_ms);
        let total = own.and_then(|own| own.total_timeout_ms);
        RequestLimits {
            idle: Duration::from_millis(idle.unwrap_or(self.request_timeout_ms)),
            total: Duration::from_millis(total.unwrap_or(self.total_timeout_ms)),
        }
    }

    /// The limit of the handshake.
    pub(crate) fn initialize(&self) -> Duration {
        Duration::from_millis(self.initialize_timeout_ms)
    }

    /// How long a server may be silent when it is asked for its era.
    pub(crate) fn probe(&self) -> Duration {
        Duration::from_millis(self.probe_timeout_ms)
    }
}

/// Whether a text is the address of a server.
pub(crate) fn check_address(url: &str) -> Result<(), String> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(());
    }
    Err("`url` begins with http:// or https://".to_owned())
}

/// JSON Schema of the configuration.
pub(crate) fn schema() -> Value {
    let expanded = json!({
        "type": "object",
        "required": ["expand"],
        "properties": { "expand": { "type": "string" } },
        "additionalProperties": false
    });
    let plain = json!({ "anyOf": [{ "type": "string" }, expanded] });
    let setting = json!({
        "anyOf": [
            { "type": "string" },
            expanded,
            {
                "type": "object",
                "required": ["secret"],
                "properties": {
                    "secret": { "type": "string", "pattern": "^MCP_" },
                    "prefix": { "type": "string" }
                },
                "additionalProperties": false
            }
        ]
    });
    let milliseconds = json!({ "type": "integer", "minimum": 1 });
    let mode = json!({ "enum": ["stateful", "stateless"] });
    let tool = json!({
        "type": "object",
        "properties": {
            "mode": mode,
            "idempotent": { "type": "boolean" },
            "request_timeout_ms": milliseconds,
            "total_timeout_ms": milliseconds
        },
        "additionalProperties": false
    });
    let oauth = json!({
        "type": "object",
        "properties": {
            "client_id": { "type": "string" },
            "client_secret": setting,
            "client_metadata_url": { "type": "string", "pattern": "^https://" },
            "scopes": { "type": "array", "items": { "type": "string" } },
            "callback_port": { "type": "integer", "minimum": 1, "maximum": 65535 }
        },
        "additionalProperties": false
    });
    let server = json!({
        "type": "object",
        "properties": {
            "command": plain,
            "args": { "type": "array", "items": setting },
            "env": { "type": "object", "additionalProperties": setting },
            "pass_env": { "type": "array", "items": { "type": "string" } },
            "cwd": plain,
            "confine": { "type": "boolean" },
            "sandbox": SandboxSetting::schema(),
            "url": setting,
            "headers": { "type": "object", "additionalProperties": setting },
            "oauth": oauth,
            "era": { "enum": ["auto", "legacy", "modern"] },
            "enabled": { "type": "boolean" },
            "start": { "enum": ["background", "lazy"] },
            "request_timeout_ms": milliseconds,
            "initialize_timeout_ms": milliseconds,
            "probe_timeout_ms": milliseconds,
            "total_timeout_ms": milliseconds,
            "max_message_bytes": { "type": "integer", "minimum": 1024 },
            "mode": mode,
            "stateless_only": { "type": "boolean" },
            "tools": { "type": "object", "additionalProperties": tool },
            "trust_annotations": { "type": "boolean" },
            "instructions": { "type": "boolean" },
            "resources": { "type": "boolean" },
            "elicitation": { "type": "boolean" },
            "sampling": { "type": "boolean" },
            "roots": { "type": "boolean" },
            "log_level": {
                "enum": [
                    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
                ]
            }
        },
        "additionalProperties": false
    });
    json!({
        "type": "object",
        "properties": {
            "servers": { "type": "object", "additionalProperties": server },
            "max_starting": { "type": "integer", "minimum": 1 },
            "catalog_wait_ms": { "type": "integer", "minimum": 0 }
        },
        "additionalProperties": false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_fit_is_told_without_types_of_ours() {
        for (server, said) in [
            (json!(5), "expected an object with its settings"),
            (
                json!({ "command": 5 }),
                "`command` and `cwd` are a text or `{\"expand\": …}`",
            ),
            (
                json!({ "command": "x", "env": { "A": 5 } }),
                "a value is a text, `{\"expand\": …}` or `{\"secret\": …}`",
            ),
            (
                json!({ "command": "x", "oauth": 5 }),
                "expected an object with its settings",
            ),
        ] {
            let settings = McpSettings::from_options(json!({ "servers": { "s": server } }));
            let servers = settings.unwrap().servers;
            let why = servers[0].1.as_ref().unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
