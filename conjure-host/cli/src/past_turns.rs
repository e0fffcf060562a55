//! What was said before in a thread, as far as it is shown when a chat goes on with it.

use std::collections::BTreeMap;

use conjure_core::chat::{Content, Role};
use conjure_core::log::{CallEnd, Entry, EntryBody};
use conjure_core::numerals::count;
use conjure_store::{Store, StoreError, ThreadId, Window};
use conjure_terminal::{PastCallEnd, PastItem};

use super::chat_shell::strip_command_output;
use super::output::{BOLD, DIM, RESET, YELLOW, clean, end_mark, print_note};

/// How many turns are shown.
const TURNS: u64 = 2;
/// Among how many of the newest turns one is looked for that has just ended.
const RECENT_TURNS: u64 = 4;
/// Entries that are read at once.
const PAGE: u64 = 50;
/// The most characters of a message that are shown.
const MAX_MESSAGE_CHARS: usize = 4000;

/// The last of what was said in a thread, with how much there is before it; of what was said before
/// the turn that `runs`, where one does, as that is shown by its events.
pub(crate) async fn recent_items(
    store: &Store,
    thread: &ThreadId,
    runs: Option<&str>,
) -> Result<Vec<PastItem>, StoreError> {
    let Some(turn) = runs else {
        return Ok(visible_items(&newest_entries(store, thread, TURNS).await?));
    };
    let mut entries = newest_entries(store, thread, TURNS + 1).await?;
    truncate_before_turn(&mut entries, turn);
    Ok(visible_items(&entries))
}

/// A turn, as it is shown.
pub(crate) struct PastTurn {
    /// Number of the turn in its thread.
    pub(crate) number: u64,
    /// Items that were said in it, the oldest first.
    pub(crate) items: Vec<PastItem>,
}

/// A turn of a thread by its id, where it is one of the newest.
pub(crate) async fn turn(
    store: &Store,
    thread: &ThreadId,
    turn: &str,
) -> Result<Option<PastTurn>, StoreError> {
    let mut entries = newest_entries(store, thread, RECENT_TURNS).await?;
    let begins = |entry: &&Entry| is_turn_start(entry, turn);
    let Some(number) = entries.iter().find(begins).map(|entry| entry.turn) else {
        return Ok(None);
    };
    entries.retain(|entry| entry.turn == number);
    let said = past_items(&entries);
    Ok(Some(PastTurn {
        number,
        items: said,
    }))
}

/// The number of the newest turn of a thread that is over; 0 where none of the newest is.
pub(crate) async fn newest_ended_turn(store: &Store, thread: &ThreadId) -> Result<u64, StoreError> {
    let entries = newest_entries(store, thread, TURNS).await?;
    let is_end = |entry: &&Entry| matches!(entry.body, EntryBody::TurnEnded { .. });
    Ok(entries.iter().rfind(is_end).map_or(0, |entry| entry.turn))
}

/// Whether a turn begins with an entry.
fn is_turn_start(entry: &Entry, turn: &str) -> bool {
    matches!(&entry.body, EntryBody::TurnStarted { turn_id } if turn_id == turn)
}

/// Tells the last of what was said in a thread, where nothing is redrawn; whether there was something.
pub(crate) async fn print_recent(store: &Store, thread: &ThreadId) -> Result<bool, StoreError> {
    let said = recent_items(store, thread, None).await?;
    let has_said = !said.is_empty();
    for item in said {
        match item {
            PastItem::Person(text) => print_note(format_args!("{BOLD}› {}{RESET}", clean(&text))),
            PastItem::File(name) => print_note(format_args!("  {DIM}+ {}{RESET}", clean(&name))),
            PastItem::Model(text) => print_note(clean(&text)),
            PastItem::Call { name, summary, end } => {
                let mark = match end {
                    PastCallEnd::Worked => end_mark(false),
                    PastCallEnd::Failed => end_mark(true),
                    PastCallEnd::Unknown => format!("{YELLOW}?{RESET}"),
                };
                let (name, summary) = (clean(&name), clean(&summary));
                let words = end.description();
                print_note(format_args!(
                    "{mark} {BOLD}{name}{RESET} {summary}{DIM}{words}{RESET}"
                ));
            }
            PastItem::Note(text) => print_note(format_args!("{DIM}{}{RESET}", clean(&text))),
        }
    }
    Ok(has_said)
}

