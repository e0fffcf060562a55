//! `server.json`: how a server describes itself to a registry of MCP servers, alone or in the
//! registry's answer.
//!
//! What it says is how to get a server and what must be set, so the first way of it that works
//! here is taken: an address for streamable HTTP, else a package.

use serde_json::{Map, Value};

use super::json;
use super::secret::to_variable_name;
use super::server::{ConfigText, ImportResult, ImportedServer};

/// Whether this is such a description, or a list of them.
pub(crate) fn is_server_document(value: &Value) -> bool {
    let is_server = |value: &Value| {
        let has = |name: &str| value.get(name).is_some_and(Value::is_array);
        value.get("name").is_some_and(Value::is_string) && (has("packages") || has("remotes"))
    };
    let listed = value.get("servers").and_then(Value::as_array);
    let first = listed.and_then(|listed| listed.first());
    is_server(value)
        || first
            .or(Some(value))
            .is_some_and(|one| one.get("server").is_some_and(is_server))
}

/// Reads it.
pub(crate) fn read(value: &Value, import: &mut ImportResult) {
    let one = std::slice::from_ref(value);
    let listed = value.get("servers").and_then(Value::as_array);
    for entry in listed.map_or(one, Vec::as_slice) {
        server(entry.get("server").unwrap_or(entry), import);
    }
}

fn server(described: &Value, import: &mut ImportResult) {
    let whole = described
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // The name has its owner before it.
    let name = json::sanitize_name(whole.rsplit('/').next().unwrap_or(whole));
    let list = |field: &str| described.get(field).and_then(Value::as_array);
    let remotes: Vec<&Value> = list("remotes").into_iter().flatten().collect();
    let packages: Vec<&Value> = list("packages").into_iter().flatten().collect();
    let streamable = |remote: &&&Value| kind(remote) == "streamable-http";
    let ways = remotes.len() + packages.len();
    if let Some(remote) = remotes.iter().find(streamable) {
        self::remote(&name, remote, import);
    } else if let Some(package) = packages.iter().find(|package| runner(package).is_some()) {
        self::package(&name, package, import);
    } else if let Some(remote) = remotes.first() {
        json::note_old_transport(&name, import);
        self::remote(&name, remote, import);
    } else {
        let text = "none of its packages can be started from a description; it is left out";
        import.note(&name, text);
        return;
    }
    if ways > 1 {
        import.note(&name, &format!("one of {ways} ways to reach it was taken"));
    }
}

fn kind(value: &Value) -> &str {
    let kind = field(value, "type", "transport_type");
    kind.and_then(Value::as_str).unwrap_or_default()
}

/// A field under its name of today or an earlier one.
fn field<'a>(value: &'a Value, name: &str, before: &str) -> Option<&'a Value> {
    value.get(name).or_else(|| value.get(before))
}

fn remote(name: &str, remote: &Value, import: &mut ImportResult) {
    let url = remote
        .get("url")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut server = ImportedServer {
        name: name.to_owned(),
        ..ImportedServer::default()
    };
    let url = fill_in(name, url, remote.get("variables"), import);
    server.url = Some(match url {
        ConfigText::Plain(url) => import.address(name, &url),
        other => other,
    });
    for header in inputs(remote.get("headers")) {
        if let Some((header, text)) = named_input(name, "header", header, import) {
            server.headers.push((header, text));
        }
    }
    import.servers.push(server);
}

