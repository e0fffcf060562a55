//! The compacted view: which entries a model reads as they are, and what stands for the others.
//!
//! A compaction is an entry like any other. It says up to where a summary stands for what is
//! before, and deletes nothing; a later entry may take it back.

use super::{Entry, EntryBody};
use crate::chat::{Message, Meta, Role};

/// A log cut in two by the fold that stands.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedLog<'a> {
    /// What stands for the entries before.
    pub summary: Option<&'a str>,
    /// What the person asked, when the cut went through the turn that answers it: a model goes on
    /// with it word for word.
    pub user_message: Option<&'a Message>,
    /// The entries that are shown as they are.
    pub shown: &'a [Entry],
}

/// One compaction of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Fold<'a> {
    /// Number of the compaction's entry; names the compaction.
    pub seq: u64,
    /// The first entry that the compaction leaves as it is.
    pub visible_from: u64,
    /// The summary that stands in place of the entries before.
    pub summary: &'a str,
    /// How the summary was made, and what it cost.
    pub meta: Option<&'a Meta>,
    /// What has become of the compaction.
    pub state: FoldState,
}

/// What has become of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldState {
    /// The model reads its summary.
    Standing,
    /// A later one stands for what it stood for.
    Inside {
        /// The later one's entry.
        outer: u64,
    },
    /// A person took it back.
    Unfolded,
}

/// Every compaction of a thread, the oldest first.
#[must_use]
pub fn folds(entries: &[Entry]) -> Vec<Fold<'_>> {
    let mut undone = Vec::new();
    let mut folds = Vec::new();
    let mut by = None;
    for entry in entries.iter().rev() {
        match &entry.body {
            EntryBody::Unfolded { fold } => undone.push(*fold),
            EntryBody::Compacted {
                upto,
                summary,
                meta,
            } => {
                let state = match by {
                    _ if undone.contains(&entry.seq) => FoldState::Unfolded,
                    None => FoldState::Standing,
                    Some(by) => FoldState::Inside { outer: by },
                };
                if state == FoldState::Standing {
                    by = Some(entry.seq);
                }
                folds.push(Fold {
                    seq: entry.seq,
                    visible_from: *upto,
                    summary,
                    meta: meta.as_ref(),
                    state,
                });
            }
            _ => {}
        }
    }
    folds.reverse();
    folds
}

/// Whether a person took the newest compaction back, which holds until there is another one.
#[must_use]
pub fn is_unfolded(entries: &[Entry]) -> bool {
    let newest = entries.iter().rev().find_map(|entry| match &entry.body {
        EntryBody::Unfolded { .. } => Some(true),
        EntryBody::Compacted { .. } => Some(false),
        _ => None,
    });
    newest.unwrap_or(false)
}

/// Cuts a log by the fold that stands. A person unfolds by reading the entries themselves, or for
/// the model by [`EntryBody::Unfolded`].
#[must_use]
pub fn fold(entries: &[Entry]) -> FoldedLog<'_> {
    let whole = FoldedLog {
        summary: None,
        user_message: None,
        shown: entries,
    };
    let standing = folds(entries)
        .into_iter()
        .rfind(|fold| fold.state == FoldState::Standing);
    let Some(Fold {
        visible_from: upto,
        summary,
        ..
    }) = standing
    else {
        return whole;
    };
    let start = entries.partition_point(|entry| entry.seq < upto);
    let (hidden, shown) = entries.split_at_checked(start).unwrap_or((entries, &[]));
    FoldedLog {
        summary: Some(summary),
        user_message: shown
            .first()
            .and_then(|first| find_user_message(hidden, first.turn)),
        shown,
    }
}

/// The newest view change: replies from before it tell nothing about how long a request is now.
pub(crate) fn last_view_change(entries: &[Entry]) -> u64 {
    let changed = entries.iter().rev().find(|entry| {
        matches!(
            entry.body,
            EntryBody::Compacted { .. } | EntryBody::Unfolded { .. }
        )
    });
    changed.map_or(0, |entry| entry.seq)
}

/// What the person said in a turn whose beginning is hidden.
fn find_user_message(hidden: &[Entry], turn: u64) -> Option<&Message> {
    let of_turn = hidden.iter().rev().take_while(|entry| entry.turn == turn);
    of_turn
        .filter_map(|entry| match &entry.body {
            EntryBody::Message { message } if message.role == Role::User => Some(message),
            _ => None,
        })
        .last()
}
