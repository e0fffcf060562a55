//! `conjure thread check`: what another model would get of a thread, told before anything is sent.

use std::collections::BTreeMap;

use conjure_core::switch::{CacheFate, Fate, Modality, PartKind, SwitchReport};
use conjure_providers::ModelBook;
use serde_json::json;

use super::args::{Global, SessionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, line};
use super::spent::{count, thousands};
use super::thread::id;

/// Says what a switch would change.
#[derive(clap::Args)]
pub(crate) struct ThreadCheckArgs {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// The provider and its model
    #[arg(long, value_name = "PROVIDER/MODEL")]
    to: String,
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) async fn run(global: &Global, args: ThreadCheckArgs) -> Result<Exit, CliError> {
    let Some((provider, model)) = args.to.split_once('/') else {
        return Err(
            CliError::usage(format!("`--to {}` names no model", args.to))
                .hint("write `--to PROVIDER/MODEL`, such as `--to openai/gpt-5`"),
        );
    };
    let host = args
        .session
        .plugins
        .host(global)
        .log(global.store().await?)
        .build()
        .await?;
    let mut spec = args.session.spec(&host, global).await?;
    spec.provider = Some(provider.to_owned());
    spec.model = Some(model.to_owned());
    let report = host.check(spec, &id(&args.thread)?).await?;
    if global.json {
        output::json(&json!({ "provider": provider, "model": model, "report": report }));
        return Ok(Exit::Fine);
    }
    let book = ModelBook::read(&global.data_dir()).map_err(CliError::usage_from)?;
    let window = book.facts(provider, model).and_then(|facts| facts.context);
    line(format_args!("What {} would get:", clean(&args.to)));
    for said in words(&report, window) {
        line(format_args!("  {}", clean(&said)));
    }
    Ok(Exit::Fine)
}

/// A report in sentences.
pub(crate) fn words(report: &SwitchReport, window: Option<u64>) -> Vec<String> {
    let mut said = Vec::new();
    if report.is_clean() {
        said.push("every part of the conversation as it is".to_owned());
    }
    for (fate, what) in [
        (Fate::Dropped, "left out"),
        (Fate::Recast, "told in another form"),
        (Fate::Unsigned, "without what their maker signed"),
    ] {
        let parts = parts(report, fate);
        if !parts.is_empty() {
            said.push(format!("{what}: {parts}"));
        }
    }
    if let Some(first) = report.ids.first() {
        said.push(format!(
            "{} on the wire under another id, such as {} as {}",
            count(report.ids.len() as u64, "call"),
            first.from,
            first.to
        ));
    }
    for (ids, what) in [
        (
            &report.results_added,
            "with a result that says that none is known",
        ),
        (
            &report.results_dropped,
            "not there, so their results are left out",
        ),
    ] {
        if !ids.is_empty() {
            said.push(format!("{what}: {}", ids.join(", ")));
        }
    }
    for modality in &report.unsupported {
        said.push(match modality {
            Modality::Images => "it cannot look at images".to_owned(),
            Modality::Files => "it cannot read attached files".to_owned(),
        });
    }
    for left_out in &report.tools_quarantined {
        said.push(format!(
            "tool `{}` not offered: {}",
            left_out.tool, left_out.reason
        ));
    }
    said.extend(report.notes.iter().cloned());
    said.push(match window {
        Some(window) if report.tokens > window => format!(
            "about {} tokens of input, more than the {} that it takes: it would be summarised first",
            thousands(report.tokens),
            thousands(window)
        ),
        Some(window) => format!(
            "about {} tokens of input; it takes {}",
            thousands(report.tokens),
            thousands(window)
        ),
        None => format!("about {} tokens of input", thousands(report.tokens)),
    });
    said.push(match &report.cache {
        CacheFate::None => "nothing is in a prompt cache yet".to_owned(),
        CacheFate::Kept => "what the prompt cache holds can still be read".to_owned(),
        CacheFate::Lost { tokens, last } => format!(
            "the prompt cache is lost: the {} tokens that {last} read are read again at the full \
             price",
            thousands(*tokens)
        ),
    });
    said
}

/// `2 thoughts (messages 2 and 5), 1 image (message 4)`.
fn parts(report: &SwitchReport, fate: Fate) -> String {
    let mut kinds: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
    for part in report.parts.iter().filter(|part| part.fate == fate) {
        kinds
            .entry(name(part.kind))
            .or_default()
            .push(part.message + 1);
    }
    let of_kind = |(kind, messages): (&&str, &Vec<usize>)| {
        let mut places = messages.clone();
        places.dedup();
        let shown: Vec<String> = places.iter().take(8).map(usize::to_string).collect();
        let more = if places.len() > shown.len() {
            ", …"
        } else {
            ""
        };
        let word = if places.len() == 1 {
            "message"
        } else {
            "messages"
        };
        format!(
            "{} ({word} {}{more})",
            count(messages.len() as u64, kind),
            shown.join(", ")
        )
    };
    kinds.iter().map(of_kind).collect::<Vec<_>>().join(", ")
}

fn name(kind: PartKind) -> &'static str {
    match kind {
        PartKind::Text => "text",
        PartKind::Reasoning => "thought",
        PartKind::FunctionCall => "call",
        PartKind::FunctionCallOutput => "result",
        PartKind::Image => "image",
        PartKind::File => "file",
        PartKind::ServerItem => "item of a provider's own tools",
    }
}
