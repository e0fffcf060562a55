//! Adds up what the replies of a thread cost, entry by entry.

use serde::{Deserialize, Serialize};

use super::Price;
use crate::chat::{Cause, CauseCost, Cost, Meta, MissReason, TurnCost, Usage};
use crate::log::{Entry, EntryBody, Spending};

/// Milliseconds for which providers keep a prompt in their cache where nothing else is asked for.
const CACHE_LIFE_MS: i64 = 300_000;

/// Fewer tokens than this are no cache miss: providers cache in blocks.
const MIN_MISS_TOKENS: u64 = 512;

/// What a thread costs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadCost {
    /// Turns in which a model answered, in order.
    pub turns: Vec<TurnCost>,
    /// All of them together; `turn` is 0.
    pub total: TurnCost,
}

/// What a turn of a thread comes to on average.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Average {
    /// How many turns it is over.
    pub turns: u64,
    /// Tokens of a turn, input and output.
    pub tokens: u64,
    /// US dollars of a turn, as far as prices are known.
    pub usd: f64,
}

impl ThreadCost {
    /// The average of the newest turns, at most so many; of all of them where there are fewer.
    #[must_use]
    pub fn average(&self, newest: usize) -> Average {
        let from = self.turns.len().saturating_sub(newest);
        let turns = self.turns.get(from..).unwrap_or_default();
        let count = turns.len() as u64;
        let tokens: u64 = turns.iter().map(|turn| turn.cost.usage.total()).sum();
        let usd: f64 = turns.iter().map(|turn| turn.cost.usd).sum();
        Average {
            turns: count,
            tokens: tokens.checked_div(count).unwrap_or(0),
            usd: if count == 0 { 0.0 } else { usd / count as f64 },
        }
    }
}

/// Adds up a thread.
#[derive(Debug, Clone, Default)]
pub struct Account {
    cost: ThreadCost,
    previous: Option<PreviousReply>,
    /// What changed since the newest reply.
    change: Option<MissReason>,
}

/// The newest reply, as the next request's cache sees it.
#[derive(Debug, Clone)]
struct PreviousReply {
    provider: String,
    model: String,
    /// Tokens that were in the provider's cache then.
    cached: u64,
    at_ms: i64,
}

impl Account {
    /// The account of these entries. `price` knows what a provider's model costs.
    pub fn of(entries: &[Entry], price: &dyn Fn(&str, &str) -> Option<Price>) -> Self {
        let mut account = Self::default();
        for entry in entries {
            account.add(entry, price);
        }
        account
    }

    /// Gives back room that was for more turns.
    pub fn shrink_to_fit(&mut self) {
        self.cost.turns.shrink_to_fit();
    }

    /// Takes the next entry in.
    pub fn add(&mut self, entry: &Entry, price: &dyn Fn(&str, &str) -> Option<Price>) {
        match &entry.body {
            EntryBody::TableChanged(_) => self.record_change(MissReason::ToolsChanged),
            EntryBody::SettingsChanged { .. } => self.record_change(MissReason::SettingsChanged),
            EntryBody::Unfolded { .. } => self.record_change(MissReason::ViewChanged),
            _ => {}
        }
        if let Some(meta) = entry.body.meta() {
            let price = price(&meta.provider, &meta.model).unwrap_or_default();
            self.add_reply(entry, meta, &price);
        }
        if matches!(entry.body, EntryBody::Compacted { .. }) {
            self.record_change(MissReason::ViewChanged);
        }
    }

    /// What the thread costs so far.
    #[must_use]
    pub fn cost(&self) -> &ThreadCost {
        &self.cost
    }

    /// What a turn costs so far.
    #[must_use]
    pub fn turn(&self, turn: u64) -> Option<&TurnCost> {
        let newest = self.cost.turns.iter().rev();
        newest
            .take_while(|cost| cost.turn >= turn)
            .find(|cost| cost.turn == turn)
    }

    fn record_change(&mut self, reason: MissReason) {
        self.change.get_or_insert(reason);
    }

