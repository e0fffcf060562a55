//! `conjure thread list`: the threads that there are.

use conjure_core::chat::Usage;
use conjure_core::numerals::thousands;
use conjure_store::{Cursor, Thread, ThreadId};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, Table, clean, print_note};
use super::thread::id;

/// Lists threads, the newest first.
#[derive(clap::Args)]
pub(crate) struct ThreadListArgs {
    /// The most threads that are listed
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// Only threads that were begun before this one
    #[arg(long, value_name = "ID")]
    before: Option<String>,
}

pub(crate) async fn run(global: &Global, args: &ThreadListArgs) -> Result<Exit, CliError> {
    let store = global.store().await?;
    let after: Option<Cursor> = match &args.before {
        Some(text) => Some(store.thread(&id(text)?).await?.cursor()),
        None => None,
    };
    let threads = store.thread_page(after.as_ref(), args.limit).await?;
    if global.json {
        let threads: Vec<Value> = threads.iter().map(thread_json).collect();
        output::json(&json!({ "threads": threads }));
        return Ok(Exit::Success);
    }
    if threads.is_empty() {
        print_note("There is no thread yet; `conjure chat` begins one.");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(["ID", "NAME", "TURNS", "TOKENS", "CHANGED", "FORK OF"]);
    for thread in &threads {
        table.row([
            thread.id.to_string(),
            clean(&thread.label).into_owned(),
            thread.last_turn.to_string(),
            thousands(tokens(&thread.totals.usage)),
            time(thread.updated_at_ms),
            thread
                .parent
                .as_ref()
                .map_or_else(String::new, ThreadId::to_string),
        ]);
    }
    table.print();
    if threads.len() as u64 == args.limit
        && let Some(last) = threads.last()
    {
        print_note(format_args!("There may be more: `--before {}`", last.id));
    }
    Ok(Exit::Success)
}

/// A thread as programs read it.
pub(crate) fn thread_json(thread: &Thread) -> Value {
    let cost: Option<Value> = thread
        .cost
        .as_deref()
        .and_then(|cost| serde_json::from_str(cost).ok());
    json!({
        "id": thread.id,
        "label": thread.label,
        "parent_thread_id": thread.parent,
        "fork_from_seq": thread.parent.as_ref().map(|_| thread.fork_from_seq),
        "last_seq": thread.last_seq,
        "turns": thread.last_turn,
        "replies": thread.totals.replies,
        "usage": thread.totals.usage,
        "latency_ms": thread.totals.latency_ms,
        "cost": cost,
        "is_open": thread.is_open,
        "created_at_ms": thread.created_at_ms,
        "updated_at_ms": thread.updated_at_ms,
    })
}

fn tokens(usage: &Usage) -> u64 {
    usage.total()
}

pub(crate) fn time(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds)
        .map(|time| time.strftime("%Y-%m-%d %H:%M").to_string())
        .unwrap_or_default()
}
