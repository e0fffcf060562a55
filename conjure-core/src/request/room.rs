//! How much of a conversation a model has room for, and where a longer one may be cut.

use crate::chat::Role;
use crate::log::{Entry, EntryBody, fold};

use super::size::entry_tokens;

/// The most tokens of a summary.
const MAX_SUMMARY_TOKENS: u64 = 4_096;
/// The fewest that a summary gets.
const MIN_SUMMARY_TOKENS: u64 = 256;
/// The most tokens of the newest entries that stay as they are, whatever the window.
const MAX_RECENT_TOKENS: u64 = 20_000;
/// Stands for the size of a conversation where no limit is known.
const DEFAULT_WINDOW: u64 = 128_000;
/// Room for what asks for the summary, and for messages that only it has.
const SUMMARY_REQUEST_TOKENS: u64 = 512;

/// The room that a model has, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Input and output together, where it is known.
    pub window: Option<u64>,
    /// Input from which a conversation is summarised before its next request; never when absent.
    pub compact_at: Option<u64>,
}

impl Room {
    /// The room of a model that takes `window` tokens and may answer with `max_tokens`.
    ///
    /// A compaction is due where what the next reply may be, or the summary and its request, would
    /// no longer fit; a tenth of the window stays free for what is only estimated. At least half of
    /// the window may be used, however small that is.
    #[must_use]
    pub fn of(window: u64, max_tokens: u32) -> Self {
        let room = Self {
            window: Some(window),
            compact_at: None,
        };
        let summary = u64::from(room.summary_tokens()) + SUMMARY_REQUEST_TOKENS;
        let kept = u64::from(max_tokens).max(summary) + window / 10;
        Self {
            compact_at: Some(window.saturating_sub(kept).max(window / 2)),
            ..room
        }
    }

    /// The least that `compact_at` may be: below it there is nothing to put a summary in place of,
    /// since the newest entries stay as they are and the summary takes room too.
    #[must_use]
    pub fn min_compact_at(&self) -> u64 {
        self.recent_tokens() + u64::from(self.summary_tokens())
    }

