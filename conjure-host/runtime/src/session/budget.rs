//! What a session may use up: money and time of a turn, and everything of its thread and of the
//! session, looked at before each request. Tokens and calls of a turn are the machine's.

use std::time::Duration;

use conjure_core::chat::Event;
use conjure_core::cost::Account;
use conjure_core::log::{BudgetUsage, Entry};
use conjure_core::turn::TurnInput;
use tokio::time::Instant;

use conjure_config::{BudgetSpec, LimitSpec};
use conjure_providers::ModelBook;

/// What a session used up before it was opened, in whichever threads but the one that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PriorUsage {
    /// Tokens, input and output.
    pub(crate) tokens: u64,
    /// Calls that ran.
    pub(crate) calls: u64,
    /// The time of its turns in milliseconds.
    pub(crate) wall_ms: u64,
    /// US dollars, as far as prices are known.
    pub(crate) usd: f64,
}

/// What an open thread costs, and what it and its session may use up.
#[derive(Default)]
pub(super) struct Budget {
    /// Usage of the session, before this thread was opened.
    prior: PriorUsage,
    /// Usage of the thread when it was opened.
    thread_prior: Option<PriorUsage>,
    /// Usage of the thread since it was opened.
    used: BudgetUsage,
    /// What the thread costs.
    account: Account,
    /// How many entries these know.
    accounted_entries: usize,
    /// When the running turn is out of time, and which limit that is.
    wall: Option<OutOfTime>,
}

/// When a turn is out of time.
struct OutOfTime {
    at: Instant,
    limit: &'static str,
    value: u64,
}

impl From<OutOfTime> for TurnInput {
    fn from(out: OutOfTime) -> Self {
        exhausted(out.limit, out.value)
    }
}

impl Budget {
    pub(super) fn new(before: PriorUsage) -> Self {
        Self {
            prior: before,
            ..Self::default()
        }
    }

    /// What the thread costs so far.
    pub(super) fn account(&mut self, entries: &[Entry], models: &ModelBook) -> &Account {
        let price = |provider: &str, model: &str| Some(models.facts(provider, model)?.price);
        for entry in entries.get(self.accounted_entries..).unwrap_or_default() {
            self.account.add(entry, &price);
            self.used.add(entry);
        }
        self.accounted_entries = entries.len();
        &self.account
    }

    /// Tells what the newest turn cost.
    pub(super) fn cost_of_turn(&mut self, entries: &[Entry], models: &ModelBook) -> Option<Event> {
        let turn = entries.last().map_or(0, |entry| entry.turn);
        let account = self.account(entries, models);
        account.turn(turn).map(|cost| Event::Cost {
            turn: cost.clone(),
            thread: account.cost().total.clone(),
        })
    }

    /// The limit that stands in the way of another request.
    pub(super) fn exhausted(
        &mut self,
        limits: &BudgetSpec,
        entries: &[Entry],
        models: &ModelBook,
    ) -> Option<TurnInput> {
        let (thread, session) = self.spent(entries, models);
        let turn = entries.last().map_or(0, |entry| entry.turn);
        let turn_usd = self.account.turn(turn).map_or(0.0, |cost| cost.cost.usd);
        let turn = limits.usd.filter(|most| turn_usd >= *most);
        turn.map(|most| exhausted("turn_microdollars", microdollars(most)))
            .or_else(|| exceeded_limit(&limits.thread, &thread, &THREAD))
            .or_else(|| exceeded_limit(&limits.session, &session, &SESSION))
    }

    /// A turn begins: its time runs from now on.
    pub(super) fn begin_turn(
        &mut self,
        limits: &BudgetSpec,
        entries: &[Entry],
        models: &ModelBook,
    ) {
        let (thread, session) = self.spent(entries, models);
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
        let first = first.min_by_key(|((left, _), _)| *left);
        self.wall = first.map(|((left, value), limit)| OutOfTime {
            at: Instant::now() + Duration::from_millis(left),
            limit,
            value,
        });
    }

    /// The turn is over.
    pub(super) fn end_turn(&mut self) {
        self.wall = None;
    }

    /// When the running turn is out of time.
    pub(super) fn out_of_time_at(&self) -> Option<Instant> {
        self.wall.as_ref().map(|wall| wall.at)
    }

    /// Takes what the running turn is told when it is out of time: it is told so once.
    pub(super) fn out_of_time(&mut self) -> Option<TurnInput> {
        self.wall.take().map(TurnInput::from)
    }

    /// Gives room back.
    pub(super) fn shrink_to_fit(&mut self) {
        self.account.shrink_to_fit();
    }

    /// What the thread and the session used up so far.
    fn spent(&mut self, entries: &[Entry], models: &ModelBook) -> (PriorUsage, PriorUsage) {
        let usd = self.account(entries, models).cost().total.cost.usd;
        let now = jiff::Timestamp::now().as_millisecond();
        let thread = PriorUsage {
            tokens: self.used.tokens,
            calls: self.used.calls,
            wall_ms: self.used.wall_ms + self.used.running_ms(now),
            usd,
        };
        let before = *self.thread_prior.get_or_insert(thread);
        let session = PriorUsage {
            tokens: self.prior.tokens + thread.tokens.saturating_sub(before.tokens),
            calls: self.prior.calls + thread.calls.saturating_sub(before.calls),
            wall_ms: self.prior.wall_ms + thread.wall_ms.saturating_sub(before.wall_ms),
            usd: self.prior.usd + (thread.usd - before.usd).max(0.0),
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

fn exceeded_limit(limits: &LimitSpec, spent: &PriorUsage, names: &Names) -> Option<TurnInput> {
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

fn exhausted(limit: &str, value: u64) -> TurnInput {
    TurnInput::Exhausted {
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
