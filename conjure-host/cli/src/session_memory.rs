//! `conjure session memory`: what a session remembers, shown and changed.

use std::io::IsTerminal as _;
use std::process::Command;

use clap::Subcommand;
use conjure_config::SessionSpec;
use conjure_core::turn::EffectiveFrom;
use conjure_runtime::manager::{SessionPatch, SessionView};
use serde_json::{Map, Value};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, line, print_note};
use super::session_change::{memory, text_of};
use super::sessions::SavedSessions;

/// What is remembered as prose.
const TEXT: &str = "memory_text";

/// What a session remembers, and what becomes of it.
#[derive(clap::Args)]
pub(crate) struct SessionMemoryArgs {
    /// The session: its name or its id
    session: String,
    #[command(subcommand)]
    verb: Option<SessionMemoryVerb>,
}

#[derive(Subcommand)]
enum SessionMemoryVerb {
    /// Show it, which is what is done without a verb
    Show,
    /// Put this in its place: a JSON object, any text, or `@FILE` with one of the two
    Set {
        /// The memory
        text: String,
    },
    /// Change it in the editor of `$VISUAL` or `$EDITOR`
    Edit,
    /// Forget all of it
    Clear,
}

pub(crate) async fn run(
    global: &Global,
    sessions: &SavedSessions,
    args: SessionMemoryArgs,
) -> Result<Exit, CliError> {
    let view = sessions.manager().get(&args.session).await?;
    let changed = match args.verb.unwrap_or(SessionMemoryVerb::Show) {
        SessionMemoryVerb::Show => {
            show(global, &view.memory);
            return Ok(Exit::Success);
        }
        SessionMemoryVerb::Set { text } => memory(&text_of(&text)?),
        SessionMemoryVerb::Edit => match edit_memory(&view)? {
            Some(changed) => changed,
            None => {
                print_note("Nothing changed.");
                return Ok(Exit::Success);
            }
        },
        SessionMemoryVerb::Clear => Map::new(),
    };
    let patch = SessionPatch {
        memory: Some(changed),
        ..SessionPatch::default()
    };
    let view = sessions
        .update(&view.id, patch, EffectiveFrom::NextTurn)
        .await?;
    show(global, &view.memory);
    Ok(Exit::Success)
}

fn show(global: &Global, memory: &Map<String, Value>) {
    if global.json {
        output::json(memory);
    } else if memory.is_empty() {
        print_note("It remembers nothing.");
    } else {
        line(clean(memory_text(memory).trim_end()));
    }
}

/// A memory as a person writes it: prose where it is nothing else, else JSON.
fn memory_text(memory: &Map<String, Value>) -> String {
    let prose = memory.get(TEXT).and_then(Value::as_str);
    match prose.filter(|_| memory.len() == 1) {
        Some(text) => text.to_owned(),
        None => serde_json::to_string_pretty(memory).unwrap_or_default(),
    }
}

/// What a person made of it in their editor; nothing where they left it as it was.
fn edit_memory(view: &SessionView) -> Result<Option<Map<String, Value>>, CliError> {
    let before = &view.memory;
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(std::env::var_os);
    let editor = editor.filter(|editor| !editor.is_empty()).ok_or_else(|| {
        CliError::usage("there is no editor")
            .hint("set `$EDITOR`, or use `conjure session memory NAME set @FILE`")
    })?;
    if !std::io::stdin().is_terminal() {
        return Err(CliError::usage("there is no terminal to edit at")
            .hint("use `conjure session memory NAME set @FILE`"));
    }
    let text = match before.is_empty() {
        true => String::new(),
        false => memory_text(before),
    };
    let dir = tempfile::Builder::new()
        .prefix("conjure-memory-")
        .tempdir()
        .map_err(edit_error)?;
    let file = dir.path().join("memory.md");
    conjure_config::fs::write(&file, &text).map_err(edit_error)?;
    // An editor may be written with its arguments.
    let mut shell = Command::new("/bin/sh");
    let tools = serde_json::from_value::<SessionSpec>(view.tools.clone().into());
    let tools = tools.unwrap_or_default();
    conjure_config::env::remove_keys(&mut shell, tools.key_vars());
    let status = shell
        .args(["-c", "exec $0 \"$1\""])
        .arg(&editor)
        .arg(&file)
        .status()
        .map_err(edit_error)?;
    if !status.success() {
        return Err(CliError::usage(
            "the editor did not end well; nothing changed",
        ));
    }
    let after = conjure_config::fs::read_to_string(&file).map_err(edit_error)?;
    Ok((after != text).then(|| match after.trim() {
        "" => Map::new(),
        _ => memory(&after),
    }))
}

fn edit_error(error: std::io::Error) -> CliError {
    CliError::host_from(error).context("the memory cannot be edited")
}
