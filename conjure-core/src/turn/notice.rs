//! What a person is told of something that the turn machine noticed.

use crate::log::{NoticeReason, StateFate, StateMove};

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
        NoticeReason::StateMoved(moved) => state_words(moved),
        NoticeReason::Other => String::new(),
    }
}

/// What whoever follows a session is told when a summary is taken back. The log has that as an entry of its
/// own.
pub(super) fn unfolded_words(tokens: u64) -> String {
    format!(
        "The summary is taken back: the model now reads about {tokens} tokens of the conversation."
    )
}

/// What a person is told of what has become of a plugin's state.
#[must_use]
pub fn state_words(moved: &StateMove) -> String {
    let StateMove {
        plugin,
        from,
        to,
        fate,
    } = moved;
    match fate {
        StateFate::Carried => {
            format!("{plugin} {to} has taken over the state of {plugin} {from}.")
        }
        StateFate::Kept => format!("{plugin} {to} goes on with what it kept."),
        StateFate::Refused { reason } => format!(
            "{plugin} {to} could not take over the state of {plugin} {from}, which goes on: {reason}"
        ),
        StateFate::Lost { reason } => format!(
            "{plugin} {to} begins without the state of {plugin} {from}, which is in quarantine: \
             {reason}"
        ),
        StateFate::Other => String::new(),
    }
}