    fn add_reply(&mut self, entry: &Entry, meta: &Meta, price: &Price) {
        let (beside, cause) = match &entry.body {
            EntryBody::Spent {
                on: Spending::Sample { .. },
                ..
            } => (true, Some(Cause::Sampling)),
            EntryBody::Spent {
                on: Spending::Delegated { .. },
                ..
            } => (true, Some(Cause::Delegated)),
            EntryBody::Spent {
                on: Spending::Summary,
                ..
            } => (true, Some(Cause::Summary)),
            EntryBody::Spent {
                on: Spending::Attempt,
                ..
            } => (true, Some(Cause::Retry)),
            EntryBody::Compacted { .. } => (false, Some(Cause::Summary)),
            _ => (false, None),
        };
        let asked_ms = entry.at_ms - i64::try_from(meta.latency_ms).unwrap_or(0);
        let mut causes = Vec::new();
        // What is asked beside the conversation says nothing of where that is cached.
        if !beside && let Some(miss) = self.cache_miss(meta, asked_ms, price) {
            causes.push(miss);
        }
        let whole = |cause| CauseCost {
            cause,
            times: 1,
            tokens: meta.usage.total(),
            usd: price.of(&meta.usage).unwrap_or(0.0),
        };
        if meta.partial || meta.superseded {
            causes.push(whole(Cause::Retry));
        }
        if meta.tool_tokens > 0 {
            causes.push(schemas(meta, price));
        }
        causes.extend(cause.map(whole));
        if self
            .cost
            .turns
            .last()
            .is_none_or(|cost| cost.turn != entry.turn)
        {
            self.cost.turns.push(TurnCost {
                turn: entry.turn,
                ..TurnCost::default()
            });
        }
        let cost = of_reply(&meta.usage, price);
        let turn = self.cost.turns.last_mut();
        for sum in turn.into_iter().chain([&mut self.cost.total]) {
            sum.add(&cost, meta.retries, &causes);
        }
        if !beside && meta.usage.prompt_tokens() > 0 {
            self.previous = Some(PreviousReply {
                provider: meta.provider.clone(),
                model: meta.model.clone(),
                cached: meta.usage.cache_read + meta.usage.cache_write,
                at_ms: entry.at_ms,
            });
            self.change = None;
        }
    }

    /// What was in the cache after the reply before, and was not read out of it by this one.
    fn cache_miss(&self, meta: &Meta, requested_ms: i64, price: &Price) -> Option<CauseCost> {
        let before = self.previous.as_ref()?;
        let usage = &meta.usage;
        let missed = before.cached.min(usage.prompt_tokens());
        let tokens = missed.saturating_sub(usage.cache_read);
        if tokens < MIN_MISS_TOKENS {
            return None;
        }
        let reason = if (&before.provider, &before.model) != (&meta.provider, &meta.model) {
            MissReason::Switched
        } else if let Some(changed) = self.change {
            changed
        } else if requested_ms - before.at_ms > CACHE_LIFE_MS {
            MissReason::Expired
        } else {
            MissReason::NotFound
        };
        let paid = if usage.cache_write > 0 {
            price.cache_write.or(price.input)
        } else {
            price.input
        };
        let more = paid.zip(price.cache_read).map(|(paid, read)| paid - read);
        Some(CauseCost {
            cause: Cause::CacheMiss { reason },
            times: 1,
            tokens,
            usd: tokens as f64 * more.unwrap_or(0.0) / 1e6,
        })
    }
}

impl TurnCost {
    fn add(&mut self, cost: &Cost, retries: u32, causes: &[CauseCost]) {
        self.replies += 1;
        self.retries += retries;
        self.cost.usage += cost.usage;
        self.cost.usd += cost.usd;
        self.cost.unpriced_tokens += cost.unpriced_tokens;
        for more in causes {
            match self
                .causes
                .iter_mut()
                .find(|known| known.cause == more.cause)
            {
                Some(known) => {
                    known.times += more.times;
                    known.tokens += more.tokens;
                    known.usd += more.usd;
                }
                None => self.causes.push(more.clone()),
            }
        }
        self.causes.sort_by_key(|known| known.cause.sort_key());
    }
}

impl Cause {
    fn sort_key(&self) -> (u8, u8) {
        match self {
            Self::CacheMiss { reason } => (0, *reason as u8),
            Self::Retry => (1, 0),
            Self::Schemas => (2, 0),
            Self::Summary => (3, 0),
            Self::Sampling => (4, 0),
            Self::Delegated => (5, 0),
        }
    }
}

fn of_reply(usage: &Usage, price: &Price) -> Cost {
    let usd = price.of(usage);
    Cost {
        usage: *usage,
        usd: usd.unwrap_or(0.0),
        unpriced_tokens: if usd.is_some() { 0 } else { usage.total() },
    }
}

/// Tools stand in front of everything else, so they are what a cache has first.
fn schemas(meta: &Meta, price: &Price) -> CauseCost {
    let usage = &meta.usage;
    let tokens = meta.tool_tokens.min(usage.prompt_tokens());
    let read = tokens.min(usage.cache_read);
    let written = (tokens - read).min(usage.cache_write);
    let bucketed = Usage {
        input: tokens - read - written,
        cache_read: read,
        cache_write: written,
        ..Usage::default()
    };
    CauseCost {
        cause: Cause::Schemas,
        times: 1,
        tokens,
        usd: price.of(&bucketed).unwrap_or(0.0),
    }
}
