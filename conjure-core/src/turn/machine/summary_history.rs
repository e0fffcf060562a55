//! What became of earlier summaries of a thread, by which the machine knows whether another one is worth
//! its price.

use crate::chat::Usage;
use crate::log::{Entry, EntryBody, NoticeReason, is_unfolded};
use crate::request::next_input_tokens;

/// The newest summary of a thread, or the newest attempt at one.
#[derive(Debug, Default)]
pub(super) struct SummaryHistory {
    /// A person took the newest summary back: nothing but them and a refusal makes another.
    pub(super) is_unfolded: bool,
    /// Tokens of input that there were, about, when the newest summary failed.
    failed_at: Option<u64>,
    /// Tokens of input that no summary takes away, such as tools, memory and instructions: what the provider
    /// counted for the first reply behind the newest summary, without what the conversation had then.
    fixed_tokens: Option<u64>,
    /// The next reply that is counted is the first one behind a summary.
    awaits_reply: bool,
}

impl SummaryHistory {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut history = Self {
            is_unfolded: is_unfolded(entries),
            ..Self::default()
        };
        let is_reset = |entry: &Entry| {
            matches!(
                &entry.body,
                EntryBody::Unfolded { .. } | EntryBody::SettingsChanged { .. }
            )
        };
        let is_summary = |entry: &Entry| matches!(&entry.body, EntryBody::Compacted { .. });
        let reset = entries.iter().rposition(is_reset).map_or(0, |at| at + 1);
        let summary = entries.iter().skip(reset).rposition(is_summary);
        let since = summary.map_or(reset, |at| reset + at + 1);
        if summary.is_some() {
            let replies = (since..).zip(entries.iter().skip(since));
            let mut counted = replies.filter_map(|(at, entry)| match &entry.body {
                EntryBody::Message { message } => {
                    Some((at, tokens(&message.meta.as_ref()?.usage)?))
                }
                _ => None,
            });
            let first = counted.next();
            history.fixed_tokens = first.and_then(|(at, input)| {
                let conversation = next_input_tokens(entries.get(..at)?);
                Some(input.saturating_sub(conversation))
            });
            history.awaits_reply = first.is_none();
        }
        let has_failed = |entry: &Entry| {
            matches!(
                &entry.body,
                EntryBody::Notice {
                    reason: Some(NoticeReason::NotSummarised { .. }),
                    ..
                }
            )
        };
        let failed = entries.iter().skip(since).rposition(has_failed);
        let before = failed.and_then(|at| entries.get(..since + at));
        history.failed_at = before.map(next_input_tokens);
        history
    }

    /// Whether a summary of so much input is put off.
    ///
    /// After one that failed the conversation has to grow by the size of a summary: another one would most
    /// likely fail too, and be paid as that was. Where most of the input is what no summary takes away, the
    /// conversation has to come to half of that, or to the end of the model's window (`full_at`): a summary
    /// costs as much as all of the input.
    pub(super) fn postpones(&self, input: u64, summary: u64, full_at: Option<u64>) -> bool {
        let worth = self
            .fixed_tokens
            .map(|fixed| fixed.saturating_add(fixed / 2));
        let least = [
            self.failed_at.map(|failed| failed.saturating_add(summary)),
            worth.map(|worth| full_at.map_or(worth, |full| worth.min(full))),
        ];
        least.into_iter().flatten().any(|least| input < least)
    }

    pub(super) fn record_failure(&mut self, input: u64) {
        self.failed_at = Some(input);
    }

    pub(super) fn record_summary(&mut self) {
        *self = Self {
            awaits_reply: true,
            ..Self::default()
        };
    }

    pub(super) fn record_unfold(&mut self) {
        *self = Self {
            is_unfolded: true,
            ..Self::default()
        };
    }

    /// A reply came, for which this was counted, and as much estimated of the conversation alone.
    pub(super) fn record_reply(&mut self, usage: &Usage, conversation: u64) {
        if self.awaits_reply
            && let Some(input) = tokens(usage)
        {
            self.fixed_tokens = Some(input.saturating_sub(conversation));
            self.awaits_reply = false;
        }
    }

    /// Puts off nothing any more: other settings may manage what failed, or have less beside the conversation, and for a replay
    /// what a thread tells of a summary wins over what would be done today.
    pub(super) fn reset(&mut self) {
        *self = Self {
            is_unfolded: self.is_unfolded,
            ..Self::default()
        };
    }
}

/// Tokens of the input, where the provider counted them.
fn tokens(usage: &Usage) -> Option<u64> {
    Some(usage.prompt_tokens()).filter(|tokens| *tokens > 0)
}
