//! `conjure schema`: the form of what programs read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Subcommand;
use conjure_core::chat::Event;
use schemars::JsonSchema;
use serde_json::Value;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output;

/// Prints the JSON Schema of what `--json` prints, and of what plugins and hosts say to each other.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure schema events > events.schema.json
  conjure schema protocol
  conjure schema protocol manifest > manifest.schema.json")]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    of: SchemaOf,
}

#[derive(Subcommand)]
enum SchemaOf {
    /// The lines of `conjure run --json` and `conjure chat --json`
    Events,
    /// The protocol between a plugin and its host, for plugins in any language
    ///
    /// Without a name it lists the names that there are. `guide` is the page about the protocol and the
    /// descriptions of programs, and `frames` the bytes of each frame, with what they say.
    Protocol {
        /// A message, such as `manifest` or `skill.execute.request`, or `guide` or `frames`
        name: Option<String>,
    },
}

/// Where the page about the protocol and the bytes of its frames are in the SDK, with their names here.
const EXTRA_FILES: [(&str, &str); 2] = [
    ("frames", "abi/protocol/frames.json"),
    ("guide", "docs/any-language.md"),
];

pub(crate) fn run(global: &Global, args: &SchemaArgs) -> Result<Exit, CliError> {
    match &args.of {
        SchemaOf::Events => output::json(&events()),
        SchemaOf::Protocol { name: Some(name) } => {
            let mut files = protocol()?;
            let Some(text) = files.remove(name) else {
                let message = format!("the protocol has no `{name}`");
                return Err(CliError::usage(message)
                    .hint("`conjure schema protocol` lists the names that there are"));
            };
            output::line(text.trim_end());
        }
        SchemaOf::Protocol { name: None } => {
            let names: Vec<String> = protocol()?.into_keys().collect();
            match global.json {
                true => output::json(&names),
                false => output::line(names.join("\n")),
            }
        }
    }
    Ok(Exit::Success)
}

/// What there is of the protocol, by name.
fn protocol() -> Result<BTreeMap<String, String>, CliError> {
    let files = conjure_sdk_source::files().map_err(CliError::host_from)?;
    let named = files.into_iter().filter_map(|file| {
        let schema = file.path.strip_prefix(conjure_sdk_source::SCHEMAS);
        let schema = schema.and_then(|name| name.strip_suffix(".json"));
        let beside = EXTRA_FILES.iter().find(|(_, path)| *path == file.path);
        let name = schema.or(beside.map(|(name, _)| *name))?.to_owned();
        Some((name, String::from_utf8_lossy(&file.bytes).into_owned()))
    });
    Ok(named.collect())
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
    /// Handle of the file, such as `file-3`.
    id: String,
    /// Name for people.
    name: String,
    /// Media type, such as `text/csv`.
    media_type: String,
    /// Size in bytes, when known.
    size: Option<u64>,
    /// SHA-256 in lower-case hex, when the bytes are here.
    sha256: Option<String>,
    /// The backend instance that made it.
    source: String,
    /// Path on this machine; null while the file is elsewhere.
    path: Option<PathBuf>,
    /// Name that the backend has for the file, when it is or was elsewhere.
    #[serde(default)]
    remote: Option<String>,
}