/// Leaves out a turn and all behind it; of what is before it the newest turns stay.
fn truncate_before_turn(entries: &mut Vec<Entry>, turn: &str) {
    if let Some(at) = entries.iter().position(|entry| is_turn_start(entry, turn)) {
        entries.truncate(at);
    }
    let newest = entries.last().map_or(0, |last| last.turn);
    let from = newest.saturating_sub(TURNS - 1);
    entries.retain(|entry| entry.turn >= from);
}

/// Like [`recent_items`], before the thread is opened; nothing where opening it changes what was said last: it
/// ends the turn of a host that was killed.
pub(crate) async fn recent_items_if_settled(
    store: &Store,
    thread: &ThreadId,
) -> Result<Option<Vec<PastItem>>, StoreError> {
    let entries = newest_entries(store, thread, TURNS).await?;
    Ok(is_settled(&entries).then(|| visible_items(&entries)))
}

/// Whether the newest turn is over.
fn is_settled(entries: &[Entry]) -> bool {
    let over = entries.iter().rev().find_map(|entry| match entry.body {
        EntryBody::TurnEnded { .. } => Some(true),
        EntryBody::TurnStarted { .. } => Some(false),
        _ => None,
    });
    over.unwrap_or(false)
}

/// The entries of the newest turns, so many of them.
async fn newest_entries(
    store: &Store,
    thread: &ThreadId,
    turns: u64,
) -> Result<Vec<Entry>, StoreError> {
    let page = store.entries(thread, Window::Last, PAGE).await?;
    let newest = page.entries.last().map_or(0, |last| last.turn);
    let from = newest.saturating_sub(turns - 1);
    let mut pages = vec![page];
    while let Some(page) = pages.last()
        && let Some(first) = page.entries.first()
        && page.has_earlier()
        && first.turn >= from
    {
        let window = Window::Before(first.seq);
        pages.push(store.entries(thread, window, PAGE).await?);
    }
    let entries = pages.into_iter().rev().flat_map(|page| page.entries);
    Ok(entries.filter(|entry| entry.turn >= from).collect())
}

/// What is shown of them.
fn visible_items(entries: &[Entry]) -> Vec<PastItem> {
    let mut said = past_items(entries);
    let before = entries
        .first()
        .map_or(0, |first| first.turn.saturating_sub(1));
    if before > 0 {
        let note = format!("… {} before this", count(before, "turn"));
        said.insert(0, PastItem::Note(note));
    }
    said
}

fn past_items(entries: &[Entry]) -> Vec<PastItem> {
    let ends = call_ends(entries);
    let mut said = Vec::new();
    for entry in entries {
        let EntryBody::Message { message } = &entry.body else {
            continue;
        };
        for part in &message.content {
            match &part.content {
                Content::Text { text } if text.trim().is_empty() => {}
                Content::Text { text } if message.role == Role::User => {
                    said.push(PastItem::Person(truncate(strip_command_output(text))));
                }
                Content::Image { artifact } | Content::File { artifact }
                    if message.role == Role::User =>
                {
                    said.push(PastItem::File(artifact.name.clone()));
                }
                Content::Text { text } if message.role == Role::Assistant => {
                    said.push(PastItem::Model(truncate(text)));
                }
                Content::FunctionCall(call) => said.push(PastItem::Call {
                    name: call.name.clone(),
                    summary: conjure_terminal::summary(&call.arguments),
                    end: ends
                        .get(call.call_id.as_str())
                        .copied()
                        .unwrap_or(PastCallEnd::Unknown),
                }),
                _ => {}
            }
        }
    }
    said
}

