//! An entry of a thread as a person names it: by its number, or by a piece of its text that no
//! other entry has.

use conjure_core::chat::Content;
use conjure_core::log::{Entry, EntryBody};
use conjure_store::{Log as _, Store, ThreadId};

use super::error::CliError;
use super::output::clean;
use super::shorten::one_line;

/// Entries that are named where several have the text.
const MAX_CANDIDATES: usize = 5;

/// The number of the entry that is meant; nothing where none is named.
pub(crate) async fn resolve(
    store: &Store,
    thread: &ThreadId,
    at: Option<&str>,
) -> Result<Option<u64>, CliError> {
    let Some(at) = at else { return Ok(None) };
    resolve_number(&store.read_entries(thread).await?, at).map(Some)
}

/// A number that no entry has may be a piece of text: a year, say.
fn resolve_number(entries: &[Entry], at: &str) -> Result<u64, CliError> {
    let Ok(number) = at.parse() else {
        return find_by_text(entries, at);
    };
    let is_one = entries.last().is_none_or(|last| number <= last.seq);
    match (is_one, find_by_text(entries, at)) {
        (false, Ok(seq)) => Ok(seq),
        _ => Ok(number),
    }
}

fn find_by_text(entries: &[Entry], wanted: &str) -> Result<u64, CliError> {
    let found: Vec<(u64, String)> = entries
        .iter()
        .filter_map(|entry| Some((entry.seq, text(&entry.body)?)))
        .filter(|(_, text)| text.contains(wanted))
        .collect();
    match found.as_slice() {
        [(seq, _)] => Ok(*seq),
        [] => Err(CliError::usage(format!(
            "no entry of the thread has `{}` in it",
            clean(wanted)
        ))
        .hint("`conjure thread show` numbers them")),
        several => {
            let shown = several.iter().take(MAX_CANDIDATES);
            let shown = shown.map(|(seq, text)| format!("\n  {seq}  {}", one_line(text, 60)));
            let more = several.len().saturating_sub(MAX_CANDIDATES);
            Err(CliError::usage(format!(
                "{} entries have `{}` in them: write more of it, or a number{}{}",
                several.len(),
                clean(wanted),
                shown.collect::<String>(),
                match more {
                    0 => String::new(),
                    more => format!("\n  … {more} more"),
                }
            )))
        }
    }
}

/// What can be read of an entry.
fn text(body: &EntryBody) -> Option<String> {
    match body {
        EntryBody::Message { message } => {
            let parts = message.content.iter().map(|part| match &part.content {
                Content::Text { text } => text.clone(),
                Content::FunctionCall(call) => format!("{} {}", call.name, call.arguments),
                Content::FunctionCallOutput(output) => output.joined_text(),
                Content::Image { artifact } | Content::File { artifact } => artifact.name.clone(),
                Content::Reasoning { .. } | Content::ServerItem { .. } => String::new(),
            });
            Some(parts.collect::<Vec<_>>().join("\n"))
        }
        EntryBody::CallEnded { output, .. } => Some(output.joined_text()),
        EntryBody::File { artifact, .. } => Some(artifact.name.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::Message;

    use super::*;

    #[test]
    fn an_entry_is_named_by_what_only_it_says() {
        let entry = |seq, said: &str| Entry {
            seq,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Message {
                message: Message::user(said),
            },
        };
        let entries = [entry(1, "Light the lamp"), entry(4, "Put the lamp out")];
        assert_eq!(find_by_text(&entries, "Light").unwrap(), 1);
        assert_eq!(find_by_text(&entries, "lamp out").unwrap(), 4);
        let several = find_by_text(&entries, "lamp").unwrap_err().to_string();
        assert_eq!(
            several,
            "2 entries have `lamp` in them: write more of it, or a number\n  1  Light the lamp\n  \
             4  Put the lamp out"
        );
        assert!(find_by_text(&entries, "fog").is_err());
        let entries = [
            entry(1, "In 2024"),
            entry(2, "In 2025, or 2026"),
            entry(3, "3"),
        ];
        assert_eq!(
            resolve_number(&entries, "2024").unwrap(),
            1,
            "no entry has that number"
        );
        assert_eq!(resolve_number(&entries, "2").unwrap(), 2);
        assert_eq!(
            resolve_number(&entries, "20").unwrap(),
            20,
            "several have it: it is said of the number"
        );
    }
}
