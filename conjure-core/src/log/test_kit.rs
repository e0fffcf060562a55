//! Logs for the tests of this crate.

use super::{Entry, EntryBody};

/// Entries of one turn, from 1 on.
pub(crate) fn log(bodies: Vec<EntryBody>) -> Vec<Entry> {
    (1..)
        .zip(bodies)
        .map(|(seq, body)| Entry {
            seq,
            turn: 1,
            at_ms: 0,
            body,
        })
        .collect()
}
