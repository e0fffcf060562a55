//! The MCP servers of another program's configuration, as a session file has them.
//!
//! Reads text and nothing else; starts nothing. What holds a secret is named and not copied, and
//! what is not understood is told.

mod codex;
mod json;
mod line;
mod secret;
mod server;
mod typed;

use serde_json::{Map, Value};

pub use server::{Import, Secret};
pub use typed::{Typed, secrets as typed_secrets};

/// What the environment variable of a secret begins with: `CONJURE_SECRET_NAME` is the secret
/// `NAME`.
pub const SECRET_PREFIX: &str = "CONJURE_SECRET_";

/// Reads a configuration, whichever of the forms it is: lines `claude mcp add …`, JSON with
/// `mcpServers` or `servers`, TOML with `[mcp_servers.NAME]`.
///
/// # Errors
/// Why it is none of them.
pub fn read(text: &str) -> Result<Import, String> {
    let begin = text.trim_start();
    if begin.starts_with("claude ") || begin.starts_with("$ claude ") {
        return line::read(text);
    }
    if begin.starts_with(['{', '/']) {
        return json::read(text);
    }
    codex::read(text)
}

impl Import {
    /// The names of the servers, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().map(|server| server.name.as_str())
    }

    /// The settings of each server by its name, as a session file has them below
    /// `backend.config.servers`.
    ///
    /// # Errors
    /// Why a session file could not hold them, such as two servers of one name.
    pub fn settings(&self) -> Result<Map<String, Value>, String> {
        let read: toml::Table = self
            .to_toml()
            .parse()
            .map_err(|error: toml::de::Error| error.message().to_owned())?;
        let mut read = serde_json::to_value(read).map_err(|error| error.to_string())?;
        match read.pointer_mut("/backend/config/servers").map(Value::take) {
            Some(Value::Object(servers)) => Ok(servers),
            _ => Ok(Map::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_servers_is_told() {
        for text in [
            "{}",
            "a = 1",
            "{\"mcpServers\": 5}",
            "claude mcp remove x",
            "{ nonsense",
        ] {
            let read = read(text);
            assert!(
                read.map_or(true, |import| import.servers.is_empty()),
                "{text}"
            );
        }
    }

    #[test]
    fn settings_are_those_of_a_session_file() {
        let import = read("claude mcp add notes -e TOKEN=abc -- notes-server --quiet").unwrap();
        let expected = json!({
            "notes": {
                "command": "notes-server", "args": ["--quiet"],
                "env": { "TOKEN": { "secret": "MCP_NOTES_TOKEN" } },
            }
        });
        assert_eq!(Value::Object(import.settings().unwrap()), expected);
        assert_eq!(import.names().collect::<Vec<_>>(), ["notes"]);
    }
}
