//! `conjure thread search`: what was said, in any thread.

use conjure_core::chat::Role;
use conjure_store::SearchHit;
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, RESET, clean_line, print_note};
use super::thread_list::time;

/// What is looked for.
#[derive(clap::Args)]
pub(crate) struct ThreadSearchArgs {
    /// Words, in any order and in upper or lower case; the last one may go on
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// The most hits that are shown
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
}

pub(crate) async fn run(global: &Global, args: &ThreadSearchArgs) -> Result<Exit, CliError> {
    let words = args.words.join(" ");
    let found = global.store().await?.search(&words, args.limit).await?;
    if global.json {
        let found: Vec<Value> = found.iter().map(hit_json).collect();
        output::json(&json!({ "found": found }));
        return Ok(Exit::Success);
    }
    if found.is_empty() {
        print_note("Nothing that was said has all these words.");
        return Ok(Exit::Success);
    }
    let mut thread = None;
    for hit in &found {
        if thread != Some(&hit.thread) {
            thread = Some(&hit.thread);
            output::line(format_args!(
                "{BOLD}{}{RESET} {}",
                hit.thread,
                clean_line(&hit.label)
            ));
        }
        output::line(format_args!(
            "  {} {} {}: {}",
            hit.seq,
            time(hit.at_ms),
            speaker(hit),
            excerpt(hit)
        ));
    }
    if found.len() as u64 == args.limit {
        print_note("There may be more: `--limit`. Further words narrow it down.");
    }
    Ok(Exit::Success)
}

fn speaker(found: &SearchHit) -> &'static str {
    match found.role {
        Role::Assistant => "model",
        Role::User | Role::System | Role::Tool => "you",
    }
}

fn excerpt(found: &SearchHit) -> String {
    let pieces = found.excerpt.iter().map(|piece| {
        let text = clean_line(&piece.text);
        if piece.is_hit {
            format!("{BOLD}{text}{RESET}")
        } else {
            text.into_owned()
        }
    });
    pieces.collect()
}

/// A hit as programs read it.
fn hit_json(found: &SearchHit) -> Value {
    let pieces = found.excerpt.iter();
    let pieces = pieces.map(|piece| json!({ "text": piece.text, "is_hit": piece.is_hit }));
    json!({
        "thread": found.thread,
        "label": found.label,
        "session": found.session,
        "seq": found.seq,
        "role": found.role,
        "at_ms": found.at_ms,
        "excerpt": pieces.collect::<Vec<_>>(),
    })
}
