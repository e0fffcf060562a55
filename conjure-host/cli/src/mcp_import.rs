//! `conjure mcp import`: the MCP servers of another program's configuration.
//!
//! Reads, prints, and adds to a session file; starts nothing.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use conjure_config::{SessionSpec, fs};
use conjure_import::{ImportResult, is_bundle, read, read_bundle, used_secrets};
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::mcp_servers::KIND;
use super::output::{self, BOLD, RESET, YELLOW, clean, print_note};

/// The file in the data directory that is locked while a session file is read and written again.
const LOCK: &str = "mcp-import.lock";

/// Turns MCP servers of another program into those of a session file.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure mcp import ~/.cursor/mcp.json
  conjure mcp import ~/.codex/config.toml --write session.toml
  conjure mcp import --line 'claude mcp add notes -e TOKEN=abc -- npx -y notes-server'")]
pub(crate) struct McpImportArgs {
    /// The other program's file, such as that of Claude, Codex, Cursor, VS Code, goose, Continue or
    /// Zed, a registry's `server.json`, or an MCP bundle (`.mcpb`); `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "line")]
    file: Option<PathBuf>,
    /// A line `claude mcp add …` or `codex mcp add …` in place of a file
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    line: Option<String>,
    /// Add the servers to this session file, which is made if there is none
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

pub(crate) fn run(global: &Global, args: &McpImportArgs) -> Result<Exit, CliError> {
    let (bytes, from) = source(args)?;
    let mut import = read_import(&bytes, args).map_err(|error| error.context(&from))?;
    if import.names().next().is_none() {
        for note in &import.notes {
            print_note(format_args!("{YELLOW}note{RESET} {}", clean(note)));
        }
        return Err(CliError::usage(format!("{from} has no MCP servers")));
    }
    let toml = match &args.write {
        Some(path) => {
            write(&global.data_dir(), path, &mut import)?;
            None
        }
        None => Some(format!("{}{}", backend(), import.to_toml())),
    };
    print_import(global, &import, toml.as_deref(), args.write.as_deref());
    Ok(Exit::Success)
}

/// Adds the servers to a session file.
fn write(data_dir: &Path, path: &Path, import: &mut ImportResult) -> Result<(), CliError> {
    // Another import may be adding to the same file. Beside that a lock would stay as litter.
    fs::create_private_dir(data_dir).map_err(CliError::host_from)?;
    let _lock = fs::lock(data_dir.join(LOCK)).map_err(CliError::host_from)?;
    let before = if path.exists() {
        fs::read_to_string(path).map_err(CliError::usage_from)?
    } else {
        String::new()
    };
    let after = add_servers(&before, import)
        .map_err(|error| error.context(format_args!("{} is left as it is", path.display())))?;
    fs::write_atomic(path, after.as_bytes()).map_err(CliError::host_from)
}

/// The servers of a text, or the server of a bundle, which is meant to be unpacked beside its file.
fn read_import(bytes: &[u8], args: &McpImportArgs) -> Result<ImportResult, CliError> {
    if is_bundle(bytes) {
        let file = args.file.as_deref().unwrap_or(Path::new("bundle"));
        let file = std::path::absolute(file).map_err(CliError::usage_from)?;
        let dir = file.with_extension("").display().to_string();
        return read_bundle(bytes, &dir).map_err(CliError::usage);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| CliError::usage_from(error).context("it is no text"))?;
    read(text).map_err(CliError::usage)
}

fn source(args: &McpImportArgs) -> Result<(Vec<u8>, String), CliError> {
    if let Some(line) = &args.line {
        return Ok((line.clone().into_bytes(), "the line".to_owned()));
    }
    let path = args.file.as_deref().unwrap_or(Path::new("-"));
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(|error| CliError::usage_from(error).context("standard input"))?;
        return Ok((bytes, "standard input".to_owned()));
    }
    let bytes = fs::read(path);
    let bytes = bytes.map_err(CliError::usage_from)?;
    Ok((bytes, path.display().to_string()))
}

fn backend() -> String {
    format!("[[backend]]\nkind = \"{KIND}\"\n\n")
}

/// A session file with these servers too. Their secrets get names that it does not use yet.
fn add_servers(before: &str, import: &mut ImportResult) -> Result<String, CliError> {
    let spec = SessionSpec::from_toml(before)?;
    let kinds: Vec<bool> = spec.backends.iter().map(|b| b.kind == KIND).collect();
    let mut text = before.trim_end().to_owned();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    match (kinds.contains(&true), kinds.last()) {
        // A table below `backend` belongs to the last one.
        (true, Some(true)) => {}
        (true, _) => {
            return Err(
                CliError::usage(format!("its backend `{KIND}` is not the last"))
                    .hint("run this without `--write` and put the servers there by hand"),
            );
        }
        (false, _) => text.push_str(&backend()),
    }
    let config = spec
        .backends
        .last()
        .and_then(|backend| backend.config.as_ref());
    for name in import.names() {
        let servers = config.and_then(|config| config.get("servers"));
        if servers.is_some_and(|servers| servers.get(name).is_some()) {
            return Err(CliError::usage(format!(
                "it has an MCP server `{name}` already"
            )));
        }
    }
    let mut used = BTreeSet::new();
    for config in spec.backends.iter().filter_map(|it| it.config.as_ref()) {
        used_secrets(config, &mut used);
    }
    import.rename_secrets(&used);
    text.push_str(&import.to_toml());
    SessionSpec::from_toml(&text)?;
    Ok(text)
}

