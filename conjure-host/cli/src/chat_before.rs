//! What was said before in a thread, as far as it is shown when a chat goes on with it.

use std::collections::BTreeSet;

use conjure_core::chat::{Content, Role};
use conjure_core::log::{Entry, EntryBody};
use conjure_core::numerals::count;
use conjure_terminal::PastItem;

/// How many turns are shown.
const TURNS: usize = 2;
/// The most characters of a message that are shown.
const LONGEST: usize = 4000;

/// The last of what was said, with how much there is before it.
pub(crate) fn last(entries: &[Entry]) -> Vec<PastItem> {
    let failed: BTreeSet<&str> = entries
        .iter()
        .filter_map(|entry| match &entry.body {
            EntryBody::CallEnded { output, .. } if output.is_error => Some(output.call_id.as_str()),
            _ => None,
        })
        .collect();
    let is_question = |entry: &Entry| matches!(&entry.body, EntryBody::Message { message } if message.role == Role::User);
    let questions: Vec<usize> = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| is_question(entry))
        .map(|(at, _)| at)
        .collect();
    let earlier = questions.len().saturating_sub(TURNS);
    let from = questions.get(earlier).copied().unwrap_or_default();
    let mut said = Vec::new();
    for entry in entries.iter().skip(from) {
        let EntryBody::Message { message } = &entry.body else {
            continue;
        };
        for part in &message.content {
            match &part.content {
                Content::Text { text } if text.trim().is_empty() => {}
                Content::Text { text } if message.role == Role::User => {
                    said.push(PastItem::Person(cut(text)));
                }
                Content::Text { text } if message.role == Role::Assistant => {
                    said.push(PastItem::Model(cut(text)));
                }
                Content::FunctionCall(call) => said.push(PastItem::Call {
                    name: call.name.clone(),
                    summary: conjure_terminal::summary(&call.arguments),
                    is_error: failed.contains(call.call_id.as_str()),
                }),
                _ => {}
            }
        }
    }
    if earlier > 0 {
        let note = format!("… {} before this", count(earlier as u64, "message"));
        said.insert(0, PastItem::Note(note));
    }
    said
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
