//! `conjure replay`: a recorded thread, run again offline.

use std::io::Read as _;
use std::path::PathBuf;

use conjure_core::numerals::count;
use conjure_core::replay::{
    Cassette, Divergence, Recipient, ReplayReport, ValueDifference, replay,
};
use conjure_core::wire::{Endpoint, Wire};
use serde_json::Value;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, line};
use super::wire::{input, unreadable};

/// Runs a recorded thread again through the turn machine, offline: replies, results and decisions
/// are those of the recording, no tool runs and nothing is sent. Names the first thing that is
/// otherwise, and ends with 1 when there is one.
///
/// With another provider or wire every request is encoded for that in place of whom it went to,
/// and held against its rules.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure thread export 0193… --cassette talk.json
  conjure replay talk.json
  conjure replay talk.json --provider openai --model gpt-5
  conjure replay talk.json --wire gemini --json")]
pub(crate) struct ReplayArgs {
    /// The cassette that `conjure thread export ID --cassette FILE` wrote; `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Encode the requests for this provider
    #[arg(long, value_name = "NAME", requires = "model")]
    provider: Option<String>,
    /// The model of that provider
    #[arg(long, value_name = "NAME", requires = "provider")]
    model: Option<String>,
    /// Encode the requests for this wire: `anthropic`, `openai-responses`, `openai-chat`, `gemini`
    /// [default: that of the provider]
    #[arg(long, value_name = "WIRE")]
    wire: Option<Wire>,
}

pub(crate) fn run(global: &Global, args: &ReplayArgs) -> Result<Exit, CliError> {
    let mut bytes = Vec::new();
    input(Some(&args.file))?
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    let cassette = Cassette::read(&bytes).map_err(|error| {
        CliError::usage_from(error).context(format_args!("`{}`", args.file.display()))
    })?;
    let to = recipient(args, &cassette);
    let report = replay(&cassette, to.as_ref());
    if global.json {
        output::json(&report);
    } else {
        print(&report);
    }
    Ok(if report.is_clean() {
        Exit::Success
    } else {
        Exit::No
    })
}

/// Recipient that the requests are encoded for, where it is not the one that they went to.
fn recipient(args: &ReplayArgs, cassette: &Cassette) -> Option<Recipient> {
    let provider = match (&args.provider, args.wire) {
        (Some(provider), _) => provider.as_str(),
        (None, Some(Wire::Anthropic)) => "anthropic",
        (None, Some(Wire::OpenaiResponses | Wire::OpenaiChat)) => "openai",
        (None, Some(Wire::Gemini)) => "gemini",
        (None, None) => return None,
    };
    let newest = cassette.setup.recipients.last();
    let recorded = newest.map_or("MODEL", |newest| newest.model.as_str());
    let model = args.model.as_deref().unwrap_or(recorded);
    let mut to = Recipient::of_name(provider, model);
    to.wire = args.wire.unwrap_or(to.wire);
    to.endpoint = Endpoint::new(provider).with_model(model);
    if to.wire == Wire::OpenaiChat {
        to.images = to.endpoint.dialect.images;
        to.files = to.endpoint.dialect.files;
    }
    Some(to)
}

fn print(report: &ReplayReport) {
    for note in &report.notes {
        line(clean(note));
    }
    for unreplayed in &report.unreplayed {
        line(clean(&format!(
            "Step {} (turn {}) to the end of its turn is not replayed: {}.",
            unreplayed.step, unreplayed.turn, unreplayed.reason
        )));
    }
    if let Some(elsewhere) = &report.elsewhere {
        line(clean(&format!(
            "{} encoded for {}/{} over {}.",
            count(elsewhere.requests as u64, "request"),
            elsewhere.provider,
            elsewhere.model,
            elsewhere.wire
        )));
        for tool in &elsewhere.left_out {
            line(clean(&format!("  not offered there: {tool}")));
        }
        for problem in &elsewhere.problems {
            line(clean(&format!(
                "  step {}: {}",
                problem.step, problem.problem
            )));
        }
    }
    match &report.divergence {
        Some(divergence) => print_divergence(divergence),
        None => line(format_args!(
            "{} and {} replayed: nothing is otherwise.",
            count(report.steps as u64, "step"),
            count(report.requests as u64, "request")
        )),
    }
}

fn print_divergence(divergence: &Divergence) {
    line(clean(&format!(
        "Step {} (turn {}): {}.",
        divergence.step, divergence.turn, divergence.text
    )));
    for change in &divergence.changes {
        line(clean(&format!("  {}", describe_change(change))));
    }
    if divergence.more > 0 {
        line(format_args!(
            "  and {} more",
            count(divergence.more as u64, "place")
        ));
    }
    for why in &divergence.why {
        line(clean(&format!("It may be because of: {why}.")));
    }
}

fn describe_change(change: &ValueDifference) -> String {
    let shown = |value: &Option<Value>| {
        value
            .as_ref()
            .map_or_else(|| "nothing".to_owned(), Value::to_string)
    };
    let path = if change.path.is_empty() {
        "all of it"
    } else {
        &change.path
    };
    format!(
        "{path}: recorded {}, now {}",
        shown(&change.recorded),
        shown(&change.now)
    )
}
