//! The request for a summary of what is about to be folded.

use crate::chat::Message;
use crate::log::{Entry, fold, messages};
use crate::repair::Target;
use crate::request::ModelRequest;

const INSTRUCTIONS: &str = "You write the summary that replaces the beginning of a conversation. \
The reader is the same assistant, which goes on with the work and sees nothing else of what was \
before. Keep what was asked for and by whom, decisions, facts, names, figures, file handles and \
paths, what was tried and how it ended, and what is still to be done. Leave out pleasantries. \
Write plain text.";

/// Asks for a summary of everything before the entry `upto`, earlier summaries included. The
/// session's own provider and model answer it, and no other.
#[must_use]
pub fn summary_request(entries: &[Entry], upto: u64, provider: &str, model: &str) -> ModelRequest {
    let folded = fold(entries);
    let end = folded.shown.partition_point(|entry| entry.seq < upto);
    let mut told: Vec<Message> = folded
        .summary
        .map(|summary| Message::user(super::notes::summary(summary)))
        .into_iter()
        .collect();
    told.extend(messages(folded.shown.get(..end).unwrap_or_default()));
    told.push(Message::user("Write the summary now."));
    let target = Target::new(provider, model);
    ModelRequest {
        system: vec![INSTRUCTIONS.to_owned()],
        max_tokens: 4096,
        ..ModelRequest::bare(&target, told)
    }
}
