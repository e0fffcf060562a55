//! `conjure schema`: the form of what programs read.

use std::path::PathBuf;

use clap::Subcommand;
use conjure_core::chat::Event;
use schemars::JsonSchema;
use serde_json::Value;

use super::exit::Exit;
use super::output;

/// Prints the JSON Schema of what `--json` prints, for programs that read it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure schema events > events.schema.json")]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    of: SchemaOf,
}

#[derive(Subcommand)]
enum SchemaOf {
    /// The lines of `conjure run --json` and `conjure chat --json`
    Events,
}

pub(crate) fn run(args: &SchemaArgs) -> Exit {
    match args.of {
        SchemaOf::Events => output::json(&events()),
    }
    Exit::Fine
}

/// The schema of a line.
pub(crate) fn events() -> Value {
    let mut schema = Value::from(schemars::schema_for!(OutputLine));
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("title".to_owned(), "A line of `conjure run --json`".into());
    }
    schema
}

/// One line on standard output. Fields that are not named here may come; a `type` that is not known
/// is to be left alone.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only described")]
enum OutputLine {
    /// What happens in the turn.
    Event(Event),
    /// What a run came to: its last line, unless it failed.
    Result(ResultLine),
    /// Why nothing, or no more, came of it.
    Failure(FailureLine),
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is only described")]
struct ResultLine {
    r#type: ResultType,
    /// The answer; null where there is none.
    text: Option<String>,
    /// The stop reason as the provider gave it. Not with `--session`.
    #[serde(default)]
    stop_reason: Option<String>,
    /// How the turn ended, such as `completed`. Only with `--session`.
    #[serde(default)]
    state: Option<String>,
    /// The turn. Only with `--session`.
    #[serde(default)]
    turn: Option<String>,
    /// The thread that the conversation is in.
    thread: String,
    /// The files that its calls made.
    files: Vec<FileMade>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it is only described")]
enum ResultType {
    Result,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is only described")]
struct FailureLine {
    r#type: FailureType,
    /// What failed, why, and what to do.
    error: String,
    /// What can be done about it.
    #[serde(default)]
    hints: Vec<String>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it is only described")]
enum FailureType {
    Error,
}

/// A file of a session.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is only described")]
struct FileMade {
    /// Its handle, such as `file-3`.
    id: String,
    /// What a person would call it.
    name: String,
    /// Such as `text/csv`.
    media_type: String,
    /// Bytes, when known.
    size: Option<u64>,
    /// SHA-256 in lower-case hex, when its bytes are here.
    sha256: Option<String>,
    /// The backend instance that made it.
    source: String,
    /// Where it is on this machine; null while it is elsewhere.
    path: Option<PathBuf>,
    /// What its backend calls it, when it is or was elsewhere.
    #[serde(default)]
    remote: Option<String>,
}