    /// The most tokens of a summary: an eighth of the room, and at most 4,096.
    #[must_use]
    pub fn summary_tokens(&self) -> u32 {
        let tokens = (self.basis() / 8).clamp(MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The most tokens of input that the request for a summary may have; any number when the
    /// window is not known.
    pub(super) fn summary_input(&self) -> Option<u64> {
        let window = self.window?;
        // An estimate may be a third too low.
        let free = window.saturating_sub(u64::from(self.summary_tokens()) + SUMMARY_REQUEST_TOKENS);
        Some(free / 4 * 3)
    }

    /// Tokens of the newest entries that stay as they are.
    fn recent_tokens(&self) -> u64 {
        (self.basis() / 8).min(MAX_RECENT_TOKENS)
    }

    fn basis(&self) -> u64 {
        self.window.or(self.compact_at).unwrap_or(DEFAULT_WINDOW)
    }
}

/// The first entry that a compaction leaves as it is: as many of the newest as the room allows,
/// and the newest reply with its calls and their results whatever their size, while they are being
/// worked on. A cut stands in front of something that was said, so that a call and its result are
/// never parted.
///
/// Nothing when what stands before a cut is not more than the summary of it may be.
#[must_use]
pub fn cut_point(entries: &[Entry], room: &Room) -> Option<u64> {
    let shown = fold(entries).shown;
    let mut kept = 0;
    let mut cut = None;
    for (at, entry) in shown.iter().enumerate().rev() {
        kept += entry_tokens(&entry.body);
        let EntryBody::Message { message } = &entry.body else {
            continue;
        };
        if !matches!(message.role, Role::User | Role::Assistant) || continues(shown, at) {
            continue;
        }
        if cut.is_some() && kept > room.recent_tokens() {
            break;
        }
        cut = Some(at);
    }
    let at = cut?;
    let before = shown.get(..at).unwrap_or_default();
    let folded: u64 = before.iter().map(|entry| entry_tokens(&entry.body)).sum();
    let least = u64::from(room.summary_tokens()).min(room.basis() / 16);
    (folded > least).then(|| shown.get(at).map(|entry| entry.seq))?
}

/// Whether the reply at this place goes on with a paused one, whose items it completes.
fn continues(shown: &[Entry], at: usize) -> bool {
    let role = |entry: &Entry| match &entry.body {
        EntryBody::Message { message } => Some(message.role),
        EntryBody::CallEnded { .. } => Some(Role::Tool),
        _ => None,
    };
    let before = shown.get(..at).unwrap_or_default();
    shown.get(at).and_then(role) == Some(Role::Assistant)
        && before.iter().rev().find_map(role) == Some(Role::Assistant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Message;

    #[test]
    fn the_room_is_that_of_the_reply_or_of_the_summary_whichever_is_larger() {
        let at = |window, max_tokens| Room::of(window, max_tokens).compact_at.unwrap();
        assert_eq!(at(200_000, 16_384), 200_000 - 16_384 - 20_000);
        assert_eq!(at(200_000, 1), 200_000 - 4_096 - 512 - 20_000);
        assert_eq!(at(8_000, 64_000), 4_000);
        assert_eq!(at(0, 1), 0);
    }

    #[test]
    fn a_summary_fits_behind_what_is_summarised_in_any_window() {
        for window in [2_000, 4_096, 8_192, 32_768, 200_000, 1_000_000] {
            let room = Room::of(window, 8_192);
            let needed = room.summary_input().unwrap() + u64::from(room.summary_tokens());
            assert!(needed < window, "{needed} of {window}");
            assert!(room.compact_at.unwrap() >= window / 2);
        }
    }

    #[test]
    fn what_a_compaction_needs_is_known_before() {
        let least = |window, compact_at| Room { window, compact_at }.min_compact_at();
        assert_eq!(least(Some(200_000), Some(10_000)), 20_000 + 4_096);
        assert_eq!(least(None, Some(2_500)), 312 + 312);
        assert_eq!(least(None, Some(100)), 12 + 256);
    }

    fn said(messages: &[(Role, usize)]) -> Vec<Entry> {
        let entry = |(seq, (role, words)): (u64, &(Role, usize))| Entry {
            seq,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Message {
                message: Message::new(*role, Message::user("word ".repeat(*words)).content),
            },
        };
        (1..).zip(messages).map(entry).collect()
    }

    #[test]
    fn as_much_of_the_end_stays_as_there_is_room_for() {
        let turns: Vec<(Role, usize)> = (0..20)
            .flat_map(|_| [(Role::User, 200), (Role::Assistant, 200)])
            .collect();
        let entries = said(&turns);
        let cut = |window| cut_point(&entries, &Room::of(window, 1_024));
        // An eighth of 8,000 tokens is four messages; of 32,000 it is nineteen.
        assert!(matches!(cut(8_000), Some(36..=38)), "{:?}", cut(8_000));
        assert!(matches!(cut(32_000), Some(20..=24)), "{:?}", cut(32_000));
        assert_eq!(cut(200_000), None, "all of it stays");
    }

    #[test]
    fn a_reply_that_is_longer_than_the_room_is_folded_when_its_turn_is_over() {
        let mut messages = vec![(Role::User, 10), (Role::Assistant, 30_000)];
        let room = Room::of(32_000, 1_024);
        assert_eq!(cut_point(&said(&messages), &room), None, "it is the newest");
        messages.push((Role::User, 10));
        assert_eq!(cut_point(&said(&messages), &room), Some(3));
    }

    #[test]
    fn a_cut_never_parts_a_paused_reply_from_its_continuation() {
        let entries = said(&[
            (Role::User, 4_000),
            (Role::Assistant, 10),
            (Role::Assistant, 10),
        ]);
        assert_eq!(cut_point(&entries, &Room::of(8_000, 1_024)), Some(2));
    }
}
