//! What a session may use up: money and time of a turn, and everything of its thread and of the
//! session, looked at before each request. Tokens and calls of a turn are the machine's.

use std::time::Duration;

use conjure_core::log::Used;
use conjure_core::turn::Input;
use tokio::time::Instant;

use super::actor::Actor;
use conjure_config::LimitSpec;

/// What a session used up before it was opened, in whichever threads but the one that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct SpentBefore {
    /// Tokens, input and output.
    pub(crate) tokens: u64,
    /// Calls that ran.
    pub(crate) calls: u64,
    /// The time of its turns in milliseconds.
    pub(crate) wall_ms: u64,
    /// US dollars, as far as prices are known.
    pub(crate) usd: f64,
}

/// What is counted of an open session.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Of the session, before this thread was opened.
    before: SpentBefore,
    /// What the thread had used up when it was opened.
    thread_before: Option<SpentBefore>,
    /// Of the thread.
    pub(super) used: Used,
}

/// When a turn is out of time.
#[derive(Debug, Clone)]
pub(super) struct OutOfTime {
    pub(super) at: Instant,
    limit: &'static str,
    value: u64,
}

impl From<OutOfTime> for Input {
    fn from(out: OutOfTime) -> Self {
        exhausted(out.limit, out.value)
    }
}

impl Budget {
    pub(super) fn new(before: SpentBefore) -> Self {
        Self {
            before,
            ..Self::default()
        }
    }
}

impl Actor {
    /// The limit that stands in the way of another request.
    pub(super) fn exhausted(&mut self) -> Option<Input> {
        let limits = self.spec.budget;
        let (thread, session) = self.spent();
        let turn = self.recorder.entries().last().map_or(0, |entry| entry.turn);
        let turn_usd = self.account().turn(turn).map_or(0.0, |cost| cost.cost.usd);
        let turn = limits.usd.filter(|most| turn_usd >= *most);
        turn.map(|most| exhausted("turn_microdollars", microdollars(most)))
            .or_else(|| over(&limits.thread, &thread, &THREAD))
            .or_else(|| over(&limits.session, &session, &SESSION))
    }

    /// When the turn that begins now is out of time.
    pub(super) fn out_of_time(&mut self) -> Option<OutOfTime> {
        let limits = self.spec.budget;
        let (thread, session) = self.spent();
        let left =
            |most: Option<u64>, used: u64| most.map(|most| (most.saturating_sub(used), most));
        let all = [
            ("wall_time_ms", left(limits.wall_ms, 0)),
            (THREAD.wall_ms, left(limits.thread.wall_ms, thread.wall_ms)),
            (
                SESSION.wall_ms,
                left(limits.session.wall_ms, session.wall_ms),
            ),
        ];
        let first = all
            .into_iter()
            .filter_map(|(limit, left)| Some((left?, limit)));
        let ((left, value), limit) = first.min_by_key(|((left, _), _)| *left)?;
        Some(OutOfTime {
            at: Instant::now() + Duration::from_millis(left),
            limit,
            value,
        })
    }

    /// What the thread and the session used up so far.
    fn spent(&mut self) -> (SpentBefore, SpentBefore) {
        let usd = self.account().cost().total.cost.usd;
        let used = self.budget.used;
        let now = jiff::Timestamp::now().as_millisecond();
        let thread = SpentBefore {
            tokens: used.tokens,
            calls: used.calls,
            wall_ms: used.wall_ms + used.running_ms(now),
            usd,
        };
        let before = *self.budget.thread_before.get_or_insert(thread);
        let session = SpentBefore {
            tokens: self.budget.before.tokens + thread.tokens.saturating_sub(before.tokens),
            calls: self.budget.before.calls + thread.calls.saturating_sub(before.calls),
            wall_ms: self.budget.before.wall_ms + thread.wall_ms.saturating_sub(before.wall_ms),
            usd: self.budget.before.usd + (thread.usd - before.usd).max(0.0),
        };
        (thread, session)
    }
}

/// What limits are called in the log.
struct Names {
    tokens: &'static str,
    calls: &'static str,
    wall_ms: &'static str,
    usd: &'static str,
}

const THREAD: Names = Names {
    tokens: "thread_tokens",
    calls: "thread_calls",
    wall_ms: "thread_wall_time_ms",
    usd: "thread_microdollars",
};

const SESSION: Names = Names {
    tokens: "session_tokens",
    calls: "session_calls",
    wall_ms: "session_wall_time_ms",
    usd: "session_microdollars",
};

fn over(limits: &LimitSpec, spent: &SpentBefore, names: &Names) -> Option<Input> {
    let count = |most: Option<u64>, used: u64, name| {
        let most = most.filter(|most| used >= *most)?;
        Some(exhausted(name, most))
    };
    count(limits.tokens, spent.tokens, names.tokens)
        .or_else(|| count(limits.calls, spent.calls, names.calls))
        .or_else(|| count(limits.wall_ms, spent.wall_ms, names.wall_ms))
        .or_else(|| {
            let most = limits.usd.filter(|most| spent.usd >= *most)?;
            Some(exhausted(names.usd, microdollars(most)))
        })
}

fn exhausted(limit: &str, value: u64) -> Input {
    Input::Exhausted {
        limit: limit.to_owned(),
        value,
    }
}

/// Millionths of a dollar, as the log counts limits in whole numbers.
fn microdollars(usd: f64) -> u64 {
    Duration::try_from_secs_f64(usd).map_or(0, |scaled| {
        u64::try_from(scaled.as_micros()).unwrap_or(u64::MAX)
    })
}
