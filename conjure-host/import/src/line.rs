//! Lines `claude mcp add …`, `claude mcp add-json …` and `codex mcp add …`.

use super::json;
use super::own_env::ServerEnv;
use super::server::{ConfigText, ImportResult, ImportedServer};
use super::shell_words::split;

/// Reads one line or several.
pub(crate) fn read(text: &str) -> Result<ImportResult, String> {
    let mut import = ImportResult::default();
    // A line may go on in the next, also in a file of Windows.
    let text = text.replace("\r\n", "\n").replace("\\\n", " ");
    for line in text.lines().map(str::trim) {
        let line = line.strip_prefix("$ ").unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words = split(line)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["claude", "mcp", "add", rest @ ..] => add(rest, &mut import)?,
            ["claude", "mcp", "add-json", rest @ ..] => add_json(rest, &mut import)?,
            ["codex", "mcp", "add", rest @ ..] => add_of_codex(rest, &mut import)?,
            // The rest of it may be secret.
            words => {
                let begin: Vec<&str> = words.iter().copied().take(3).collect();
                import
                    .notes
                    .push(format!("not understood: {} …", begin.join(" ")));
            }
        }
    }
    Ok(import)
}

/// Options of a command line.
#[derive(Default)]
struct LineOptions<'a> {
    transport: Option<&'a str>,
    env: Vec<&'a str>,
    headers: Vec<&'a str>,
    client_id: Option<&'a str>,
    port: Option<&'a str>,
    has_client_secret: bool,
    words: Vec<&'a str>,
    unknown: Vec<&'a str>,
}

fn options<'a>(words: &[&'a str]) -> Result<LineOptions<'a>, String> {
    let mut line = LineOptions::default();
    let mut rest = words.iter().copied().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            line.words.extend(rest);
            break;
        }
        // What comes behind the command is the command's.
        if !word.starts_with('-') || line.words.len() > 2 {
            line.words.push(word);
            continue;
        }
        let (option, own) = match word.split_once('=') {
            Some((option, own)) if option.starts_with("--") => (option, Some(own)),
            _ => (word, None),
        };
        let mut value = || {
            own.or_else(|| rest.next())
                .ok_or(format!("{option} has no value"))
        };
        match option {
            "-t" | "--transport" => line.transport = Some(value()?),
            "-s" | "--scope" => drop(value()?),
            "-e" | "--env" => {
                line.env.push(value()?);
                // These options take several values.
                while let Some(more) = rest.next_if(|next| is_pair(next)) {
                    line.env.push(more);
                }
            }
            "-H" | "--header" => {
                line.headers.push(value()?);
                while let Some(more) = rest.next_if(|next| next.contains(": ")) {
                    line.headers.push(more);
                }
            }
            "--client-id" => line.client_id = Some(value()?),
            "--callback-port" => line.port = Some(value()?),
            "--client-secret" => line.has_client_secret = true,
            other => line.unknown.push(other),
        }
    }
    Ok(line)
}

/// Whether a word has the form `NAME=value`.
fn is_pair(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn add(words: &[&str], import: &mut ImportResult) -> Result<(), String> {
    let line = options(words)?;
    let [name, target, args @ ..] = line.words.as_slice() else {
        return Err("`claude mcp add` has a name and a command or an address".to_owned());
    };
    let mut server = ImportedServer {
        name: (*name).to_owned(),
        ..ImportedServer::default()
    };
    for option in &line.unknown {
        import.note(name, &format!("the option `{option}` is not understood"));
    }
    let is_address = target.starts_with("http://") || target.starts_with("https://");
    match line.transport {
        Some("sse") => json::note_old_transport(name, import),
        Some("http" | "stdio" | "streamable-http") | None => {}
        Some(other) => import.note(name, &format!("the transport `{other}` is not understood")),
    }
    let is_http = matches!(line.transport, Some("http" | "sse" | "streamable-http"));
    let is_remote = is_http || (is_address && line.transport.is_none());
    if is_remote {
        // The address and the headers may name what is defined here.
        variables(&line.env, &mut server, import);
    }
    if is_http {
        if !is_address {
            return Err(format!(
                "`{name}`: its address does not begin with `http://` or `https://`"
            ));
        }
        server.url = Some(import.remote_address(&server, target));
        if !args.is_empty() {
            import.note(name, "what stands behind its address is left out");
        }
    } else {
        let own = own_env(&line.env);
        if is_remote {
            import.note(
                name,
                "its command is an address, which is taken for a server over HTTP",
            );
            server.url = Some(import.remote_address(&server, target));
        } else if !import.split_command(&mut server, &own, target) {
            server.command = Some(import.program(name, target));
        }
        let args = import.arguments(name, &own, args.iter().copied());
        server.args.extend(args);
    }
    if !is_remote {
        variables(&line.env, &mut server, import);
    }
    headers(&line, &mut server, import);
    oauth(&line, &mut server, import);
    import.servers.push(server);
    Ok(())
}

fn headers(line: &LineOptions<'_>, server: &mut ImportedServer, import: &mut ImportResult) {
    for header in &line.headers {
        let Some((header, value)) = header.split_once(':') else {
            import.note(&server.name, "a header has no colon, and is left out");
            continue;
        };
        let text = import.header(server, header.trim(), value.trim());
        server.headers.push((header.trim().to_owned(), text));
    }
}

fn oauth(line: &LineOptions<'_>, server: &mut ImportedServer, import: &mut ImportResult) {
    let name = &server.name;
    if let Some(id) = line.client_id {
        server.oauth.push(("client_id", id.into()));
    }
    if line.has_client_secret {
        let what = "the client's secret";
        let text = import.secret(name, what, "CLIENT_SECRET", String::new(), None);
        server.oauth_secret = Some(text);
    }
    match line.port.map(str::parse::<u16>) {
        Some(Ok(port)) => server.oauth.push(("callback_port", i64::from(port).into())),
        Some(Err(_)) => import.note(name, "its `--callback-port` is no port"),
        None => {}
    }
}

/// The variables of a line, each `NAME=value`.
fn variables(pairs: &[&str], server: &mut ImportedServer, import: &mut ImportResult) {
    let name = server.name.clone();
    for pair in pairs {
        let Some((variable, value)) = pair.split_once('=') else {
            // It may be a secret without its name, and is not repeated.
            import.note(&name, "a variable is not NAME=value, and is left out");
            continue;
        };
        let text = import.text(&name, &format!("env {variable}"), variable, value);
        server.env.push((variable.to_owned(), text));
    }
}

/// Variables that a line defines.
fn own_env(pairs: &[&str]) -> ServerEnv {
    let mut own = ServerEnv::default();
    for (name, value) in pairs.iter().filter_map(|pair| pair.split_once('=')) {
        own.add(name, value);
    }
    own
}

/// The words of `codex mcp add`.
#[derive(Default)]
struct CodexLine<'a> {
    name: Option<&'a str>,
    command: Vec<&'a str>,
    env: Vec<&'a str>,
    url: Option<&'a str>,
    /// The variable that holds the token.
    token: Option<&'a str>,
    client_id: Option<&'a str>,
    /// Options that are not understood.
    unknown: Vec<&'a str>,
}

