//! `conjure session turns`: what became of a session's turns.

use conjure_core::numerals::thousands;
use conjure_store::Run;
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, Table, duration, print_note};
use super::sessions::SavedSessions;

pub(crate) async fn run(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
    limit: u64,
) -> Result<Exit, CliError> {
    let runs = sessions.manager().runs(session, limit).await?;
    if global.json {
        let runs: Vec<Value> = runs.iter().map(turn_json).collect();
        output::json(&json!({ "turns": runs }));
        return Ok(Exit::Success);
    }
    if runs.is_empty() {
        print_note("Nothing was said in it yet.");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(["TURN", "STATE", "TOOK", "CALLS", "TOKENS", "THREAD", "WHY"]);
    for run in &runs {
        table.row([
            run.id.clone(),
            run.state.as_str().to_owned(),
            duration_ms(run).map_or_else(String::new, duration),
            run.spent.calls.to_string(),
            thousands(run.spent.usage.total()),
            run.thread.to_string(),
            run.error.clone().unwrap_or_default(),
        ]);
    }
    table.print();
    Ok(Exit::Success)
}

/// A turn as programs read it.
fn turn_json(run: &Run) -> Value {
    json!({
        "id": run.id,
        "session": run.session_id,
        "thread": run.thread,
        "state": run.state.as_str(),
        "queued_at_ms": run.queued_at_ms,
        "started_at_ms": run.started_at_ms,
        "ended_at_ms": run.ended_at_ms,
        "usage": run.spent.usage,
        "calls": run.spent.calls,
        "usd": run.spent.usd,
        "error": run.error,
    })
}

fn duration_ms(run: &Run) -> Option<u64> {
    u64::try_from(run.ended_at_ms? - run.started_at_ms?).ok()
}
