//! `conjure thread show`: all that was said and done, and where summaries stand for it.

use std::collections::HashMap;

use conjure_core::chat::{Content, FunctionCallOutput, Message, Role};
use conjure_core::log::{
    CallEnd, Entry, EntryBody, Fold, FoldState, Spending, StateHandover, TableChange, TurnOutcome,
    VersionStep, folds,
};
use conjure_core::turn::notice_text;
use conjure_runtime::Host;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, CYAN, DIM, RED, RESET, YELLOW, clean, duration, end_mark, line};
use super::server_item::{self, ItemDetail};
use super::thread::id;

/// Shows a thread, each entry behind its number. With `--json`, its entries as JSON lines.
#[derive(clap::Args)]
pub(crate) struct ThreadShowArgs {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// Show only what the model reads as a summary
    #[arg(long)]
    folded: bool,
    /// Show all of each call's arguments and output, which are cut otherwise
    #[arg(long)]
    full: bool,
}

pub(crate) async fn run(
    global: &Global,
    host: &Host,
    args: &ThreadShowArgs,
) -> Result<Exit, CliError> {
    let entries = host.entries(&id(&args.thread)?).await?;
    let folds = folds(&entries);
    let standing = folds.iter().find(|fold| fold.state == FoldState::Standing);
    let hidden = standing.map_or(0, |fold| {
        entries.partition_point(|entry| entry.seq < fold.visible_from)
    });
    let shown = if args.folded {
        entries.get(..hidden).unwrap_or_default()
    } else {
        &entries
    };
    if global.json {
        shown.iter().for_each(output::json_line);
        return Ok(Exit::Success);
    }
    if args.folded && shown.is_empty() {
        line("Nothing is folded: the model reads all of it as it is.");
        return Ok(Exit::Success);
    }
    let names = names(&entries);
    let how = if args.full {
        ItemDetail::Full
    } else {
        ItemDetail::Cut
    };
    let mut is_cut = false;
    for (at, entry) in shown.iter().enumerate() {
        if let Some(fold) = standing.filter(|_| at == hidden) {
            print_fold(fold);
        }
        let lines = entry_lines(entry, &folds, &names, how);
        is_cut |= lines.iter().any(|line| line.contains('…'));
        print_numbered(entry.seq, &lines);
    }
    if let Some(fold) = standing.filter(|_| hidden == shown.len()) {
        print_fold(fold);
    }
    if is_cut && how == ItemDetail::Cut {
        output::print_note("What ends in … is cut; `--full` shows all of it.");
    }
    Ok(Exit::Success)
}

/// Says that what is above is read as a summary.
fn print_fold(fold: &Fold<'_>) {
    line(format_args!(
        "{YELLOW}──{RESET} The model reads what is above as a summary (compaction {}):",
        fold.seq
    ));
    for text in clean(fold.summary).lines() {
        line(format_args!("   {DIM}{text}{RESET}"));
    }
    line(format_args!(
        "{YELLOW}──{RESET} The model reads what is below as it is:"
    ));
}

/// The tools that the calls of a thread asked for, by the calls' ids.
fn names(entries: &[Entry]) -> HashMap<&str, &str> {
    let messages = entries.iter().filter_map(|entry| match &entry.body {
        EntryBody::Message { message } => Some(message),
        _ => None,
    });
    messages
        .flat_map(Message::calls)
        .map(|call| (call.call_id.as_str(), call.name.as_str()))
        .collect()
}

/// Prints an entry's lines behind its number.
fn print_numbered(seq: u64, lines: &[String]) {
    let mut number = format!("{seq:>4}");
    for text in lines.iter().flat_map(|line| line.split('\n')) {
        line(format!("{DIM}{number}{RESET}  {text}").trim_end());
        number = " ".repeat(number.len());
    }
}

