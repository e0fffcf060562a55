//! What a log tells of what was not written at the time: which input came next, when tools and
//! settings changed, what a person decided.
//!
//! A log holds what the turn machine wrote, not what it was told. Each function here looks at the
//! entries from a place on and knows nothing of the machine.

use std::collections::HashMap;

use crate::chat::{FunctionCall, Meta, Part, Role, StopReason};
use crate::context::CallRefusal;
use crate::log::{
    CallEnd, Entry, EntryBody, NotRun, NoticeReason, Spending, TableChange, TurnOutcome, turn_usage,
};
use crate::turn::{CallVerdict, CompactionTrigger, TurnSettings, UNFIT_ANSWER, recover};

/// Whether the host writes such an entry, and not the turn machine.
pub(super) fn is_host_entry(body: &EntryBody) -> bool {
    match body {
        EntryBody::File { .. } | EntryBody::BackendState { .. } => true,
        EntryBody::Message { message } => message.role == Role::System,
        _ => false,
    }
}

/// Whether the host may write such an entry: those of [`is_host_entry`], and notices, which both write.
pub(super) fn may_be_host_entry(body: &EntryBody) -> bool {
    is_host_entry(body) || matches!(body, EntryBody::Notice { .. })
}

/// A reply of a model, as its entry tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoggedReply<'a> {
    /// What the reply says; nothing where its entry only tells what it cost.
    pub(super) parts: &'a [Part],
    pub(super) meta: Option<&'a Meta>,
}

impl<'a> LoggedReply<'a> {
    /// The calls that it asks for, in order.
    pub(super) fn calls(self) -> impl Iterator<Item = &'a FunctionCall> {
        self.parts.iter().filter_map(Part::as_call)
    }
}

/// A reply of a model.
pub(super) fn logged_reply(body: &EntryBody) -> Option<LoggedReply<'_>> {
    match body {
        EntryBody::Message { message } if message.role == Role::Assistant => Some(LoggedReply {
            parts: &message.content,
            meta: message.meta.as_ref(),
        }),
        EntryBody::Spent {
            on: Spending::Reply,
            meta,
        } => Some(LoggedReply {
            parts: &[],
            meta: Some(meta),
        }),
        _ => None,
    }
}

/// The end of the turn that the first of these entries belongs to.
pub(super) fn turn_end(rest: &[Entry]) -> Option<(usize, &TurnOutcome)> {
    let begins = |entry: &Entry| matches!(entry.body, EntryBody::TurnStarted { .. });
    for (at, entry) in rest.iter().enumerate() {
        match &entry.body {
            EntryBody::TurnEnded { outcome, .. } => return Some((at, outcome)),
            _ if at > 0 && begins(entry) => return None,
            _ => {}
        }
    }
    None
}

/// The change of tools that is written together with the first of these entries.
pub(super) fn table_change(rest: &[Entry]) -> Option<(usize, &TableChange)> {
    // Settings for which a reply is begun again are written with it, others by themselves.
    let first = rest.first().and_then(|entry| logged_reply(&entry.body));
    let first = first.and_then(|reply| reply.meta);
    let mut settings = first.is_some_and(|meta| meta.superseded);
    for (at, entry) in rest.iter().enumerate() {
        match &entry.body {
            EntryBody::TableChanged(change) => return Some((at, change)),
            EntryBody::TurnEnded { .. } | EntryBody::Compacted { .. } => return None,
            EntryBody::TurnStarted { .. } if at > 0 => return None,
            EntryBody::SettingsChanged { .. } if at > 0 && !std::mem::take(&mut settings) => {
                return None;
            }
            body if at > 0 && logged_reply(body).is_some() => return None,
            _ => {}
        }
    }
    None
}

/// Whether a summary is made before the request that follows the first of these entries.
fn is_summarised_next(rest: &[Entry]) -> bool {
    let first = rest.first().and_then(|entry| logged_reply(&entry.body));
    let first = first.and_then(|reply| reply.meta);
    let mut settings = first.is_some_and(|meta| meta.superseded);
    for entry in rest.iter().skip(1) {
        match &entry.body {
            EntryBody::Compacted { .. }
            | EntryBody::Spent {
                on: Spending::Summary,
                ..
            } => return true,
            EntryBody::Notice {
                reason: Some(NoticeReason::NotSummarised { .. }),
                ..
            } => return true,
            EntryBody::Notice {
                reason: Some(NoticeReason::TooLong { .. }),
                ..
            } => return false,
            EntryBody::TurnEnded { .. } => return false,
            // A request was made before it, which it began again.
            EntryBody::SettingsChanged { .. } if !std::mem::take(&mut settings) => return false,
            body if logged_reply(body).is_some() => return false,
            _ => {}
        }
    }
    false
}

