//! What a turn spent whose process ended before it could say so: its thread's log tells of every
//! reply and of every call that began. Of a request that was under way nobody knows.

use conjure_core::cost::Account;
use conjure_core::log::{Entry, EntryBody, turn_usage};

use super::ManagerState;
use super::running_turn::usd;
use conjure_providers::ModelBook;
use conjure_store::{Run, RunUsage};

impl ManagerState {
    /// Writes down what a run spent whose process is gone, as its thread's entries tell.
    pub(super) async fn note_abandoned_usage(&self, run: &Run, entries: &[Entry]) {
        let Some(turn) = AbandonedTurn::of(entries, &run.id) else {
            return;
        };
        let (spent, seen_ms) = (turn.spent(self.host.models()), turn.last_seen_ms());
        let noted = self.store.record_abandoned_usage(&run.id, spent, seen_ms);
        if let Err(error) = noted.await {
            tracing::warn!(run = run.id, "what it spent is not counted: {error}");
        }
    }
}

/// The entries of a turn that came to no end of its own.
struct AbandonedTurn<'a>(&'a [Entry]);

impl<'a> AbandonedTurn<'a> {
    fn of(entries: &'a [Entry], id: &str) -> Option<Self> {
        let begins = |entry: &Entry| matches!(entry.body, EntryBody::TurnStarted { .. });
        let is_it = |entry: &Entry| matches!(&entry.body, EntryBody::TurnStarted { turn_id } if turn_id == id);
        let rest = entries.get(entries.iter().rposition(is_it)?..)?;
        let next = rest.iter().skip(1).position(begins);
        rest.get(..next.map_or(rest.len(), |at| at + 1)).map(Self)
    }

    fn spent(&self, models: &ModelBook) -> RunUsage {
        let price = |provider: &str, model: &str| Some(models.facts(provider, model)?.price);
        let account = Account::of(self.0, &price);
        let cost = &account.cost().total.cost;
        let usage = turn_usage(self.0);
        let started = |entry: &&Entry| matches!(entry.body, EntryBody::CallStarted { .. });
        RunUsage {
            usage,
            calls: self.0.iter().filter(started).count() as u64,
            usd: usd(cost).filter(|_| usage.total() > 0),
        }
    }

    /// When its process wrote the last of it; 0 where it was closed already, since that was written
    /// by somebody else.
    fn last_seen_ms(&self) -> i64 {
        let ends = |entry: &Entry| matches!(entry.body, EntryBody::TurnEnded { .. });
        match self.0.last() {
            Some(last) if !self.0.iter().any(ends) => last.at_ms,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{Message, Meta, Usage};
    use conjure_core::log::TurnOutcome;

    use super::*;

    fn reply(input: u64) -> EntryBody {
        let mut message = Message::assistant("a");
        message.meta = Some(Meta {
            usage: Usage {
                input,
                output: 1,
                ..Usage::default()
            },
            ..Meta::default()
        });
        EntryBody::Message { message }
    }

    fn log(bodies: Vec<EntryBody>) -> Vec<Entry> {
        let mut turn = 0;
        let mut entries = Vec::new();
        for (seq, body) in (1..).zip(bodies) {
            turn += u64::from(matches!(body, EntryBody::TurnStarted { .. }));
            entries.push(Entry {
                seq,
                turn,
                at_ms: 1_000 + i64::try_from(seq).unwrap(),
                body,
            });
        }
        entries
    }

    #[test]
    fn a_turn_that_was_left_spent_what_its_entries_tell_and_nothing_of_others() {
        let started = |turn: &str| EntryBody::TurnStarted {
            turn_id: turn.to_owned(),
        };
        let began = EntryBody::CallStarted {
            call_id: "c".to_owned(),
            backend: "local".to_owned(),
            plugin: None,
        };
        let ended = |turn: &str| EntryBody::TurnEnded {
            turn_id: turn.to_owned(),
            outcome: TurnOutcome::Interrupted,
            usage: Usage::default(),
            stop_reason: None,
        };
        let mut bodies = vec![started("one"), reply(5), ended("one")];
        bodies.extend([started("two"), reply(100), reply(10), began]);
        let entries = log(bodies.clone());
        let models = ModelBook::default();
        let turn = AbandonedTurn::of(&entries, "two").unwrap();
        let spent = turn.spent(&models);
        assert_eq!((spent.usage.total(), spent.calls), (112, 1));
        assert_eq!(turn.last_seen_ms(), 1_007);
        assert!(AbandonedTurn::of(&entries, "three").is_none());
        bodies.push(ended("two"));
        let entries = log(bodies);
        let closed = AbandonedTurn::of(&entries, "two").unwrap();
        assert_eq!((closed.spent(&models).calls, closed.last_seen_ms()), (1, 0));
    }
}
