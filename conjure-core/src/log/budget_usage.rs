//! What a thread has used up, as budgets count it.

use super::{Entry, EntryBody};

/// What was used up; money is counted by [`Account`](crate::cost::Account), which has the prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetUsage {
    /// Tokens of all requests, input and output.
    pub tokens: u64,
    /// Calls that began to run.
    pub calls: u64,
    /// The time of the turns that are over, in milliseconds.
    pub wall_ms: u64,
    /// When the running turn began, in milliseconds since 1970.
    pub turn_started_ms: Option<i64>,
}

impl BudgetUsage {
    /// Takes the next entry in.
    pub fn add(&mut self, entry: &Entry) {
        if let Some(meta) = entry.body.meta() {
            self.tokens += meta.usage.total();
        }
        match &entry.body {
            EntryBody::TurnStarted { .. } => self.turn_started_ms = Some(entry.at_ms),
            EntryBody::TurnEnded { .. } => self.wall_ms += self.running_ms(entry.at_ms),
            EntryBody::CallStarted { .. } => self.calls += 1,
            _ => {}
        }
        if matches!(entry.body, EntryBody::TurnEnded { .. }) {
            self.turn_started_ms = None;
        }
    }

    /// The time of the running turn at `now_ms`, in milliseconds; 0 between turns.
    #[must_use]
    pub fn running_ms(&self, now_ms: i64) -> u64 {
        self.turn_started_ms
            .map_or(0, |since| u64::try_from(now_ms - since).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Message, Meta, Usage};
    use crate::log::TurnOutcome;

    #[test]
    fn tokens_calls_and_the_time_of_turns_are_counted() {
        let mut reply = Message::assistant("a");
        reply.meta = Some(Meta {
            usage: Usage {
                input: 100,
                output: 20,
                ..Usage::default()
            },
            ..Meta::default()
        });
        let started = |turn: &str| EntryBody::TurnStarted {
            turn_id: turn.to_owned(),
        };
        let bodies = [
            (1_000, started("1")),
            (1_100, EntryBody::Message { message: reply }),
            (
                1_200,
                EntryBody::CallStarted {
                    call_id: "c".to_owned(),
                    backend: "local".to_owned(),
                    plugin: None,
                },
            ),
            (
                1_500,
                EntryBody::TurnEnded {
                    turn_id: "1".to_owned(),
                    outcome: TurnOutcome::Completed,
                    usage: Usage::default(),
                    stop_reason: None,
                },
            ),
            (9_000, started("2")),
        ];
        let mut used = BudgetUsage::default();
        for (at_ms, body) in bodies {
            used.add(&Entry {
                seq: 1,
                turn: 1,
                at_ms,
                body,
            });
        }
        assert_eq!((used.tokens, used.calls, used.wall_ms), (120, 1, 500));
        assert_eq!(used.running_ms(9_250), 250);
        assert_eq!(used.running_ms(8_000), 0, "a clock that went back");
    }
}
