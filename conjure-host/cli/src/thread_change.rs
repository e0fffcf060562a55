//! `conjure thread fork | rename | clear`.

use conjure_core::numerals::count;
use conjure_store::{Thread, ThreadId};
use serde_json::json;

use super::args::Global;
use super::entry_at;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, line, print_note};
use super::person::confirm;
use super::sessions::SavedSessions;
use super::thread::id;
use super::thread_list::thread_json;

/// The most characters of a name.
const MAX_NAME_CHARS: usize = 200;

/// Forks a thread.
#[derive(clap::Args)]
pub(crate) struct ForkThreadArgs {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// The last entry that the fork shows: its number, as `conjure thread show` has it, or a piece
    /// of text that only it has [default: the newest]
    #[arg(long, value_name = "ENTRY")]
    at: Option<String>,
    /// The fork's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// Names a thread.
#[derive(clap::Args)]
pub(crate) struct Rename {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// The new name
    #[arg(value_name = "NAME")]
    name: String,
}

/// Clears a thread.
#[derive(clap::Args)]
pub(crate) struct Clear {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn fork(global: &Global, args: &ForkThreadArgs) -> Result<Exit, CliError> {
    let store = global.store().await?;
    let thread = id(&args.thread)?;
    let at = match entry_at::resolve(&store, &thread, args.at.as_deref()).await? {
        Some(at) => at,
        None => store.thread(&thread).await?.last_seq,
    };
    let name = args.name.as_deref().map(parse_name).transpose()?;
    let fork = ThreadId::fresh();
    store.fork(&thread, at, &fork).await?;
    if let Some(name) = name {
        store.rename_thread(&fork, name).await?;
    }
    if global.json {
        output::json(&thread_json(&store.thread(&fork).await?));
    } else {
        line(&fork);
        print_note(format_args!(
            "The fork goes on behind entry {at}: `conjure chat --thread {fork}`"
        ));
    }
    Ok(Exit::Success)
}

pub(crate) async fn rename(global: &Global, args: &Rename) -> Result<Exit, CliError> {
    let store = global.store().await?;
    let thread = id(&args.thread)?;
    store
        .rename_thread(&thread, parse_name(&args.name)?)
        .await?;
    if global.json {
        output::json(&thread_json(&store.thread(&thread).await?));
    }
    Ok(Exit::Success)
}

pub(crate) async fn clear(global: &Global, args: &Clear) -> Result<Exit, CliError> {
    let sessions = SavedSessions::open(global).await?;
    let cleared = clear_in(&sessions, global, args).await;
    sessions.close().await;
    cleared
}

async fn clear_in(
    sessions: &SavedSessions,
    global: &Global,
    args: &Clear,
) -> Result<Exit, CliError> {
    let store = sessions.manager().store();
    let thread = store.thread(&id(&args.thread)?).await?;
    let keeping = store.forks_keeping(&thread.id).await?;
    let what = deletion_notice(&thread, &keeping);
    if !confirm(args.yes, what, "Delete it?").await? {
        return Ok(Exit::Interrupted);
    }
    sessions.clear_thread(&thread.id).await?;
    if global.json {
        let keeping: Vec<&ThreadId> = keeping.iter().map(|fork| &fork.id).collect();
        output::json(&json!({ "cleared": thread.id, "kept_by_forks": keeping }));
    } else {
        print_note(format_args!("Thread {} is empty now.", thread.id));
    }
    Ok(Exit::Success)
}

/// What would be deleted, with the forks that go on showing something of it.
fn deletion_notice(thread: &Thread, keeping: &[Thread]) -> String {
    let mut what = format!(
        "This deletes what thread {} `{}` holds, for good: {}.",
        thread.id,
        clean(&thread.label),
        count(thread.last_turn, "turn")
    );
    for fork in keeping {
        let (id, label) = (&fork.id, clean(&fork.label));
        what.push_str(&format!(
            "\nIts fork {id} `{label}` keeps what it shows of it."
        ));
    }
    what
}

/// A name that can be shown in a line.
pub(crate) fn parse_name(name: &str) -> Result<&str, CliError> {
    let name = name.trim();
    if name.is_empty()
        || name.chars().count() > MAX_NAME_CHARS
        || name.chars().any(char::is_control)
    {
        return Err(CliError::usage(format!(
            "a name is one line of 1 to {MAX_NAME_CHARS} characters"
        )));
    }
    Ok(name)
}
