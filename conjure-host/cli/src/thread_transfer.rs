//! `conjure thread export | import`: a thread as JSON lines, as HTML to be read, or as a cassette.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use conjure_config::fs;
use conjure_core::replay::{Cassette, CassetteError};
use conjure_store::{Log as _, StoreError, ThreadId, json_lines};
use serde_json::json;

use super::args::{Global, SessionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, json_text, line, print_note};
use super::thread::id;

/// Exports a thread.
#[derive(clap::Args)]
pub(crate) struct Export {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// The file; it must not be there yet [default: standard output]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cassette", "html"])]
    to: Option<PathBuf>,
    /// Write it as one HTML file that others can read in a browser: no script, nothing fetched,
    /// pictures of up to 2 MiB in it. The file must not be there yet
    #[arg(long, value_name = "FILE", conflicts_with = "cassette")]
    html: Option<PathBuf>,
    /// Write it as model requests, replies and results, which `conjure replay` runs again; the
    /// options of a session say with which tools and rules. The file must not be there yet
    #[arg(long, value_name = "FILE")]
    cassette: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArgs,
}

/// Imports a thread.
#[derive(clap::Args)]
pub(crate) struct ImportThreadArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The id that it gets [default: a new one]
    #[arg(long = "as", value_name = "ID")]
    thread: Option<String>,
}

pub(crate) async fn export(global: &Global, args: Export) -> Result<Exit, CliError> {
    if let Some(to) = &args.cassette {
        let thread = id(&args.thread)?;
        return record(global, &thread, to, args.session).await;
    }
    let why = "the options of a session are for `--cassette FILE`";
    args.session.check_unused(|_| true, why)?;
    let store = global.store().await?;
    let thread = id(&args.thread)?;
    if let Some(to) = &args.html {
        let html = Box::pin(conjure_page::shared_html(&store, &thread)).await?;
        return write_thread_file(global, &thread, to, html.as_bytes());
    }
    let text = json_lines(&store.read(&thread).await?);
    let text = text.map_err(CliError::host_from)?;
    let Some(to) = &args.to else {
        json_text(&String::from_utf8_lossy(&text));
        return Ok(Exit::Success);
    };
    write_thread_file(global, &thread, to, &text)
}

/// Writes a thread's file, and says so.
fn write_thread_file(
    global: &Global,
    thread: &ThreadId,
    to: &Path,
    text: &[u8],
) -> Result<Exit, CliError> {
    let mut file = fs::create_new(to).map_err(CliError::of_named_path)?;
    file.write_all(text).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "thread": thread, "file": to }));
    } else {
        print_note(format_args!("Thread {thread} is in `{}`.", to.display()));
    }
    Ok(Exit::Success)
}

async fn record(
    global: &Global,
    thread: &ThreadId,
    to: &Path,
    session: SessionArgs,
) -> Result<Exit, CliError> {
    let host = session
        .plugins
        .named_host(global)?
        .log(global.store().await?)
        .build()
        .await?;
    let spec = session.spec(&host, global).await?;
    let cassette = host.record(spec, thread).await?;
    let text = cassette.to_text();
    let text = text.map_err(CliError::host_from)?;
    for note in &cassette.notes {
        print_note(clean(note));
    }
    write_thread_file(global, thread, to, text.as_bytes())
}

/// Whether a file is a cassette, be it of another version.
fn is_cassette(path: &Path) -> bool {
    let read = fs::read(path).map(|bytes| Cassette::read(&bytes));
    matches!(read, Ok(Ok(_) | Err(CassetteError::Version { .. })))
}

pub(crate) async fn import(global: &Global, args: &ImportThreadArgs) -> Result<Exit, CliError> {
    let store = global.store().await?;
    let thread = match &args.thread {
        Some(text) => id(text)?,
        None => ThreadId::fresh(),
    };
    match store.import_complete_thread(&args.file, &thread).await {
        Err(StoreError::Damaged { .. }) if is_cassette(&args.file) => {
            let what = format!(
                "`{}` is a cassette, and no thread can be made of it",
                args.file.display()
            );
            return Err(CliError::usage(what).hint(
                "`conjure replay FILE` runs it again; `conjure thread export ID --to FILE` writes \
                 what can be imported",
            ));
        }
        // Nothing of it is a thread, so that no line before it is worth keeping.
        Err(StoreError::Damaged {
            line: 1, reason, ..
        }) => {
            let what = format!("`{}` is no thread: {reason}", args.file.display());
            return Err(CliError::usage(what)
                .hint("name a file that `conjure thread export ID --to FILE` wrote"));
        }
        imported => imported.map_err(|error| CliError::of_named_file(&args.file, error))?,
    }
    if global.json {
        output::json(&json!({ "thread": thread }));
    } else {
        line(&thread);
    }
    Ok(Exit::Success)
}
