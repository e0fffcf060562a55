//! Reasons of logs that were written by older versions, which had them in sentences only.
//!
//! The one place that knows those sentences. Delete it when such threads need not replay any more:
//! they would then replay less far, and nothing else would change.

use crate::log::{CallEnd, Entry, EntryBody, NotRun, NoticeReason};

/// Gives each entry that has no reason the one that its sentence tells.
pub(super) fn with_reasons(mut entries: Vec<Entry>) -> Vec<Entry> {
    for entry in &mut entries {
        add_reason(&mut entry.body);
    }
    entries
}

fn add_reason(body: &mut EntryBody) {
    match body {
        EntryBody::CallEnded {
            output,
            end: CallEnd::Refused | CallEnd::Cancelled,
            reason: reason @ None,
            duration_ms: 0,
            ..
        } => *reason = not_run_reason(&output.joined_text()),
        EntryBody::Notice {
            text,
            reason: reason @ None,
        } => *reason = notice_reason(text),
        _ => {}
    }
}

fn not_run_reason(text: &str) -> Option<NotRun> {
    let plain = [
        ("turn was ended before this call was run", NotRun::TurnEnded),
        ("reply was cut short", NotRun::ReplyCutShort),
    ];
    let found = plain.into_iter().find(|(words, _)| text.contains(words));
    if let Some((_, reason)) = found {
        return Some(reason);
    }
    let (_, limit) = text.split_once("was not run: the limit ")?;
    let (limit, rest) = limit.split_once(" = ")?;
    let (value, _) = rest.split_once(' ')?;
    let name = limit.trim_matches('`');
    Some(NotRun::OverLimit {
        limit: name.strip_prefix("budget.").unwrap_or(name).to_owned(),
        value: value.parse().ok()?,
    })
}

fn notice_reason(text: &str) -> Option<NoticeReason> {
    let behind = |words: &str| text.strip_prefix(words).map(str::to_owned);
    if let Some(error) =
        behind("The conversation is too long for the model, so its older part is summarised. ")
    {
        return Some(NoticeReason::TooLong { error });
    }
    if let Some(error) = behind("The conversation could not be summarised: ") {
        return Some(NoticeReason::NotSummarised { error });
    }
    let summarised = behind(
        "The older part of the conversation is summarised from here on; the model now reads about ",
    );
    if let Some(rest) = summarised {
        let tokens = rest.strip_suffix(" tokens of it. Nothing is deleted.")?;
        let tokens = tokens.parse().ok()?;
        return Some(NoticeReason::Summarised { tokens });
    }
    let count = text.strip_suffix(" waiting message(s) dropped.")?;
    let messages = count.parse().ok()?;
    Some(NoticeReason::Dropped { messages })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::FunctionCallOutput;

    fn ended(text: &str, end: CallEnd) -> EntryBody {
        EntryBody::CallEnded {
            output: FunctionCallOutput::text("c1", text, true),
            end,
            reason: None,
            duration_ms: 0,
            meta: None,
        }
    }

    fn reason_of(text: &str, end: CallEnd) -> Option<NotRun> {
        let mut body = ended(text, end);
        add_reason(&mut body);
        match body {
            EntryBody::CallEnded { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn results_as_they_were_written_tell_their_reason() {
        let over = |limit: &str, value| {
            Some(NotRun::OverLimit {
                limit: limit.to_owned(),
                value,
            })
        };
        let call = "The call of `look` on backend `desk` was not run:";
        for (text, end, reason) in [
            (
                "the turn was ended before this call was run. It did nothing; call it again if it \
                 is still needed.",
                CallEnd::Cancelled,
                Some(NotRun::TurnEnded),
            ),
            (
                "the reply was cut short. It did nothing; call it again, with shorter arguments or \
                 in several steps.",
                CallEnd::Refused,
                Some(NotRun::ReplyCutShort),
            ),
            (
                "the limit `max_iterations` = 3 is reached. Say what is done.",
                CallEnd::Refused,
                over("max_iterations", 3),
            ),
            (
                "the limit `budget.calls` = 20 is reached. Say what is done.",
                CallEnd::Refused,
                over("calls", 20),
            ),
            (
                "the limit tokens = 900 is reached.",
                CallEnd::Refused,
                over("tokens", 900),
            ),
            ("the limit of patience.", CallEnd::Refused, None),
            ("the reply was cut short.", CallEnd::Done, None),
        ] {
            assert_eq!(reason_of(&format!("{call} {text}"), end), reason, "{text}");
        }
    }

    #[test]
    fn notices_as_they_were_written_tell_their_reason() {
        let error = || "413".to_owned();
        for (text, reason) in [
            (
                "The conversation is too long for the model, so its older part is summarised. 413",
                Some(NoticeReason::TooLong { error: error() }),
            ),
            (
                "The conversation could not be summarised: 413",
                Some(NoticeReason::NotSummarised { error: error() }),
            ),
            (
                "2 waiting message(s) dropped.",
                Some(NoticeReason::Dropped { messages: 2 }),
            ),
            (
                "The older part of the conversation is summarised from here on; the model now \
                 reads about 19 tokens of it. Nothing is deleted.",
                Some(NoticeReason::Summarised { tokens: 19 }),
            ),
            ("many waiting message(s) dropped.", None),
            ("A plugin came.", None),
        ] {
            assert_eq!(notice_reason(text), reason, "{text}");
        }
    }
}
