//! JSON with `mcpServers` (Claude, Cursor and others), `servers` (VS Code), `mcp` (OpenCode) or
//! `context_servers` (Zed); what else is JSON goes to its own reader.

use serde_json::{Map, Value};

use super::own_env::ServerEnv;
use super::server::{ImportResult, ImportedServer};
use super::{bundle, registry, timeout};

/// The directory of a bundle whose manifest alone is read.
const BUNDLE_DIRECTORY: &str = "/BUNDLE_DIRECTORY";

/// Reads a whole file; comments and commas at the end of lists are VS Code's.
pub(crate) fn read(text: &str) -> Result<ImportResult, String> {
    let value: Value =
        serde_json::from_str(&strip_comments(text)).map_err(|error| error.to_string())?;
    let mut import = ImportResult::default();
    if registry::is_server_document(&value) {
        registry::read(&value, &mut import);
        return Ok(import);
    }
    if bundle::is_manifest(&value) {
        bundle::read(&value, BUNDLE_DIRECTORY, &mut import);
        import.notes.push(format!(
            "`{BUNDLE_DIRECTORY}` stands for the directory in which the bundle is unpacked: put that \
             in its place"
        ));
        return Ok(import);
    }
    let direct = ["mcpServers", "servers", "mcp_servers", "context_servers"];
    let found = direct.iter().find_map(|name| value.get(name));
    let found = found.or_else(|| {
        value
            .get("mcp")
            .map(|mcp| mcp.get("servers").unwrap_or(mcp))
    });
    if let Some(Value::Object(servers)) = found {
        for (name, value) in servers {
            server(name, value, &mut import);
        }
    }
    let projects = value.get("projects").and_then(Value::as_object);
    for (path, project) in projects.into_iter().flatten() {
        let servers = project.get("mcpServers").and_then(Value::as_object);
        if servers.is_some_and(|servers| !servers.is_empty()) {
            import.notes.push(format!(
                "the servers of the project {path} are not taken over: import its own part of \
                 the file"
            ));
        }
    }
    Ok(import)
}

/// Reads one server.
pub(crate) fn server(name: &str, value: &Value, import: &mut ImportResult) {
    let Value::Object(fields) = value else {
        import.note(name, "it is no object, and left out");
        return;
    };
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    let kind = text("type")
        .or_else(|| text("transport"))
        .unwrap_or_default();
    match kind {
        "" | "stdio" | "http" | "streamable-http" | "streamableHttp" | "local" | "remote" => {}
        "sse" => note_old_transport(name, import),
        other => {
            import.note(
                name,
                &format!("its transport `{other}` is not spoken; it is left out"),
            );
            return;
        }
    }
    let mut server = ImportedServer {
        name: name.to_owned(),
        ..ImportedServer::default()
    };
    if text("source") == Some("extension") && !fields.contains_key("command") {
        let text = "it is an extension of Zed, which starts it; set the program that it starts";
        import.note(name, &format!("{text} by hand: it is left out"));
        return;
    }
    let url = text("url")
        .or_else(|| text("serverUrl"))
        .or_else(|| text("httpUrl"));
    let (command, args) = command(fields);
    match (command, url) {
        (Some(command), _) => {
            // Zed's older form has all of it below `command`.
            let zed = value.pointer("/command/env");
            let own = own_env([fields.get("env"), fields.get("environment"), zed]);
            if !import.split_command(&mut server, &own, command) {
                server.command = Some(import.program(name, command));
            }
            server.args.extend(import.arguments(name, &own, args));
            pairs(zed, "env", &mut server, import);
        }
        (None, Some(url)) => {
            // The address and the headers may name what is defined here.
            pairs(fields.get("env"), "env", &mut server, import);
            pairs(fields.get("environment"), "env", &mut server, import);
            server.url = Some(import.remote_address(&server, url));
        }
        (None, None) => {
            import.note(
                name,
                "it has neither a command nor an address, and is left out",
            );
            return;
        }
    }
    for (field, value) in fields {
        match (field.as_str(), value.as_i64().filter(|value| *value > 0)) {
            ("timeout", Some(time)) => {
                let (ms, told) = timeout::milliseconds(time, fields);
                import.note(name, &told);
                server.settings.push(("request_timeout_ms", ms.into()));
            }
            _ => apply_field(field, value, &mut server, import),
        }
    }
    import.servers.push(server);
}

/// The transport before streamable HTTP.
pub(crate) fn note_old_transport(name: &str, import: &mut ImportResult) {
    import.note(
        name,
        "it used HTTP with SSE, which is not spoken here; its address is written down as it is, \
         and its own documentation may name another for streamable HTTP",
    );
}

fn command(fields: &Map<String, Value>) -> (Option<&str>, Vec<&str>) {
    let args = strings(fields.get("args"));
    match fields.get("command") {
        Some(Value::String(command)) => (Some(command), args),
        // Some write the whole line as a list.
        Some(whole @ Value::Array(_)) => {
            let mut words = strings(Some(whole)).into_iter();
            (words.next(), words.chain(args).collect())
        }
        Some(Value::Object(zed)) => {
            let path = zed.get("path").and_then(Value::as_str);
            (path, strings(zed.get("args")))
        }
        _ => (None, args),
    }
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    let values = value.and_then(Value::as_array);
    let values = values.into_iter().flatten();
    values.filter_map(Value::as_str).collect()
}

/// A name as a session file has it: without spaces and signs.
pub(crate) fn sanitize_name(name: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let parts = name.split(|c| !is_part(c)).filter(|part| !part.is_empty());
    let tidy = parts.collect::<Vec<_>>().join("-");
    if tidy.is_empty() {
        "server".to_owned()
    } else {
        tidy
    }
}