/// How calls ended, as far as somebody saw it.
fn call_ends(entries: &[Entry]) -> BTreeMap<&str, PastCallEnd> {
    let ended = entries.iter().filter_map(|entry| {
        let EntryBody::CallEnded { output, end, .. } = &entry.body else {
            return None;
        };
        let end = match end {
            CallEnd::Indeterminate => PastCallEnd::Unknown,
            _ if output.is_error => PastCallEnd::Failed,
            _ => PastCallEnd::Worked,
        };
        Some((output.call_id.as_str(), end))
    });
    ended.collect()
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{ArtifactRef, FunctionCall, FunctionCallOutput, Message, Part, Usage};
    use conjure_core::log::TurnOutcome;
    use conjure_store::{Location, Log as _, Options, Record};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_thread_is_settled_once_its_newest_turn_is_over() {
        let entry = |body| Entry {
            seq: 1,
            turn: 1,
            at_ms: 0,
            body,
        };
        let started = || {
            entry(EntryBody::TurnStarted {
                turn_id: "t".to_owned(),
            })
        };
        let over = || {
            entry(EntryBody::TurnEnded {
                turn_id: "t".to_owned(),
                outcome: TurnOutcome::Completed,
                usage: Usage::default(),
                stop_reason: None,
            })
        };
        let notice = || entry(EntryBody::notice("Another table."));
        assert!(!is_settled(&[]));
        assert!(!is_settled(&[notice()]));
        assert!(!is_settled(&[started(), notice()]));
        assert!(is_settled(&[started(), over(), notice()]));
        assert!(!is_settled(&[started(), over(), started()]));
    }

    #[test]
    fn a_turn_that_runs_is_no_part_of_what_was_said_before() {
        let mut seq = 0;
        let mut entry = |turn, body| {
            seq += 1;
            Entry {
                seq,
                turn,
                at_ms: 0,
                body,
            }
        };
        let mut entries = Vec::new();
        for turn in 1..=3 {
            let turn_id = format!("turn-{turn}");
            entries.push(entry(turn, EntryBody::TurnStarted { turn_id }));
            let message = Message::user(format!("Question {turn}"));
            entries.push(entry(turn, EntryBody::Message { message }));
        }
        let of_turns = |runs: &str| {
            let mut entries = entries.clone();
            truncate_before_turn(&mut entries, runs);
            let turns = entries.iter().map(|entry| entry.turn);
            turns.collect::<Vec<_>>()
        };
        assert_eq!(of_turns("turn-3"), [1, 1, 2, 2]);
        assert_eq!(of_turns("turn-2"), [1, 1]);
        assert_eq!(of_turns("turn-1"), [0_u64; 0]);
        // It waits for others, and has not begun.
        assert_eq!(of_turns("turn-4"), [2, 2, 3, 3]);
    }

    #[test]
    fn what_was_said_is_shown_with_the_names_of_its_files_and_without_what_commands_said() {
        let text = "I ran `ls` (exit code 0). It said:\n\n```\na.png\n```\n\nWhat is it?";
        let mut message = Message::user(text);
        let artifact = ArtifactRef {
            id: "file-1".to_owned(),
            name: "a.png".to_owned(),
            media_type: "image/png".to_owned(),
            size: None,
        };
        message.content.push(Part {
            content: Content::Image { artifact },
            sidecar: None,
        });
        let entry = Entry {
            seq: 1,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Message { message },
        };
        let shown = [
            PastItem::Person("What is it?".to_owned()),
            PastItem::File("a.png".to_owned()),
        ];
        assert_eq!(past_items(&[entry]), shown);
    }

    #[test]
    fn a_call_whose_result_nobody_saw_is_neither_one_that_worked_nor_one_that_failed() {
        let calls = ["worked", "failed", "lost", "never"];
        let mut message = Message::assistant("I look.");
        message.content.extend(calls.map(|id| {
            Part::from(Content::FunctionCall(FunctionCall {
                call_id: id.to_owned(),
                name: "sh".to_owned(),
                arguments: json!({ "command": id }),
                arguments_text: None,
            }))
        }));
        let ended = |id: &str, end, is_error| EntryBody::CallEnded {
            output: FunctionCallOutput::text(id, "", is_error),
            end,
            reason: None,
            duration_ms: 0,
            meta: None,
        };
        let bodies = [
            EntryBody::Message { message },
            ended("worked", CallEnd::Done, false),
            ended("failed", CallEnd::Failed, true),
            ended("lost", CallEnd::Indeterminate, true),
        ];
        let entries = bodies.map(|body| Entry {
            seq: 1,
            turn: 1,
            at_ms: 0,
            body,
        });
        let call = |id: &str, end| PastItem::Call {
            name: "sh".to_owned(),
            summary: id.to_owned(),
            end,
        };
        let shown = [
            PastItem::Model("I look.".to_owned()),
            call("worked", PastCallEnd::Worked),
            call("failed", PastCallEnd::Failed),
            call("lost", PastCallEnd::Unknown),
            call("never", PastCallEnd::Unknown),
        ];
        assert_eq!(past_items(&entries), shown);
    }

    #[tokio::test]
    async fn a_turn_is_found_by_its_id_with_all_that_was_said_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = Location::File(dir.path().join("conjure.db"));
        let store = Store::open(&place, &Options::default()).await.unwrap();
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).await.unwrap();
        let mut records = Vec::new();
        for number in 1..=3 {
            let turn_id = format!("turn-{number}");
            let mut bodies = vec![
                EntryBody::TurnStarted {
                    turn_id: turn_id.clone(),
                },
                EntryBody::Message {
                    message: Message::user(format!("Question {number}")),
                },
                EntryBody::Message {
                    message: Message::assistant(format!("Answer {number}")),
                },
            ];
            // The last one runs.
            if number < 3 {
                bodies.push(EntryBody::TurnEnded {
                    turn_id,
                    outcome: TurnOutcome::Completed,
                    usage: Usage::default(),
                    stop_reason: None,
                });
            }
            for body in bodies {
                records.push(Record::Entry(Entry {
                    seq: records.len() as u64 + 1,
                    turn: number,
                    at_ms: 0,
                    body,
                }));
            }
        }
        open.append(&records, false).await.unwrap();
        assert_eq!(newest_ended_turn(&store, &thread).await.unwrap(), 2);
        let found = turn(&store, &thread, "turn-2").await.unwrap().unwrap();
        let said = [
            PastItem::Person("Question 2".to_owned()),
            PastItem::Model("Answer 2".to_owned()),
        ];
        assert_eq!((found.number, found.items.as_slice()), (2, said.as_slice()));
        assert!(turn(&store, &thread, "turn-9").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_last_turns_are_shown_however_long_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let place = Location::File(dir.path().join("conjure.db"));
        let store = Store::open(&place, &Options::default()).await.unwrap();
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).await.unwrap();
        let mut records = Vec::new();
        for turn in 1..=4 {
            let question = Message::user(format!("Question {turn}"));
            let mut said = vec![question];
            said.resize(70, Message::assistant(format!("Answer {turn}")));
            for message in said {
                let seq = records.len() as u64 + 1;
                let body = EntryBody::Message { message };
                records.push(Record::Entry(Entry {
                    seq,
                    turn,
                    at_ms: 0,
                    body,
                }));
            }
        }
        open.append(&records, false).await.unwrap();
        let shown = recent_items(&store, &thread, None).await.unwrap();
        assert_eq!(shown.len(), 141, "{shown:?}");
        let note = PastItem::Note("… 2 turns before this".to_owned());
        let question = |turn: u8| PastItem::Person(format!("Question {turn}"));
        assert_eq!(shown.first(), Some(&note));
        assert_eq!(shown.get(1), Some(&question(3)));
        assert_eq!(shown.get(71), Some(&question(4)));
        let answer = PastItem::Model("Answer 4".to_owned());
        assert_eq!(shown.last(), Some(&answer));
    }
}
