//! `conjure thread export | import`: a thread as JSON lines.

use std::io::Write as _;
use std::path::PathBuf;

use conjure_host::fs;
use conjure_host::store::{Log as _, ThreadId, json_lines};
use serde_json::json;

use super::args::Global;
use super::exit::{Exit, Failure};
use super::output::{self, aside, line, piece};
use super::thread::id;

/// Exports a thread.
#[derive(clap::Args)]
pub(crate) struct Export {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// The file; it must not be there yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Imports a thread.
#[derive(clap::Args)]
pub(crate) struct Import {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The id that it gets [default: a new one]
    #[arg(long = "as", value_name = "ID")]
    thread: Option<String>,
}

pub(crate) async fn export(global: &Global, args: &Export) -> Result<Exit, Failure> {
    let store = global.store().await?;
    let thread = id(&args.thread)?;
    let text = json_lines(&store.read(&thread).await?);
    let text = text.map_err(|error| Failure::host(error.to_string()))?;
    let Some(to) = &args.to else {
        piece(String::from_utf8_lossy(&text));
        return Ok(Exit::Fine);
    };
    let failed = |error: std::io::Error| Failure::host(error.to_string());
    let mut file = fs::create_new(to).map_err(failed)?;
    file.write_all(&text).map_err(failed)?;
    if global.json {
        output::json(&json!({ "thread": thread, "file": to }));
    } else {
        aside(format_args!("Thread {thread} is in `{}`.", to.display()));
    }
    Ok(Exit::Fine)
}

pub(crate) async fn import(global: &Global, args: &Import) -> Result<Exit, Failure> {
    let store = global.store().await?;
    let thread = match &args.thread {
        Some(text) => id(text)?,
        None => ThreadId::fresh(),
    };
    store.import_thread(&args.file, &thread).await?;
    if global.json {
        output::json(&json!({ "thread": thread }));
    } else {
        line(&thread);
    }
    Ok(Exit::Fine)
}
