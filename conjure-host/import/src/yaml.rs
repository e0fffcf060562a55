//! YAML: goose (`extensions`) and Continue (`mcpServers` as a list).

use serde_json::Value;

use super::json;
use super::server::{ImportResult, ImportedServer};

/// The most bytes of a file.
const MAX_BYTES: usize = 1024 * 1024;
/// How deeply a file may be nested.
const MAX_DEPTH: usize = 32;
/// The most events, and the most nodes, of a file.
const MAX_EVENTS: usize = 100_000;
/// The most aliases, and the most anchors, of a file.
const MAX_ALIASES: usize = 1_000;

/// Reads a whole file.
pub(crate) fn read(text: &str) -> Result<ImportResult, String> {
    let value = parse(text)?;
    let mut import = ImportResult::default();
    // A recipe of goose's desktop is one level deeper.
    let value = value.get("recipe").unwrap_or(&value);
    match value.get("extensions") {
        Some(Value::Object(extensions)) => {
            for (name, extension) in extensions {
                goose(name, extension, &mut import);
            }
        }
        Some(Value::Array(extensions)) => {
            for (at, extension) in extensions.iter().enumerate() {
                goose(&name_of(extension, at), extension, &mut import);
            }
        }
        _ => {}
    }
    match value.get("mcpServers") {
        Some(Value::Array(servers)) => {
            for (at, server) in servers.iter().enumerate() {
                continue_server(&name_of(server, at), server, &mut import);
            }
        }
        Some(Value::Object(servers)) => {
            for (name, server) in servers {
                json::server(name, server, &mut import);
            }
        }
        _ => {}
    }
    Ok(import)
}

fn parse(text: &str) -> Result<Value, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_events: MAX_EVENTS,
            max_nodes: MAX_EVENTS,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
        },
    };
    let value: Value =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    if value.is_object() {
        return Ok(value);
    }
    Err("it is no table of settings".to_owned())
}

fn name_of(value: &Value, at: usize) -> String {
    let name = value.get("name").and_then(Value::as_str);
    name.map_or_else(|| format!("server-{}", at + 1), json::sanitize_name)
}

/// An extension of goose.
fn goose(name: &str, extension: &Value, import: &mut ImportResult) {
    // An older form has the settings below `config`.
    let inner = extension.get("config").filter(|inner| inner.is_object());
    let settings = inner.unwrap_or(extension);
    let text = |field: &str| settings.get(field).and_then(Value::as_str);
    let mut server = ImportedServer {
        name: json::sanitize_name(name),
        ..ImportedServer::default()
    };
    let name = server.name.clone();
    match text("type").unwrap_or_default() {
        "stdio" => match text("cmd") {
            Some(command) => {
                let mut own = json::own_env([settings.get("envs")]);
                env_keys(settings).for_each(|key| own.add(key, ""));
                if !import.split_command(&mut server, &own, command) {
                    server.command = Some(import.program(&name, command));
                }
                let args = settings.get("args").and_then(Value::as_array);
                json::arguments(args.into_iter().flatten(), &own, &mut server, import);
                goose_env(settings, &mut server, import);
            }
            None => return import.note(&name, "it has no `cmd`, and is left out"),
        },
        kind @ ("streamable_http" | "sse") => {
            if kind == "sse" {
                json::note_old_transport(&name, import);
            }
            match text("uri") {
                Some(uri) => {
                    goose_env(settings, &mut server, import);
                    server.url = Some(import.remote_address(&server, uri));
                }
                None => return import.note(&name, "it has no `uri`, and is left out"),
            }
        }
        kind => {
            let text = format!("it is of goose's own kind `{kind}`, and left out");
            return import.note(&name, &text);
        }
    }
    json::pairs(settings.get("headers"), "header", &mut server, import);
    let enabled = extension.get("enabled").or_else(|| settings.get("enabled"));
    if enabled == Some(&Value::Bool(false)) {
        server.settings.push(("enabled", false.into()));
    }
    if let Some(seconds) = settings.get("timeout").and_then(Value::as_i64)
        && (1..1_000_000).contains(&seconds)
    {
        server
            .settings
            .push(("request_timeout_ms", (seconds * 1000).into()));
    }
    let only = settings.get("available_tools").and_then(Value::as_array);
    if only.is_some_and(|tools| !tools.is_empty()) {
        let text = "`available_tools` is not taken over: `only` of the backend does that";
        import.note(&name, text);
    }
    import.servers.push(server);
}

