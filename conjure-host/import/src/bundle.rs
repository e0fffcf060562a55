//! MCP bundles (`.mcpb`, earlier `.dxt`): a zip archive with a server and its `manifest.json`.
//!
//! Reads the manifest and unpacks nothing: whoever calls says where the bundle is, or will be,
//! unpacked.

use std::io::{Cursor, Read as _};

use serde_json::Value;

use super::json;
use super::registry::variable;
use super::server::{ConfigText, ImportResult, ImportedServer};
use super::variables;

/// The most bytes of a manifest.
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;
const MANIFEST: &str = "manifest.json";

/// Whether a value is a bundle's manifest.
pub(crate) fn is_manifest(value: &Value) -> bool {
    let version = value
        .get("manifest_version")
        .or_else(|| value.get("dxt_version"));
    version.is_some() && value.get("server").is_some_and(Value::is_object)
}

/// The manifest in an archive.
///
/// # Errors
/// Why there is none.
pub(crate) fn manifest(bytes: &[u8]) -> Result<Value, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("it is no MCP bundle: {error}");
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| wrong(&error))?;
    if archive.has_duplicate_names() {
        // Whoever unpacks it may find another manifest than is read here.
        return Err(wrong(&"it has two files with the same name"));
    }
    let entry = archive.by_name(MANIFEST).map_err(|error| wrong(&error))?;
    let mut text = String::new();
    // What an entry says of its size is the archive's word.
    let read = entry.take(MAX_MANIFEST_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| wrong(&error))?;
    if text.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(wrong(&format!(
            "its {MANIFEST} has more than {MAX_MANIFEST_BYTES} bytes"
        )));
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    if is_manifest(&value) {
        return Ok(value);
    }
    Err(wrong(&format!("its {MANIFEST} describes no server")))
}

/// Reads a manifest. `directory` is where its bundle is unpacked.
pub(crate) fn read(manifest: &Value, directory: &str, import: &mut ImportResult) {
    let text = |field: &str| manifest.get(field).and_then(Value::as_str);
    let name = json::sanitize_name(text("name").unwrap_or("bundle"));
    let described = manifest.get("server").unwrap_or(&Value::Null);
    let bundle = McpBundle {
        name: &name,
        directory,
        user_config: manifest.get("user_config").unwrap_or(&Value::Null),
    };
    let config = launch_config(described);
    let command = config.as_ref().and_then(|config| config.get("command"));
    let (Some(config), Some(command)) = (&config, command.and_then(Value::as_str)) else {
        import.note(
            &name,
            "its manifest does not say how it is started; it is left out",
        );
        return;
    };
    let mut server = ImportedServer {
        name: name.clone(),
        // Paths in it are of the bundle.
        cwd: Some(ConfigText::Plain(directory.to_owned())),
        ..ImportedServer::default()
    };
    server.command = bundle.text("its command", command, import);
    let args = config.get("args").and_then(Value::as_array);
    for arg in args.into_iter().flatten().filter_map(Value::as_str) {
        match bundle.array_values(arg) {
            Some(values) => {
                for value in values {
                    server
                        .args
                        .extend(bundle.text("an argument", &value, import));
                }
            }
            None => server.args.extend(bundle.text("an argument", arg, import)),
        }
    }
    let env = config.get("env").and_then(Value::as_object);
    for (variable, value) in env.into_iter().flatten() {
        let text = value
            .as_str()
            .and_then(|value| bundle.text(variable, value, import));
        if let Some(text) = text {
            server.env.push((variable.clone(), text));
        }
    }
    import.servers.push(server);
}

/// How a server is started, as its manifest says it for this system; nothing where it does not.
fn launch_config(described: &Value) -> Option<Value> {
    let mut config = described.get("mcp_config").cloned().unwrap_or(Value::Null);
    if config.is_null() {
        let kind = described.get("type").and_then(Value::as_str);
        let entry = described.get("entry_point").and_then(Value::as_str);
        let (Some("uv"), Some(entry)) = (kind, entry) else {
            return None;
        };
        config = serde_json::json!({
            "command": "uv",
            "args": ["run", "--directory", "${__dirname}", entry],
        });
    }
    let system = if cfg!(target_os = "macos") {
        "darwin"
    } else {
        "linux"
    };
    let own = config.pointer(&format!("/platform_overrides/{system}"));
    let own = own.and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(config) = config.as_object_mut() {
        for (field, value) in own {
            if let (Some(Value::Object(all)), Value::Object(more)) =
                (config.get_mut(&field), &value)
            {
                all.extend(more.clone());
            } else {
                config.insert(field, value);
            }
        }
    }
    Some(config)
}

struct McpBundle<'a> {
    name: &'a str,
    directory: &'a str,
    /// Settings that the bundle asks the person for.
    user_config: &'a Value,
}

impl McpBundle<'_> {
    /// The values of an argument that stands for several.
    fn array_values(&self, arg: &str) -> Option<Vec<String>> {
        let key = arg.strip_prefix("${user_config.")?.strip_suffix('}')?;
        let defaults = self.user_config.get(key)?.get("default")?.as_array()?;
        let defaults = defaults.iter().filter_map(Value::as_str);
        Some(defaults.map(str::to_owned).collect())
    }

    /// A text of the manifest; nothing where it stands for what may be left out.
    fn text(&self, label: &str, text: &str, import: &mut ImportResult) -> Option<ConfigText> {
        let mut text = text.replace("${__dirname}", self.directory);
        while let Some(key) = first_user_setting(&text) {
            let place = format!("${{user_config.{key}}}");
            let asked = self.user_config.get(&key).unwrap_or(&Value::Null);
            let is = |flag: &str| asked.get(flag) == Some(&Value::Bool(true));
            if is("sensitive") {
                let (prefix, after) = text.split_once(&place).unwrap_or_default();
                let prefix = if after.is_empty() { prefix } else { "" };
                return Some(import.secret(self.name, label, &key, prefix.to_owned(), None));
            }
            let known = match asked.get("default") {
                Some(Value::String(known)) => Some(known.clone()),
                Some(Value::Number(_) | Value::Bool(_)) => {
                    asked.get("default").map(Value::to_string)
                }
                _ => None,
            };
            let value = match known {
                Some(known) => known,
                None if !is("required") => {
                    let told = format!("`{key}` may be set, and `{label}` with it; it is left out");
                    import.note(self.name, &told);
                    return None;
                }
                None => {
                    let variable = variable(&key);
                    let told = format!("`{key}` must be set: put it into the variable {variable}");
                    import.note(self.name, &told);
                    format!("${{env:{variable}}}")
                }
            };
            text = text.replace(&place, &value);
        }
        for (name, below) in [
            ("DESKTOP", "Desktop"),
            ("DOCUMENTS", "Documents"),
            ("DOWNLOADS", "Downloads"),
        ] {
            text = text.replace(&format!("${{{name}}}"), &format!("${{userHome}}/{below}"));
        }
        text = text.replace("${HOME}", "${userHome}");
        Some(match variables::of(&text) {
            Some(found) if !found.is_untranslatable() => ConfigText::Expand(found.expand),
            Some(found) => {
                import.note_unknown_variables(self.name, label, &found);
                ConfigText::Plain(text)
            }
            None => ConfigText::Plain(text),
        })
    }
}

/// The first setting of the person's that a text names.
fn first_user_setting(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("${user_config.")?;
    let (key, _) = rest.split_once('}')?;
    Some(key.to_owned())
}
