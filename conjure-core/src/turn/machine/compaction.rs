//! When a conversation becomes too long: a summary takes the place of its older part, between two
//! requests of a turn and never inside a step.

use super::{HostAction, Machine, TurnPhase, TurnProgress};
use crate::chat::{Event, Meta};
use crate::log::{EntryBody, NoticeReason};
use crate::request::Room;
use crate::turn::{CompactionTrigger, ModelFailure};

impl Machine {
    pub(super) fn is_compaction_due(&self) -> bool {
        let failed = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn.compaction_failed);
        match self.settings.compaction {
            CompactionTrigger::At(most) => {
                self.next_input >= most
                    && !failed
                    && !self.summaries.is_unfolded
                    && !self.is_summary_postponed(most)
            }
            CompactionTrigger::Never | CompactionTrigger::Refused => false,
        }
    }

    fn is_summary_postponed(&self, most: u64) -> bool {
        let room = Room {
            window: None,
            compact_at: Some(most),
        };
        let summary = u64::from(room.summary_tokens());
        let full_at = self.settings.full_at;
        self.summaries.postpones(self.next_input, summary, full_at)
    }

    /// Puts off no summary, for a replay: what a thread tells of a summary wins over what would be
    /// done today.
    pub(crate) fn allow_summary(&mut self) {
        self.summaries.reset();
    }

    pub(super) fn compact(&mut self, refused: bool) {
        if let Some(turn) = &mut self.turn {
            turn.phase = TurnPhase::Compacting;
            self.actions.push(HostAction::Compact {
                after_refusal: refused,
            });
        }
    }

    /// Whether a request that was refused is made again with less, once a turn.
    pub(super) fn compact_after_refusal(&mut self, failure: &ModelFailure) -> bool {
        let may =
            self.settings.compaction != CompactionTrigger::Never && failure.kind == "too_large";
        let Some(turn) = self.turn.as_mut().filter(|_| may) else {
            return false;
        };
        if turn.compaction_failed || std::mem::replace(&mut turn.was_too_long, true) {
            return false;
        }
        // It gave no reply, so it was no iteration.
        turn.rounds = turn.rounds.saturating_sub(1);
        self.notice(NoticeReason::TooLong {
            error: failure.error.clone(),
        });
        self.compact(true);
        true
    }

    pub(super) fn apply_compaction(&mut self, upto: u64, summary: String, meta: Meta, tokens: u64) {
        let asks = self.is_compacting();
        // Between two turns a person may want it; in a turn nothing but the turn does.
        if !asks && self.turn.is_some() {
            return;
        }
        self.summaries.record_summary();
        self.add_usage(&meta);
        self.write(EntryBody::Compacted {
            upto,
            summary,
            meta: Some(meta),
        });
        self.next_input = tokens;
        self.notice(NoticeReason::Summarised { tokens });
        // Whatever is left is what there is: not again before the model has answered.
        if asks {
            self.ask_in_budget();
        }
    }

    pub(super) fn fail_compaction(&mut self, error: String) {
        if !self.is_compacting() {
            return;
        }
        if let Some(turn) = &mut self.turn {
            turn.compaction_failed = true;
        }
        self.summaries.record_failure(self.next_input);
        self.notice(NoticeReason::NotSummarised { error });
        self.ask_in_budget();
    }

    fn ask_in_budget(&mut self) {
        match self.exceeded_token_budget() {
            Some(outcome) => self.finish(outcome),
            None => self.ask(),
        }
    }

    /// Counts what was paid beside the replies to the running turn.
    pub(super) fn add_usage(&mut self, meta: &Meta) {
        if let Some(turn) = &mut self.turn {
            turn.usage += meta.usage;
            let usage = turn.usage;
            self.publish(Event::Usage(usage.into()));
        }
    }

    pub(super) fn is_compacting(&self) -> bool {
        matches!(
            &self.turn,
            Some(TurnProgress {
                phase: TurnPhase::Compacting,
                ..
            })
        )
    }
}
