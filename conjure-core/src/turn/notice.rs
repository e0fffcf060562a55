//! What a person is told of something that the turn machine noticed.

use crate::log::NoticeReason;

/// A notice in words.
pub(super) fn notice_words(reason: &NoticeReason) -> String {
    match reason {
        NoticeReason::TooLong { error } => format!(
            "The conversation is too long for the model, so its older part is summarised. {error}"
        ),
        NoticeReason::NotSummarised { error } => {
            format!("The conversation could not be summarised: {error}")
        }
        NoticeReason::Summarised { tokens } => format!(
            "The older part of the conversation is summarised from here on; the model now reads \
             about {tokens} tokens of it. Nothing is deleted."
        ),
        NoticeReason::Dropped { messages } => format!("{messages} waiting message(s) dropped."),
        NoticeReason::Other => String::new(),
    }
}
