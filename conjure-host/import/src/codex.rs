//! TOML of Codex: `[mcp_servers.NAME]`.

use toml::{Table, Value};

use super::own_env::ServerEnv;
use super::server::{ConfigText, ImportResult, ImportedServer};

/// Reads a whole file.
pub(crate) fn read(text: &str) -> Result<ImportResult, String> {
    let file: Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    let mut import = ImportResult::default();
    let servers = file.get("mcp_servers").and_then(Value::as_table);
    for (name, value) in servers.into_iter().flatten() {
        match value.as_table() {
            Some(fields) => server(name, fields, &mut import),
            None => import.note(name, "it is no table, and left out"),
        }
    }
    Ok(import)
}

fn server(name: &str, fields: &Table, import: &mut ImportResult) {
    let mut server = ImportedServer {
        name: name.to_owned(),
        ..ImportedServer::default()
    };
    let mut own = ServerEnv::default();
    for (variable, value) in fields.get("env").map(pairs).unwrap_or_default() {
        own.add(&variable, &value);
    }
    // Over HTTP the address and the headers may name what `env` defines, so it comes first.
    let is_remote = fields.contains_key("url") && !fields.contains_key("command");
    let is_first = |field: &str| is_remote && field == "env";
    let (first, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(field, _)| is_first(field));
    for (field, value) in first.into_iter().chain(rest) {
        apply_field(field, value, &own, &mut server, import);
    }
    if server.command.is_none() && server.url.is_none() {
        import.note(
            name,
            "it has neither a command nor an address, and is left out",
        );
        return;
    }
    import.servers.push(server);
}

/// The texts of a table by their names.
fn pairs(value: &Value) -> Vec<(String, String)> {
    let table = value.as_table().into_iter().flatten();
    table
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn apply_field(
    field: &str,
    value: &Value,
    own: &ServerEnv,
    server: &mut ImportedServer,
    import: &mut ImportResult,
) {
    let name = server.name.clone();
    match (field, value) {
        ("command", Value::String(command)) => {
            if !import.split_command(server, own, command) {
                server.command = Some(ConfigText::Plain(command.clone()));
            }
        }
        ("args", Value::Array(args)) => {
            let args = args.iter().filter_map(Value::as_str);
            server.args.extend(import.arguments(&name, own, args));
        }
        ("cwd", Value::String(dir)) => server.cwd = Some(ConfigText::Plain(dir.clone())),
        ("url", Value::String(url)) => server.url = Some(import.remote_address(server, url)),
        ("env", Value::Table(_)) => {
            for (variable, value) in pairs(value) {
                let what = format!("env {variable}");
                let text = import.text(&name, &what, &variable, &value);
                server.env.push((variable, text));
            }
        }
        ("env_vars", Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            server.pass_env.extend(names.map(str::to_owned));
        }
        ("http_headers", Value::Table(_)) => {
            for (header, value) in pairs(value) {
                let text = import.header(server, &header, &value);
                server.headers.push((header, text));
            }
        }
        ("env_http_headers", Value::Table(_)) => {
            for (header, variable) in pairs(value) {
                let what = format!("header {header}");
                let text = import.secret(&name, &what, &header, String::new(), Some(variable));
                server.headers.push((header, text));
            }
        }
        ("bearer_token_env_var", Value::String(variable)) => {
            let text = import.secret(
                &name,
                "the token",
                "TOKEN",
                "Bearer ".to_owned(),
                Some(variable.clone()),
            );
            server.headers.push(("Authorization".to_owned(), text));
        }
        ("startup_timeout_sec" | "tool_timeout_sec", _) => match milliseconds(value) {
            Some(ms) => {
                let setting = match field {
                    "startup_timeout_sec" => "initialize_timeout_ms",
                    _ => "request_timeout_ms",
                };
                server.settings.push((setting, ms.into()));
            }
            None => import.note(&name, &format!("`{field}` is no number of seconds")),
        },
        ("startup_timeout_ms", Value::Integer(ms)) => {
            server
                .settings
                .push(("initialize_timeout_ms", (*ms).into()));
        }
        ("scopes", Value::Array(_)) => server.oauth.push(("scopes", value.clone())),
        ("enabled", Value::Boolean(enabled)) => {
            if !*enabled {
                server.settings.push(("enabled", false.into()));
            }
        }
        ("enabled_tools" | "disabled_tools", _) => {
            let instead = if field == "enabled_tools" {
                "only"
            } else {
                "except"
            };
            let text = format!("`{field}` is not taken over: `{instead}` of the backend does that");
            import.note(&name, &text);
        }
        _ => import.note(&name, &format!("`{field}` is not taken over")),
    }
}

fn milliseconds(seconds: &Value) -> Option<i64> {
    let seconds = match seconds {
        Value::Integer(seconds) => *seconds as f64,
        Value::Float(seconds) => *seconds,
        _ => return None,
    };
    (seconds > 0.0 && seconds < 1e9).then(|| (seconds * 1000.0).round() as i64)
}