fn print_import(
    global: &Global,
    import: &ImportResult,
    toml: Option<&str>,
    written: Option<&Path>,
) {
    let names: Vec<&str> = import.names().collect();
    if global.json {
        let secrets = import.secrets.iter().map(|secret| {
            json!({
                "secret": secret.name, "what": secret.location, "variable": conjure_config::env::secret_variable(&secret.name),
                "from": secret.from,
            })
        });
        output::json(&json!({
            "servers": names,
            "toml": toml,
            "written": written,
            "secrets": secrets.collect::<Vec<_>>(),
            "notes": import.notes,
        }));
        return;
    }
    match (toml, written) {
        (Some(toml), _) => output::line(clean(toml.trim_end())),
        (None, Some(path)) => {
            output::line(format_args!(
                "{} has {}",
                path.display(),
                clean(&names.join(", "))
            ));
        }
        (None, None) => {}
    }
    if !import.secrets.is_empty() {
        print_note(format_args!(
            "\n{BOLD}Set these secrets{RESET}; they are not written down:"
        ));
        for secret in &import.secrets {
            let value = secret.from.as_ref().map(|from| format!("\"${from}\""));
            print_note(format_args!(
                "  export {}={}  # {}",
                conjure_config::env::secret_variable(&secret.name),
                value.unwrap_or_else(|| "…".to_owned()),
                clean(&secret.location)
            ));
        }
    }
    for note in &import.notes {
        print_note(format_args!("{YELLOW}note{RESET} {}", clean(note)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_file_gets_servers_and_keeps_the_rest() {
        let mut import = read("claude mcp add notes -- notes-server").unwrap();
        let fresh = add_servers("", &mut import).unwrap();
        assert_eq!(
            fresh,
            "[[backend]]\nkind = \"mcp\"\n\n[backend.config.servers.notes]\ncommand = \
             \"notes-server\"\n"
        );
        let again = add_servers(&fresh, &mut import).unwrap_err();
        assert!(again.to_string().contains("`notes` already"), "{again}");
        let mut more = read("claude mcp add more -- more-server").unwrap();
        let both =
            add_servers(&format!("{fresh}\n[routing]\nonly = [\"x\"]\n"), &mut more).unwrap();
        let spec = SessionSpec::from_toml(&both).unwrap();
        assert_eq!(spec.backends.len(), 1);
        let servers = &spec.backends[0].config.as_ref().unwrap()["servers"];
        assert!(servers["notes"].is_object() && servers["more"].is_object());
        let other = format!("{fresh}\n[[backend]]\nkind = \"local\"\n");
        let refused = add_servers(&other, &mut more).unwrap_err();
        assert!(refused.to_string().contains("not the last"), "{refused}");
    }

    #[test]
    fn a_secret_of_a_second_import_has_a_name_of_its_own() {
        let mut first = read("claude mcp add google -e MAPS_API_KEY=abc123def456 -- maps").unwrap();
        let one = add_servers("", &mut first).unwrap();
        let line = "claude mcp add google-maps -e API_KEY=uvw987xyz654 -- maps";
        let mut second = read(line).unwrap();
        let both = add_servers(&one, &mut second).unwrap();
        assert!(
            both.contains("{ secret = \"MCP_GOOGLE_MAPS_API_KEY\" }"),
            "{both}"
        );
        assert!(
            both.contains("{ secret = \"MCP_GOOGLE_MAPS_API_KEY_2\" }"),
            "{both}"
        );
        assert_eq!(second.secrets[0].name, "MCP_GOOGLE_MAPS_API_KEY_2");
    }

    #[test]
    fn imports_at_the_same_time_all_add_their_servers() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("session.toml");
        std::thread::scope(|scope| {
            for at in 0..8 {
                let (file, data) = (&file, dir.path().join("data"));
                scope.spawn(move || {
                    let line = format!("claude mcp add s{at} -- server");
                    write(&data, file, &mut read(&line).unwrap()).unwrap();
                });
            }
        });
        let text = fs::read_to_string(&file).unwrap();
        let spec = SessionSpec::from_toml(&text).unwrap();
        let servers = &spec.backends[0].config.as_ref().unwrap()["servers"];
        assert_eq!(servers.as_object().unwrap().len(), 8, "{text}");
    }
}
