//! `conjure thread fork | rename | clear`.

use conjure_store::{Thread, ThreadId};
use serde_json::json;

use super::args::Global;
use super::entry_at;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, aside, clean, line};
use super::person::agrees;
use super::sessions::SavedSessions;
use super::thread::id;
use super::thread_list::described;

/// The most characters of a name.
const LONGEST: usize = 200;

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
    /// Its name
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
    let name = args.name.as_deref().map(named).transpose()?;
    let fork = ThreadId::fresh();
    store.fork(&thread, at, &fork).await?;
    if let Some(name) = name {
        store.rename_thread(&fork, name).await?;
    }
    if global.json {
        output::json(&described(&store.thread(&fork).await?));
    } else {
        line(&fork);
        aside(format_args!(
            "The fork goes on behind entry {at}: `conjure chat --thread {fork}`"
        ));
    }
    Ok(Exit::Fine)
}

pub(crate) async fn rename(global: &Global, args: &Rename) -> Result<Exit, CliError> {
    let store = global.store().await?;
    let thread = id(&args.thread)?;
    store.rename_thread(&thread, named(&args.name)?).await?;
    if global.json {
        output::json(&described(&store.thread(&thread).await?));
    }
    Ok(Exit::Fine)
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
    if !args.yes && !agreed(&thread, &keeping).await? {
        aside("Nothing was deleted.");
        return Ok(Exit::Interrupted);
    }
    sessions.clear_thread(&thread.id).await?;
    if global.json {
        let keeping: Vec<&ThreadId> = keeping.iter().map(|fork| &fork.id).collect();
        output::json(&json!({ "cleared": thread.id, "kept_by_forks": keeping }));
    } else {
        aside(format_args!("Thread {} is empty now.", thread.id));
    }
    Ok(Exit::Fine)
}

/// Asks, and names the forks that go on showing something of it.
async fn agreed(thread: &Thread, keeping: &[Thread]) -> Result<bool, CliError> {
    aside(format_args!(
        "This deletes what thread {} `{}` holds, for good: {} turns.",
        thread.id,
        clean(&thread.label),
        thread.last_turn
    ));
    for fork in keeping {
        aside(format_args!(
            "Its fork {} `{}` keeps what it shows of it.",
            fork.id,
            clean(&fork.label)
        ));
    }
    agrees("Delete it?").await
}

/// A name that can be shown in a line.
pub(crate) fn named(name: &str) -> Result<&str, CliError> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > LONGEST || name.chars().any(char::is_control) {
        return Err(CliError::usage(format!(
            "a name is one line of 1 to {LONGEST} characters"
        )));
    }
    Ok(name)
}