/// The limits of a turn that begins with these entries: those that the thread tells, and those
/// that are set where they do not contradict it.
pub(super) fn effective_limits(rest: &[Entry], set: &TurnSettings) -> TurnSettings {
    let end = turn_end(rest).map_or(rest.len(), |(at, _)| at + 1);
    let turn = rest.get(..end).unwrap_or(rest);
    let mut limits = set.clone();
    let replies = turn.iter().filter_map(|entry| logged_reply(&entry.body));
    let (mut with_calls, mut without, mut calls) = (0u32, 0u32, 0u32);
    for reply in replies {
        let count = u32::try_from(reply.calls().count()).unwrap_or(u32::MAX);
        calls = calls.saturating_add(count);
        if count > 0 {
            with_calls += 1;
        } else {
            without += 1;
        }
    }
    if with_calls + without >= limits.max_iterations {
        limits.max_iterations = u32::MAX;
    }
    if without > limits.max_pauses {
        limits.max_pauses = u32::MAX;
    }
    let used = turn_usage(turn).total();
    limits.budget.tokens = limits.budget.tokens.filter(|most| used < *most);
    limits.budget.calls = limits.budget.calls.filter(|most| calls <= *most);
    let reached = match turn_end(rest) {
        Some((_, TurnOutcome::Limit { limit, value })) => Some((limit.as_str(), *value)),
        _ => None,
    };
    let told = turn.iter().find_map(|entry| match &entry.body {
        EntryBody::CallEnded {
            reason: Some(NotRun::OverLimit { limit, value }),
            ..
        } => Some((limit.as_str(), *value)),
        _ => None,
    });
    for (limit, value) in told.into_iter().chain(reached) {
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        match limit {
            "max_iterations" => limits.max_iterations = small,
            "max_pauses" => limits.max_pauses = small,
            "tokens" => limits.budget.tokens = Some(value),
            "calls" => limits.budget.calls = Some(small),
            _ => {}
        }
    }
    limits
}

/// What follows a reply that stands first in these entries: the first entry that is neither the
/// host's nor a result that its calls got without having run.
pub(super) fn after_reply<'a>(rest: &'a [Entry], answer: LoggedReply<'_>) -> Option<&'a EntryBody> {
    let of_reply = |id: &str| answer.calls().any(|call| call.call_id == id);
    let end = turn_end(rest).and_then(|(end, _)| rest.get(end));
    // Settings may change while backends still look at the reply that ended the turn.
    let ended_itself = !is_ended_externally(end.map(|entry| &entry.body));
    let meanwhile = |body: &EntryBody| match body {
        EntryBody::SettingsChanged { .. } => ended_itself,
        EntryBody::Spent { .. } => logged_reply(body).is_none(),
        EntryBody::Unfolded { .. } => true,
        _ => false,
    };
    let behind = rest.iter().skip(1).map(|entry| &entry.body);
    behind
        .filter(|body| !may_be_host_entry(body) && !meanwhile(body))
        .find(|body| match body {
            EntryBody::CallEnded { output, end, .. } => {
                *end != CallEnd::Refused || !of_reply(&output.call_id)
            }
            _ => true,
        })
}

/// Whether all calls of a reply were refused for such a reason.
pub(super) fn all_refused(
    rest: &[Entry],
    answer: LoggedReply<'_>,
    is_reason: impl Fn(&NotRun) -> bool,
) -> bool {
    answer.calls().all(|call| {
        rest.iter().any(|entry| match &entry.body {
            EntryBody::CallEnded {
                output,
                end: CallEnd::Refused,
                reason: Some(reason),
                ..
            } => output.call_id == call.call_id && is_reason(reason),
            _ => false,
        })
    })
}

