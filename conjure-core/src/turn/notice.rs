//! What a person is told of something that the turn machine or the host noticed.
//!
//! The log keeps the reason as data; its words are made here and nowhere else.

use super::file_notice::{describe_lost_files, describe_unshown_files};
use crate::log::{NoticeReason, StateFate, StateMove};
use crate::routing::describe_excluded;

/// A notice of a log, as it is shown: in the words of its reason. Where it has none, or one that only a
/// later version knows, in the words that were written with it.
#[must_use]
pub fn notice_text(text: &str, reason: Option<&NoticeReason>) -> String {
    reason
        .and_then(describe_known)
        .unwrap_or_else(|| text.to_owned())
}

/// A notice in words, which are written with its reason for programs that do not know that one; empty
/// where only a later version knows it.
#[must_use]
pub fn describe_notice(reason: &NoticeReason) -> String {
    describe_known(reason).unwrap_or_default()
}

fn describe_known(reason: &NoticeReason) -> Option<String> {
    Some(match reason {
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
        NoticeReason::StateMoved(moved) => return describe_fate(moved),
        NoticeReason::ToolsExcluded { names, error } => describe_excluded(names, error),
        // It names the backend.
        NoticeReason::NotLoaded { error, .. } => error.clone(),
        NoticeReason::NotReady { backend, error } => {
            format!("There are no tools of the backend `{backend}`: {error}")
        }
        NoticeReason::BackendKept {
            backend,
            plugin,
            refused,
            error,
        } => format!(
            "The backend `{backend}` stays as it was, with {plugin}: {refused} could not be made \
             ready for it: {error}"
        ),
        NoticeReason::BackendRenewed { backend } => {
            format!("The backend `{backend}` is set up anew.")
        }
        NoticeReason::FilesLost { files } => return describe_lost_files(files),
        NoticeReason::FilesUnshown { files } => return describe_unshown_files(files),
        NoticeReason::Other => return None,
    })
}

/// What whoever follows a session is told when a summary is taken back. The log has that as an entry of its
/// own.
pub(super) fn describe_unfold(tokens: u64) -> String {
    format!(
        "The summary is taken back: the model now reads about {tokens} tokens of the conversation."
    )
}

/// What a person is told of what has become of a plugin's state; empty where only a later version knows.
#[must_use]
pub fn describe_state_move(moved: &StateMove) -> String {
    describe_fate(moved).unwrap_or_default()
}

fn describe_fate(moved: &StateMove) -> Option<String> {
    let StateMove {
        plugin,
        from,
        to,
        fate,
    } = moved;
    Some(match fate {
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
        StateFate::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LossReason, LostFile, UnshownFile, UnshownReason};

    /// What is shown of a notice that was written in other words.
    fn shown(reason: Option<&NoticeReason>) -> String {
        notice_text("as it was written", reason)
    }

    fn lost(reasons: impl IntoIterator<Item = LossReason>) -> NoticeReason {
        let files = reasons.into_iter().map(|reason| LostFile {
            name: "a.txt".to_owned(),
            reason,
        });
        NoticeReason::FilesLost {
            files: files.collect(),
        }
    }

    fn unshown(reasons: impl IntoIterator<Item = UnshownReason>) -> NoticeReason {
        let files = reasons.into_iter().map(|reason| UnshownFile {
            name: "a.txt".to_owned(),
            reason,
        });
        NoticeReason::FilesUnshown {
            files: files.collect(),
        }
    }

    #[test]
    fn a_notice_whose_reason_is_not_known_is_shown_as_it_was_written() {
        let of_the_future = StateMove {
            plugin: "notes".to_owned(),
            from: "0.2.0".to_owned(),
            to: "0.3.0".to_owned(),
            fate: StateFate::Other,
        };
        for reason in [
            None,
            Some(NoticeReason::Other),
            Some(NoticeReason::StateMoved(of_the_future)),
            Some(lost([LossReason::NoBytes, LossReason::Other])),
            Some(unshown([UnshownReason::Encoding, UnshownReason::Other])),
            Some(lost([])),
            Some(unshown([])),
        ] {
            assert_eq!(shown(reason.as_ref()), "as it was written", "{reason:?}");
        }
    }

    #[test]
    fn a_notice_whose_reason_is_known_is_shown_in_its_words() {
        let owned = str::to_owned;
        for (reason, words) in [
            (
                NoticeReason::Dropped { messages: 2 },
                "2 waiting message(s) dropped.",
            ),
            (
                NoticeReason::ToolsExcluded {
                    names: vec![owned("a")],
                    error: owned("it clashes"),
                },
                "The tool `a` is not offered: it clashes",
            ),
            (
                NoticeReason::ToolsExcluded {
                    names: vec![owned("a"), owned("b")],
                    error: owned("they clash"),
                },
                "The tools `a`, `b` are not offered: they clash",
            ),
            (
                NoticeReason::NotLoaded {
                    backend: owned("box"),
                    error: owned("backend `box`: there is none"),
                },
                "backend `box`: there is none",
            ),
            (
                NoticeReason::NotReady {
                    backend: owned("box"),
                    error: owned("no engine"),
                },
                "There are no tools of the backend `box`: no engine",
            ),
            (
                NoticeReason::BackendKept {
                    backend: owned("box"),
                    plugin: owned("docker 0.2.0"),
                    refused: owned("docker 0.3.0"),
                    error: owned("no engine"),
                },
                "The backend `box` stays as it was, with docker 0.2.0: docker 0.3.0 could not be \
                 made ready for it: no engine",
            ),
            (
                NoticeReason::BackendRenewed {
                    backend: owned("box"),
                },
                "The backend `box` is set up anew.",
            ),
            (
                lost([LossReason::NoBytes, LossReason::OtherTurn]),
                "`a.txt` was attached, and the model reads only its name: this host does not have \
                 its bytes; hand the file over again\n`a.txt` was attached, and the model reads \
                 only its name: it is attached to another turn; hand the file over again",
            ),
            (
                unshown([UnshownReason::Encoding]),
                "the model reads only the name of `a.txt`: its encoding is not known; save as \
                 UTF-8. Tools open it",
            ),
            (
                unshown([UnshownReason::LargeImage { most: 3_750_000 }]),
                "the model reads only the name of `a.txt`: an image of at most 3.75 MB is shown; \
                 attach a smaller one. Tools open it",
            ),
            (
                unshown([UnshownReason::ManyBytes { most: 10_000_000 }]),
                "the model reads only the name of `a.txt`: a request carries at most 10 MB of \
                 files; attach fewer or smaller ones at once. Tools open it",
            ),
        ] {
            assert_eq!(describe_notice(&reason), words);
            assert_eq!(shown(Some(&reason)), words);
        }
    }
}
