//! What a model reads of a log: the summary of what is folded, what is asked, and the rest as it is.

use super::message_tokens;
use crate::chat::Message;
use crate::context::notes;
use crate::log::{Entry, Folded, fold, messages};

/// The most tokens of a question that is repeated behind the summary; a longer one is only in it.
const ASKED_TOKENS: u64 = 4_096;

/// The conversation as the model reads it, before it is made fit for a provider.
#[must_use]
pub fn conversation(entries: &[Entry]) -> Vec<Message> {
    conversation_before(entries, u64::MAX)
}

/// Of that, what stands in front of an entry.
pub(super) fn conversation_before(entries: &[Entry], upto: u64) -> Vec<Message> {
    let folded = fold(entries);
    let summary = folded
        .summary
        .map(|text| Message::user(notes::summary(text)));
    let asked = repeated(&folded).cloned();
    let end = folded.shown.partition_point(|entry| entry.seq < upto);
    let mut told: Vec<Message> = summary.into_iter().chain(asked).collect();
    told.extend(messages(folded.shown.get(..end).unwrap_or_default()));
    told
}

/// What the person asked in the running turn, where it is folded and short enough to stand behind
/// the summary as it is.
pub(super) fn repeated<'a>(folded: &Folded<'a>) -> Option<&'a Message> {
    folded
        .asked
        .filter(|asked| message_tokens(asked) <= ASKED_TOKENS)
}