/// The program that runs a package, and what comes before the package's own name.
fn runner(package: &Value) -> Option<(&'static str, &'static [&'static str])> {
    let kind = field(package, "registryType", "registry_type");
    let transport = package.pointer("/transport/type").and_then(Value::as_str);
    if transport.is_some_and(|transport| transport != "stdio") {
        return None;
    }
    match kind.and_then(Value::as_str)? {
        "npm" => Some(("npx", &["-y"])),
        "pypi" => Some(("uvx", &[])),
        "oci" => Some(("docker", &["run", "-i", "--rm"])),
        "nuget" => Some(("dnx", &["--yes"])),
        _ => None,
    }
}

fn package(name: &str, package: &Value, import: &mut ImportResult) {
    let Some((program, before)) = runner(package) else {
        return;
    };
    let text = |field: &str| package.get(field).and_then(Value::as_str);
    let hint = field(package, "runtimeHint", "runtime_hint").and_then(Value::as_str);
    let mut server = ImportedServer {
        name: name.to_owned(),
        command: Some(ConfigText::Plain(hint.unwrap_or(program).to_owned())),
        ..ImportedServer::default()
    };
    let plain = |text: &str| ConfigText::Plain(text.to_owned());
    let own = arguments(
        name,
        field(package, "runtimeArguments", "runtime_arguments"),
        import,
    );
    let is_said = |word: &str| own.iter().any(|known| *known == plain(word));
    let before: Vec<ConfigText> = before
        .iter()
        .filter(|word| !is_said(word))
        .map(|word| plain(word))
        .collect();
    server.args.extend(before);
    server.args.extend(own);
    let env = field(package, "environmentVariables", "environment_variables");
    for variable in inputs(env) {
        if let Some((variable, text)) = named_input(name, "env", variable, import) {
            if program == "docker" {
                // It is the container that needs it, and takes it from its client.
                server.args.extend([plain("-e"), plain(&variable)]);
            }
            server.env.push((variable, text));
        }
    }
    let identifier = text("identifier").unwrap_or_default();
    let version = text("version").filter(|version| !version.is_empty());
    let versioned = match (program, version) {
        ("npx" | "dnx", Some(version)) => format!("{identifier}@{version}"),
        ("uvx", Some(version)) => format!("{identifier}=={version}"),
        ("docker", Some(version)) if !has_tag(identifier) => format!("{identifier}:{version}"),
        _ => identifier.to_owned(),
    };
    server.args.push(ConfigText::Plain(versioned));
    if program == "dnx" {
        server.args.push(plain("--"));
    }
    server.args.extend(arguments(
        name,
        field(package, "packageArguments", "package_arguments"),
        import,
    ));
    import.servers.push(server);
}

/// Whether an image says its version itself.
fn has_tag(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.contains(':') || image.contains('@')
}

fn inputs(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// Arguments that have a value, in their order.
fn arguments(server: &str, list: Option<&Value>, import: &mut ImportResult) -> Vec<ConfigText> {
    let mut args = Vec::new();
    for argument in inputs(list) {
        let flag = argument.get("name").and_then(Value::as_str);
        let is_named = kind(argument) == "named";
        let label = flag.or_else(|| field(argument, "valueHint", "value_hint")?.as_str());
        let value = input(server, label.unwrap_or("ARG"), argument, import);
        match (flag.filter(|_| is_named), value) {
            (Some(flag), Some(value)) => args.extend([ConfigText::Plain(flag.to_owned()), value]),
            // A flag that has no value is one by itself where it says so.
            (Some(flag), None)
                if argument.get("format").and_then(Value::as_str) == Some("boolean") =>
            {
                args.push(ConfigText::Plain(flag.to_owned()));
            }
            (None, Some(value)) => args.push(value),
            (_, None) => {}
        }
    }
    args
}

fn named_input(
    server: &str,
    what: &str,
    of: &Value,
    import: &mut ImportResult,
) -> Option<(String, ConfigText)> {
    let name = of.get("name").and_then(Value::as_str)?;
    let label = if what == "env" {
        name.to_owned()
    } else {
        format!("{what} {name}")
    };
    Some((name.to_owned(), input(server, &label, of, import)?))
}

/// What is to be written for an input: its value, its default, or a variable that the person sets.
fn input(server: &str, label: &str, of: &Value, import: &mut ImportResult) -> Option<ConfigText> {
    let flag = |name: &str, before: &str| field(of, name, before) == Some(&Value::Bool(true));
    let (is_secret, is_required) = (
        flag("isSecret", "is_secret"),
        flag("isRequired", "is_required"),
    );
    let value = of
        .get("value")
        .or_else(|| of.get("default"))
        .and_then(Value::as_str);
    if is_secret {
        let bare = label.rsplit(' ').next().unwrap_or(label);
        return Some(import.secret(server, label, bare, String::new(), None));
    }
    if let Some(value) = value {
        return Some(fill_in(server, value, of.get("variables"), import));
    }
    let variable = variable(label);
    if !is_required {
        import.note(server, &format!("`{label}` may be set, and is left out"));
        return None;
    }
    import.note(
        server,
        &format!("`{label}` must be set: put it into the variable {variable}"),
    );
    Some(ConfigText::Expand(format!("${{env:{variable}}}")))
}

/// A text with its `{variables}` filled in.
fn fill_in(
    server: &str,
    text: &str,
    variables: Option<&Value>,
    import: &mut ImportResult,
) -> ConfigText {
    let none = Map::new();
    let variables = variables.and_then(Value::as_object).unwrap_or(&none);
    let mut out = text.to_owned();
    let mut expands = false;
    for (name, of) in variables {
        let place = format!("{{{name}}}");
        if !out.contains(&place) {
            continue;
        }
        let known = of
            .get("value")
            .or_else(|| of.get("default"))
            .and_then(Value::as_str);
        let is_secret = field(of, "isSecret", "is_secret") == Some(&Value::Bool(true));
        if is_secret {
            let what = format!("`{text}`, which has a secret in it,");
            return import.secret(server, &what, name, String::new(), None);
        }
        match known {
            Some(known) => out = out.replace(&place, known),
            None => {
                let variable = variable(name);
                let told = format!("`{name}` must be set: put it into the variable {variable}");
                import.note(server, &told);
                out = out.replace(&place, &format!("${{env:{variable}}}"));
                expands = true;
            }
        }
    }
    if expands {
        ConfigText::Expand(out)
    } else {
        ConfigText::Plain(out)
    }
}

/// The variable of the environment for an input.
pub(crate) fn variable(label: &str) -> String {
    let text = to_variable_name(label);
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{text}")
    } else {
        text
    }
}