fn codex_options<'a>(words: &[&'a str]) -> Result<CodexLine<'a>, String> {
    let mut line = CodexLine::default();
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        if word == "--" {
            line.command.extend(rest);
            break;
        }
        if !word.starts_with('-') {
            if line.name.is_none() {
                line.name = Some(word);
                continue;
            }
            // From here on it is the program's.
            line.command.push(word);
            line.command.extend(rest);
            break;
        }
        let (option, own) = match word.split_once('=') {
            Some((option, own)) => (option, Some(own)),
            None => (word, None),
        };
        let mut value = || {
            own.or_else(|| rest.next())
                .ok_or(format!("{option} has no value"))
        };
        match option {
            "--env" => line.env.push(value()?),
            "--url" => line.url = Some(value()?),
            "--bearer-token-env-var" => line.token = Some(value()?),
            "--oauth-client-id" => line.client_id = Some(value()?),
            other => line.unknown.push(other),
        }
    }
    Ok(line)
}

/// `codex mcp add NAME [--env NAME=VALUE]… (--url URL [--bearer-token-env-var NAME] | COMMAND…)`.
fn add_of_codex(words: &[&str], import: &mut ImportResult) -> Result<(), String> {
    let line = codex_options(words)?;
    let name = line
        .name
        .ok_or("`codex mcp add` has a name and a command or `--url`")?;
    let mut server = ImportedServer {
        name: name.to_owned(),
        ..ImportedServer::default()
    };
    for option in line.unknown {
        import.note(name, &format!("the option `{option}` is not understood"));
    }
    match (line.url, line.command.split_first()) {
        (Some(url), _) => {
            variables(&line.env, &mut server, import);
            server.url = Some(import.remote_address(&server, url));
        }
        (None, Some((program, args))) => {
            let own = own_env(&line.env);
            if !import.split_command(&mut server, &own, program) {
                server.command = Some(ConfigText::Plain((*program).to_owned()));
            }
            let args = import.arguments(name, &own, args.iter().copied());
            server.args.extend(args);
            variables(&line.env, &mut server, import);
        }
        (None, None) => return Err(format!("`{name}` has neither a command nor `--url`")),
    }
    if let Some(variable) = line.token {
        let bearer = "Bearer ".to_owned();
        let text = import.secret(
            name,
            "the token",
            "TOKEN",
            bearer,
            Some(variable.to_owned()),
        );
        server.headers.push(("Authorization".to_owned(), text));
    }
    if let Some(id) = line.client_id {
        server.oauth.push(("client_id", id.into()));
    }
    import.servers.push(server);
    Ok(())
}

fn add_json(words: &[&str], import: &mut ImportResult) -> Result<(), String> {
    let line = options(words)?;
    let [name, text, ..] = line.words.as_slice() else {
        return Err("`claude mcp add-json` has a name and a text of JSON".to_owned());
    };
    let value = serde_json::from_str(text).map_err(|error| format!("`{name}`: {error}"))?;
    json::server(name, &value, import);
    Ok(())
}