/// Whether the calls of a step that goes on with these entries were ended from outside, with
/// nothing after them but the end of the turn.
pub(super) fn is_step_cancelled(rest: &[Entry]) -> bool {
    let Some((end, TurnOutcome::Cancelled | TurnOutcome::Limit { .. })) = turn_end(rest) else {
        return false;
    };
    let step = rest.get(..end).unwrap_or_default();
    let ended = |entry: &Entry| matches!(entry.body, EntryBody::CallEnded { .. });
    let last = step.iter().rposition(ended).unwrap_or(0);
    let changes = |entry: &Entry| matches!(entry.body, EntryBody::SettingsChanged { .. });
    // Settings behind the last result changed while a request was under way.
    if step.iter().skip(last).any(changes) {
        return false;
    }
    !step.iter().any(|entry| match &entry.body {
        EntryBody::CallStarted { .. }
        | EntryBody::Compacted { .. }
        | EntryBody::TableChanged(_)
        | EntryBody::Spent {
            on: Spending::Summary,
            ..
        } => true,
        EntryBody::Notice { reason, .. } => matches!(
            reason,
            Some(NoticeReason::TooLong { .. } | NoticeReason::NotSummarised { .. })
        ),
        body => logged_reply(body).is_some(),
    })
}

/// The verdict on each call of the reply that stands first in these entries, reconstructed from what
/// the log shows: the verdict in `judged`, except where a later entry contradicts it.
pub(super) fn verdicts(
    rest: &[Entry],
    answer: LoggedReply<'_>,
    judged: &[CallVerdict],
) -> HashMap<String, CallVerdict> {
    let calls: Vec<&FunctionCall> = answer.calls().collect();
    let place = |id: &str| calls.iter().position(|call| call.call_id == id);
    // What is written at once: refusals in the order of the calls, then the calls that begin.
    let (mut refused, mut begun): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let behind = rest.iter().skip(1).map(|entry| &entry.body);
    for body in behind.filter(|body| !may_be_host_entry(body)) {
        match body {
            EntryBody::CallEnded {
                output,
                end: CallEnd::Refused,
                ..
            } if begun.is_empty() => match place(&output.call_id) {
                Some(at) if refused.last().is_none_or(|last| *last < at) => refused.push(at),
                _ => break,
            },
            EntryBody::CallStarted { call_id, .. } => match place(call_id) {
                Some(at) if begun.last().is_none_or(|last| *last < at) => begun.push(at),
                _ => break,
            },
            _ => break,
        }
    }
    let begins =
        |at: usize| {
            match rest.iter().map(|entry| &entry.body).find(|body| {
        matches!(body, EntryBody::CallStarted { call_id, .. } if place(call_id) == Some(at))
    }) {
        Some(EntryBody::CallStarted {
            backend, plugin, ..
        }) => Some((backend.clone(), plugin.clone())),
        _ => None,
    }
        };
    let is_started = (0..calls.len()).any(|at| begins(at).is_some());
    let asks = |at: usize| !matches!(judged.get(at), Some(CallVerdict::Run { .. }));
    let is_asked = |at: usize| matches!(judged.get(at), Some(CallVerdict::Ask { .. }));
    // A call that a person allowed begins behind those that need nobody.
    let last_free = begun.iter().rposition(|at| !asks(*at));
    let mut verdicts = HashMap::new();
    for (at, call) in calls.iter().enumerate() {
        let own = judged.get(at).cloned();
        let lane = match &own {
            Some(CallVerdict::Run { lane, .. } | CallVerdict::Ask { lane, .. }) => {
                Some(lane.clone())
            }
            _ => None,
        };
        let verdict = if let Some((backend, plugin)) = begins(at) {
            let in_batch = begun.iter().position(|other| *other == at);
            let waits = in_batch.is_none_or(|place| last_free.is_none_or(|free| place > free));
            // Nobody knows the lane of a tool that is not known: it begins when the log says so.
            if lane.is_none() || (is_asked(at) && waits) {
                CallVerdict::Ask {
                    backend,
                    plugin,
                    lane: lane.flatten(),
                    reason: String::new(),
                }
            } else {
                CallVerdict::Run {
                    backend,
                    plugin,
                    lane: lane.flatten(),
                }
            }
        } else if (is_started || !is_asked(at)) && refused.contains(&at) {
            let refusal = rest.iter().find_map(|entry| match &entry.body {
                EntryBody::CallEnded { output, reason, .. } if output.call_id == call.call_id => {
                    Some(CallRefusal {
                        text: output.joined_text(),
                        reason: reason.clone(),
                    })
                }
                _ => None,
            });
            CallVerdict::Refuse(refusal.unwrap_or_default())
        } else {
            match own {
                Some(CallVerdict::Refuse(_)) | None => CallVerdict::Ask {
                    backend: String::new(),
                    plugin: None,
                    lane: None,
                    reason: String::new(),
                },
                Some(CallVerdict::Run {
                    backend,
                    plugin,
                    lane,
                }) if is_denied(rest, &call.call_id) => CallVerdict::Ask {
                    backend,
                    plugin,
                    lane,
                    reason: String::new(),
                },
                Some(own) => own,
            }
        };
        verdicts.insert(call.call_id.clone(), verdict);
    }
    verdicts
}

