//! The MCP servers of another program's configuration, as a session file has them.
//!
//! Reads text and nothing else; starts nothing. What holds a secret is named and not copied, and
//! what is not understood is told. Begin at `server.rs` for what is found, then at the reader of a
//! form, such as `json.rs`.

mod argument;
mod bundle;
mod codex;
mod command;
mod json;
mod line;
mod own_env;
mod registry;
mod secret;
mod secret_name;
mod secret_value;
mod server;
mod shell_words;
#[cfg(test)]
mod tests;
mod timeout;
mod typed_secret;
mod used_secrets;
mod variables;
mod yaml;

use serde_json::{Map, Value};

pub use server::{ImportResult, RequiredSecret};
pub use typed_secret::{TypedSecret, secrets as typed_secrets};
pub use used_secrets::used_secrets;

/// First bytes of an MCP bundle, as of every zip archive.
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";

/// Reads a configuration, whichever of the forms it is:
///
/// - lines `claude mcp add …`, `claude mcp add-json …`, `codex mcp add …`;
/// - JSON with `mcpServers` (Claude, Cursor, Windsurf, Cline and others), `servers` (VS Code), `mcp`
///   (OpenCode) or `context_servers` (Zed);
/// - a registry's `server.json`, or the registry's answer with several;
/// - the manifest of an MCP bundle;
/// - TOML with `[mcp_servers.NAME]` (Codex);
/// - YAML with `extensions` (goose) or `mcpServers` (Continue).
///
/// # Errors
/// Why it is none of them.
pub fn read(text: &str) -> Result<ImportResult, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let begin = skip_comments(text);
    let line = begin.strip_prefix("$ ").unwrap_or(begin);
    if line.starts_with("claude ") || line.starts_with("codex ") {
        return line::read(text);
    }
    if begin.starts_with(['{', '/']) {
        // What stands before it has no words, so that errors name the line of the file.
        let before = text.strip_suffix(begin).unwrap_or_default();
        let lines = "\n".repeat(before.matches('\n').count());
        return json::read(&(lines + begin));
    }
    codex::read(text).or_else(|toml| {
        yaml::read(text).map_err(|yaml| {
            format!(
                "it is neither JSON nor lines `claude mcp add …` or `codex mcp add …`, nor TOML \
                 ({toml}), nor YAML ({yaml})"
            )
        })
    })
}

/// A text from its first line on that is neither empty nor a comment: that says which form it has.
fn skip_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    while rest.starts_with('#') {
        let behind = rest.split_once('\n').map_or("", |(_, behind)| behind);
        rest = behind.trim_start();
    }
    rest
}

/// Whether a file is an MCP bundle (`.mcpb`), which [`read_bundle`] reads.
pub fn is_bundle(bytes: &[u8]) -> bool {
    bytes.starts_with(ZIP_MAGIC)
}

/// Reads an MCP bundle: the server of its manifest, as it runs once the bundle is unpacked in
/// `directory`. Unpacks nothing.
///
/// # Errors
/// Why it is none.
pub fn read_bundle(bytes: &[u8], directory: &str) -> Result<ImportResult, String> {
    let manifest = bundle::manifest(bytes)?;
    let mut import = ImportResult::default();
    bundle::read(&manifest, directory, &mut import);
    import
        .notes
        .push(format!("the bundle has to be unpacked in {directory}"));
    Ok(import)
}

impl ImportResult {
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