/// The lines that show an entry.
fn entry_lines(
    entry: &Entry,
    folds: &[Fold<'_>],
    names: &HashMap<&str, &str>,
    how: ItemDetail,
) -> Vec<String> {
    let line = match &entry.body {
        EntryBody::TurnStarted { .. } => format!("{BOLD}turn {}{RESET}", entry.turn),
        EntryBody::Message { message } => return message_lines(message, how),
        EntryBody::CallEnded {
            output,
            end,
            duration_ms,
            meta,
            ..
        } => {
            let name = names.get(output.call_id.as_str());
            let mut lines = call_end_lines(name.unwrap_or(&"?"), output, (*end, *duration_ms), how);
            lines.extend(ran_at_provider(meta.as_ref(), how));
            return lines;
        }
        EntryBody::File {
            artifact, source, ..
        } => format!(
            "file {} {DIM}({}, from {}){RESET}",
            clean(&artifact.name),
            clean(&artifact.id),
            clean(source)
        ),
        EntryBody::SettingsChanged { summary, .. } => {
            format!("{DIM}settings: {}{RESET}", clean(summary))
        }
        EntryBody::Compacted { upto, .. } => {
            let state = folds.iter().find(|fold| fold.seq == entry.seq);
            let what = match state.map(|fold| fold.state) {
                Some(FoldState::Inside { outer: by }) => format!("now part of compaction {by}"),
                Some(FoldState::Unfolded) => "taken back".to_owned(),
                _ => "it stands".to_owned(),
            };
            format!(
                "{DIM}compaction {}: a summary of the entries before {upto}; {what}{RESET}",
                entry.seq
            )
        }
        EntryBody::Unfolded { fold } => {
            format!("{DIM}compaction {fold} was taken back{RESET}")
        }
        EntryBody::Notice { text, reason } => {
            let text = notice_text(text, reason.as_ref());
            format!("{YELLOW}note:{RESET} {}", clean(&text))
        }
        EntryBody::TurnEnded { outcome, .. } => match outcome {
            TurnOutcome::Completed => return Vec::new(),
            TurnOutcome::Failed { error, .. } => {
                format!("{RED}failed:{RESET} {}", clean(error))
            }
            other => format!("{DIM}the turn ended: {}{RESET}", other.as_str()),
        },
        EntryBody::Spent { on, meta } => {
            let what = match on {
                Spending::Sample { plugin } => format!("{} asked something", clean(plugin)),
                Spending::Delegated { backend } => {
                    format!("{} gave work to a model", clean(backend))
                }
                Spending::Summary => "a summary that came to nothing was asked".to_owned(),
                Spending::Attempt => "a reply that broke off was asked".to_owned(),
                Spending::Reply => "a reply that says nothing was asked".to_owned(),
            };
            format!(
                "{DIM}{what} of {}/{}{RESET}",
                clean(&meta.provider),
                clean(&meta.model)
            )
        }
        EntryBody::TableChanged(change) => {
            format!(
                "{DIM}tools: {}{RESET}",
                clean(&describe_table_change(change))
            )
        }
        EntryBody::CallStarted { .. } | EntryBody::BackendState { .. } => return Vec::new(),
    };
    vec![line]
}

/// What a call ran at a provider, where its backend told: commands, and what came of them.
fn ran_at_provider(meta: Option<&serde_json::Value>, how: ItemDetail) -> Vec<String> {
    let member = |name| meta.and_then(|meta| meta.get(name));
    let (Some(provider), Some(items)) = (
        member("provider").and_then(serde_json::Value::as_str),
        member("server_items").and_then(serde_json::Value::as_array),
    ) else {
        return Vec::new();
    };
    let lines = items.iter();
    let lines = lines.flat_map(|item| server_item::lines(provider, item, how));
    lines.map(|line| format!("  {line}")).collect()
}

/// What is another one: the tools by name, and the plugins behind them with their versions.
fn describe_table_change(change: &TableChange) -> String {
    let names = [
        ("new", &change.added),
        ("gone", &change.removed),
        ("changed", &change.changed),
    ];
    let names = names.into_iter().filter(|(_, names)| !names.is_empty());
    let mut parts: Vec<String> = names
        .map(|(word, names)| format!("{word}: {}", names.join(", ")))
        .collect();
    parts.extend(change.plugins.iter().map(|change| {
        let (plugin, from, to) = (&change.plugin, &change.from, &change.to);
        let step = match change.step() {
            VersionStep::Upgrade => format!("{plugin} {from} → {to}"),
            VersionStep::Downgrade => format!("{plugin} {from} → {to}, a downgrade"),
            VersionStep::Rebuild => format!("{plugin} {to}, loaded again"),
        };
        let state = match change.state {
            StateHandover::Lost => ", state lost",
            StateHandover::Carried => ", state moves at its next call",
            StateHandover::None => "",
        };
        format!("{step}{state}")
    }));
    parts.join("; ")
}

fn message_lines(message: &Message, how: ItemDetail) -> Vec<String> {
    let by = match (&message.meta, message.role) {
        (Some(meta), _) => format!("{}/{}", meta.provider, meta.model),
        (None, Role::User) => "you".to_owned(),
        (None, Role::Assistant) => "model".to_owned(),
        (None, _) => "host".to_owned(),
    };
    let mut name = Some(format!("{CYAN}{}:{RESET} ", clean(&by)));
    let mut lines = Vec::new();
    for part in &message.content {
        let text = match &part.content {
            Content::Text { text } => clean(text).into_owned(),
            Content::Reasoning { text } if text.trim().is_empty() => continue,
            Content::Reasoning { text } => format!("{DIM}{}{RESET}", clean(text.trim())),
            Content::FunctionCall(call) => {
                let arguments = how.one_line(&call.arguments.to_string());
                format!(
                    "{CYAN}→{RESET} {BOLD}{}{RESET} {arguments}",
                    clean(&call.name)
                )
            }
            Content::Image { artifact } | Content::File { artifact } => {
                format!("[{}]", clean(&artifact.name))
            }
            Content::ServerItem { provider, item } => {
                server_item::lines(provider, item, how).join("\n")
            }
            Content::FunctionCallOutput(output) => how.one_line(&output.joined_text()),
        };
        lines.push(format!("{}{text}", name.take().unwrap_or_default()));
    }
    lines
}

fn call_end_lines(
    name: &str,
    output: &FunctionCallOutput,
    (end, duration_ms): (CallEnd, u64),
    shown: ItemDetail,
) -> Vec<String> {
    let mark = end_mark(output.is_error);
    let how = match end {
        CallEnd::Done | CallEnd::Failed => duration(duration_ms),
        CallEnd::Refused => "not run".to_owned(),
        CallEnd::Cancelled => "cancelled".to_owned(),
        CallEnd::TimedOut => format!("timed out after {}", duration(duration_ms)),
        CallEnd::Indeterminate => "nobody knows what it did".to_owned(),
    };
    let head = format!("{mark} {DIM}{} ({how}){RESET}", clean(name));
    let most = if output.is_error { 12 } else { 3 };
    let text = shown.lines(&output.joined_text(), most);
    let text = text.iter().map(|text| format!("  {DIM}{text}{RESET}"));
    std::iter::once(head).chain(text).collect()
}

#[cfg(test)]
mod tests {
    use conjure_core::log::{NoticeReason, PluginChange};

    use super::*;

    #[test]
    fn a_notice_is_shown_in_the_words_of_its_reason_and_else_as_it_was_written() {
        let dropped = NoticeReason::Dropped { messages: 2 };
        for (reason, words) in [
            (Some(dropped), "2 waiting message(s) dropped."),
            (Some(NoticeReason::Other), "as it was written"),
            (None, "as it was written"),
        ] {
            let text = "as it was written".to_owned();
            let entry = Entry {
                seq: 1,
                turn: 1,
                at_ms: 0,
                body: EntryBody::Notice { text, reason },
            };
            let lines = entry_lines(&entry, &[], &HashMap::new(), ItemDetail::Cut);
            assert_eq!(lines, [format!("{YELLOW}note:{RESET} {words}")]);
        }
    }

    #[test]
    fn a_plugin_that_is_loaded_again_has_one_version() {
        let change = |from: &str, to: &str| {
            let change = PluginChange {
                plugin: "notes".to_owned(),
                from: from.to_owned(),
                to: to.to_owned(),
                state: StateHandover::Lost,
            };
            describe_table_change(&TableChange {
                plugins: vec![change],
                ..TableChange::default()
            })
        };
        assert_eq!(change("0.2.0", "0.3.0"), "notes 0.2.0 → 0.3.0, state lost");
        let again = change("0.3.0", "0.3.0");
        assert_eq!(again, "notes 0.3.0, loaded again, state lost");
    }
}