/// Whether a call was refused by its result, wherever that stands.
fn is_denied(rest: &[Entry], id: &str) -> bool {
    rest.iter().any(|entry| match &entry.body {
        EntryBody::CallEnded { output, end, .. } => {
            output.call_id == id && *end == CallEnd::Refused
        }
        _ => false,
    })
}

/// Whether both are a result of the machine's own for one call that was not run. Its words are not
/// compared: another version may have had others.
pub(super) fn is_same_refusal(logged: &EntryBody, made: &EntryBody) -> bool {
    let (Some(logged), Some(made)) = (refusal(logged), refusal(made)) else {
        return false;
    };
    let same_reason = logged.2.is_none() || logged.2 == made.2;
    (logged.0, logged.1) == (made.0, made.1) && same_reason
}

/// A result of a call that was not run: of which call, how it ended, and why.
fn refusal(body: &EntryBody) -> Option<(&str, CallEnd, Option<&NotRun>)> {
    match body {
        EntryBody::CallEnded {
            output,
            end: end @ (CallEnd::Refused | CallEnd::Cancelled),
            reason,
            duration_ms: 0,
            meta: None,
        } if output.is_error => Some((&output.call_id, *end, reason.as_ref())),
        _ => None,
    }
}

/// The end of the turn that is under way at a place, where the host ended there and what is left
/// is what was written when the thread was opened again.
pub(super) fn interrupted_turn_end(script: &[Entry], at: usize) -> Option<usize> {
    let rest = script.get(at..)?;
    let (end, TurnOutcome::Interrupted) = turn_end(rest)? else {
        return None;
    };
    let closing = rest.get(..=end)?;
    let cut = |entry: &Entry| {
        let partial = logged_reply(&entry.body).and_then(|reply| reply.meta);
        partial.is_some_and(|meta| meta.partial)
    };
    let shown = usize::from(closing.first().is_some_and(cut));
    let closing = closing.get(shown..)?;
    let plain = |entry: &Entry| {
        matches!(
            entry.body,
            EntryBody::CallEnded { .. } | EntryBody::TurnEnded { .. }
        )
    };
    if !closing.iter().all(plain) {
        return None;
    }
    let made = recover(script.get(..at)?);
    let is_same = |(logged, made): (&Entry, &EntryBody)| {
        logged.body == *made || is_same_refusal(&logged.body, made)
    };
    let same = made.len() == closing.len() && closing.iter().zip(&made).all(is_same);
    same.then_some(at + end)
}

/// Entries of the rest of a turn that were written before its host ended; all where it did not.
pub(super) fn before_interruption<'a>(
    script: &[Entry],
    at: usize,
    rest: &'a [Entry],
) -> &'a [Entry] {
    let is_interrupted = matches!(turn_end(rest), Some((_, TurnOutcome::Interrupted)));
    if !is_interrupted {
        return rest;
    }
    let closes = |behind: &usize| interrupted_turn_end(script, at + behind).is_some();
    match (1..rest.len()).find(closes) {
        Some(behind) => rest.get(..behind).unwrap_or(rest),
        None => rest,
    }
}

/// When the log summarises, as a setting.
pub(super) fn compaction_trigger(rest: &[Entry]) -> CompactionTrigger {
    match rest.first().map(|entry| &entry.body) {
        Some(EntryBody::TurnEnded {
            outcome: TurnOutcome::Failed { kind, .. },
            ..
        }) if kind == "too_large" => CompactionTrigger::Never,
        _ if is_summarised_next(rest) => CompactionTrigger::At(0),
        _ => CompactionTrigger::Refused,
    }
}