/// The variables of an extension. Those of `env_keys` are in goose's keyring; here they are secrets,
/// over HTTP only where the address or a header names them.
fn goose_env(settings: &Value, server: &mut ImportedServer, import: &mut ImportResult) {
    json::pairs(settings.get("envs"), "env", server, import);
    for key in env_keys(settings) {
        let is_there = server.env.iter().any(|(known, _)| known == key);
        if !is_there && (server.command.is_some() || is_named(settings, key)) {
            let what = format!("env {key}");
            let secret = import.secret(&server.name, &what, key, String::new(), None);
            server.env.push((key.to_owned(), secret));
        }
    }
}

fn env_keys(settings: &Value) -> impl Iterator<Item = &str> {
    let keys = settings.get("env_keys").and_then(Value::as_array);
    keys.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether the address or a header of an extension names a variable.
fn is_named(settings: &Value, variable: &str) -> bool {
    let headers = settings.get("headers").and_then(Value::as_object);
    let headers = headers.into_iter().flatten().map(|(_, value)| value);
    let mut texts = headers.chain(settings.get("uri")).filter_map(Value::as_str);
    let (braced, bare) = (format!("${{{variable}}}"), format!("${variable}"));
    texts.any(|text| text.contains(&braced) || text.contains(&bare))
}

/// A server of Continue.
fn continue_server(name: &str, value: &Value, import: &mut ImportResult) {
    let Value::Object(fields) = value else {
        import.note(name, "it is no table, and left out");
        return;
    };
    let mut fields = fields.clone();
    let timeout = fields.remove("connectionTimeout");
    let options = fields.remove("requestOptions");
    let key = fields.remove("apiKey");
    for own in ["name", "serverName", "faviconUrl", "sourceFile"] {
        fields.remove(own);
    }
    let before = import.servers.len();
    json::server(name, &Value::Object(fields), import);
    if import.servers.len() == before {
        // It was left out.
        return;
    }
    let Some(mut server) = import.servers.pop() else {
        return;
    };
    if let Some(ms) = timeout
        .as_ref()
        .and_then(Value::as_i64)
        .filter(|ms| *ms > 0)
    {
        server.settings.push(("initialize_timeout_ms", ms.into()));
    }
    if let Some(Value::Object(options)) = options {
        json::pairs(options.get("headers"), "header", &mut server, import);
        for option in options.keys().filter(|option| *option != "headers") {
            import.note(
                name,
                &format!("`requestOptions.{option}` is not taken over"),
            );
        }
    }
    if let Some(key) = key.as_ref().and_then(Value::as_str) {
        let value = format!("Bearer {key}");
        let text = import.text(name, "the key", "Authorization", &value);
        server.headers.push(("Authorization".to_owned(), text));
    }
    import.servers.push(server);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_made_to_take_long_is_refused() {
        let deep = format!("a: {}{}", "[".repeat(5_000), "]".repeat(5_000));
        assert!(read(&deep).is_err());
        let mut laughs = "a0: &a0 [x, x]\n".to_owned();
        for n in 1..40 {
            laughs.push_str(&format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1));
        }
        assert!(read(&laughs).is_err());
        assert!(read(&" ".repeat(MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn a_server_of_continue_that_is_left_out_takes_none_with_it() {
        let text = "mcpServers:\n  - name: a\n    command: a-server\n  - name: b\n    apiKey: x\n";
        let import = read(text).unwrap();
        assert_eq!(import.names().collect::<Vec<_>>(), ["a"]);
        assert_eq!(import.servers[0].headers, []);
    }
}