/// The variables that a server's `env` defines, in whichever objects it has them.
pub(crate) fn own_env<'a>(objects: impl IntoIterator<Item = Option<&'a Value>>) -> ServerEnv {
    let mut own = ServerEnv::default();
    let objects = objects.into_iter().flatten().filter_map(Value::as_object);
    for (name, value) in objects.flatten() {
        own.add(name, &scalar_text(value).unwrap_or_default());
    }
    own
}

/// The arguments of a server's program. It expands the variables of `own` by itself.
pub(crate) fn arguments<'a>(
    args: impl Iterator<Item = &'a Value>,
    own: &ServerEnv,
    server: &mut ImportedServer,
    import: &mut ImportResult,
) {
    let args: Vec<String> = args.filter_map(scalar_text).collect();
    let args = args.iter().map(String::as_str);
    let args = import.arguments(&server.name, own, args);
    server.args.extend(args);
}

/// The variables (`env`) or headers (`header`) of a server.
pub(crate) fn pairs(
    pairs: Option<&Value>,
    what: &str,
    server: &mut ImportedServer,
    import: &mut ImportResult,
) {
    let name = server.name.clone();
    let pairs = pairs.and_then(Value::as_object).into_iter().flatten();
    for (key, value) in pairs {
        let Some(value) = scalar_text(value) else {
            let kind = if what == "env" { "variable" } else { what };
            import.note(&name, &format!("the {kind} `{key}` is no text"));
            continue;
        };
        if what == "env" {
            let text = import.text(&name, &format!("env {key}"), key, &value);
            server.env.push((key.clone(), text));
        } else {
            let text = import.header(server, key, &value);
            server.headers.push((key.clone(), text));
        }
    }
}

/// A number or a text as the text that a program gets.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn apply_field(field: &str, value: &Value, server: &mut ImportedServer, import: &mut ImportResult) {
    let name = server.name.clone();
    match (field, value) {
        ("type" | "transport" | "command" | "args" | "url" | "serverUrl" | "httpUrl", _) => {}
        // Over HTTP they were read before the address.
        ("env" | "environment", Value::Object(_)) if server.url.is_some() => {}
        ("cwd", Value::String(dir)) => server.cwd = Some(import.path(&name, "`cwd`", dir)),
        ("env" | "environment", Value::Object(_)) => pairs(Some(value), "env", server, import),
        ("headers", Value::Object(_)) => pairs(Some(value), "header", server, import),
        // Where it came from, and what says how it looks.
        ("source" | "name" | "description" | "icon" | "gallery" | "version", _) => {}
        ("disabled", Value::Bool(disabled)) if *disabled => {
            server.settings.push(("enabled", false.into()));
        }
        ("enabled", Value::Bool(enabled)) if !*enabled => {
            server.settings.push(("enabled", false.into()));
        }
        ("disabled" | "enabled", Value::Bool(_)) => {}
        ("oauth", Value::Object(oauth)) => self::oauth(oauth, server, import),
        ("autoApprove" | "alwaysAllow" | "trust" | "autoapprove", _) => import.note(
            &name,
            &format!("`{field}` is not taken over: `policy.allow` says what runs without asking"),
        ),
        (field, _) => import.note(&name, &format!("`{field}` is not taken over")),
    }
}

fn oauth(fields: &Map<String, Value>, server: &mut ImportedServer, import: &mut ImportResult) {
    let name = server.name.clone();
    for (field, value) in fields {
        match (field.as_str(), value) {
            ("clientId" | "client_id", Value::String(id)) => {
                server.oauth.push(("client_id", id.as_str().into()));
            }
            ("clientSecret" | "client_secret", Value::String(_)) => {
                let what = "the client's secret";
                let text = import.secret(&name, what, "CLIENT_SECRET", String::new(), None);
                server.oauth_secret = Some(text);
            }
            ("callbackPort", Value::Number(port)) => {
                server
                    .oauth
                    .push(("callback_port", port.as_i64().unwrap_or_default().into()));
            }
            ("scopes", Value::Array(_)) => {
                let scopes: Vec<toml::Value> =
                    strings(Some(value)).into_iter().map(Into::into).collect();
                server.oauth.push(("scopes", scopes.into()));
            }
            _ => import.note(&name, &format!("`oauth.{field}` is not taken over")),
        }
    }
}

/// The text without comments and without commas before a closing bracket.
fn strip_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_text = false;
    while let Some(c) = chars.next() {
        if in_text {
            out.push(c);
            match c {
                '\\' => out.extend(chars.next()),
                '"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match (c, chars.peek()) {
            ('/', Some('/')) => while chars.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => {
                let mut last = ' ';
                for c in chars.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    if c == '\n' {
                        out.push(c);
                    }
                    last = c;
                }
            }
            ('}' | ']', _) => {
                let end = out.trim_end().len();
                if out.get(..end).is_some_and(|text| text.ends_with(',')) {
                    out.replace_range(end - 1..end, "");
                }
                out.push(c);
            }
            _ => {
                in_text = c == '"';
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_commas_too_many_are_left_out() {
        let text = "{ // a\n \"a\": \"// no, /* no */ ,]\", /* b */ \"c\": [1, 2,\n ], }";
        let value: Value = serde_json::from_str(&strip_comments(text)).unwrap();
        assert_eq!(
            value,
            serde_json::json!({ "a": "// no, /* no */ ,]", "c": [1, 2] })
        );
    }
}