/// Whether the turn is ended next, and not by the machine.
pub(super) fn is_ended_externally(next: Option<&EntryBody>) -> bool {
    match next {
        Some(EntryBody::TurnEnded { outcome, .. }) => match outcome {
            TurnOutcome::Cancelled => true,
            TurnOutcome::Limit { limit, .. } => !is_machine_limit(limit),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the turn is ended by a limit.
pub(super) fn is_limit(end: Option<&EntryBody>) -> bool {
    matches!(
        end,
        Some(EntryBody::TurnEnded {
            outcome: TurnOutcome::Limit { .. },
            ..
        })
    )
}

/// Whether a reply that nothing follows ended its turn itself: none of its calls came to be judged.
pub(super) fn ends_the_turn(rest: &[Entry], answer: LoggedReply<'_>) -> bool {
    all_refused(rest, answer, |reason| {
        matches!(
            reason,
            NotRun::TurnEnded | NotRun::ReplyCutShort | NotRun::OverLimit { .. }
        )
    })
}

/// Whether a limit that ends a turn behind a reply without calls is the machine's own.
pub(super) fn is_machine_limit(limit: &str) -> bool {
    matches!(limit, "max_pauses" | "tokens")
}

/// Why a reply stopped, as far as it shows in what was done with it.
pub(super) fn stop_reason_of(
    rest: &[Entry],
    answer: LoggedReply<'_>,
    next: Option<&EntryBody>,
) -> StopReason {
    let cut_short = matches!(
        next,
        Some(EntryBody::TurnEnded {
            outcome: TurnOutcome::CutShort,
            ..
        })
    );
    if answer.calls().next().is_some() {
        return if all_refused(rest, answer, |why| *why == NotRun::ReplyCutShort) {
            StopReason::MaxTokens
        } else {
            StopReason::ToolUse
        };
    }
    match next {
        Some(EntryBody::TurnEnded { .. }) if !is_last_reply(answer, next) => StopReason::Pause,
        _ if cut_short => StopReason::MaxTokens,
        _ if is_unfit(next) => StopReason::EndTurn,
        Some(EntryBody::TurnEnded { outcome, .. }) => match outcome {
            TurnOutcome::Limit { limit, .. } if is_machine_limit(limit) => StopReason::Pause,
            TurnOutcome::Interrupted | TurnOutcome::Failed { .. } => StopReason::Pause,
            _ => StopReason::EndTurn,
        },
        _ => StopReason::Pause,
    }
}

/// Whether a reply had not the form that it had to have, such as one that fits a schema, as what
/// follows it says: in a turn a user's message is one that asks again. Which form that was is in no
/// entry.
pub(super) fn is_unfit(next: Option<&EntryBody>) -> bool {
    match next {
        Some(EntryBody::Message { message }) => message.role == Role::User,
        Some(EntryBody::TurnEnded { outcome, .. }) => is_unfit_failure(outcome),
        _ => false,
    }
}

fn is_unfit_failure(outcome: &TurnOutcome) -> bool {
    matches!(outcome, TurnOutcome::Failed { kind, .. } if kind == UNFIT_ANSWER)
}

/// Whether both go on behind a reply that had not its form. Their words are not compared: they say
/// what was wrong by a form that is not known here.
pub(super) fn is_same_unfit(logged: &EntryBody, made: &EntryBody) -> bool {
    match (logged, made) {
        (EntryBody::Message { message: logged }, EntryBody::Message { message: made }) => {
            logged.role == Role::User && made.role == Role::User
        }
        (
            EntryBody::TurnEnded {
                turn_id,
                outcome,
                usage,
                stop_reason,
            },
            EntryBody::TurnEnded {
                turn_id: id,
                outcome: made,
                usage: used,
                stop_reason: stop,
            },
        ) => {
            is_unfit_failure(outcome)
                && is_unfit_failure(made)
                && (turn_id, usage, stop_reason) == (id, used, stop)
        }
        _ => false,
    }
}

/// Whether a turn of a thread shows that its answers had to have a form.
pub(super) fn has_answer_form(entries: &[Entry]) -> bool {
    let mut has_answered = false;
    entries.iter().any(|entry| {
        match &entry.body {
            EntryBody::TurnStarted { .. } => has_answered = false,
            body if logged_reply(body).is_some() => has_answered = true,
            _ => {}
        }
        has_answered && is_unfit(Some(&entry.body))
    })
}

/// Whether a reply that the end of its turn follows was the turn's last: in an older thread one that
/// said nothing, and so is in no entry, may have come behind it.
pub(super) fn is_last_reply(answer: LoggedReply<'_>, next: Option<&EntryBody>) -> bool {
    let own = answer.meta.and_then(|meta| meta.stop_reason.as_ref());
    match next {
        Some(EntryBody::TurnEnded {
            outcome,
            stop_reason,
            ..
        }) => *outcome == TurnOutcome::Interrupted || stop_reason.as_ref() == own,
        _ => false,
    }
}
