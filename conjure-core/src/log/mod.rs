//! A thread's log: append-only entries, and what is read out of them.
//!
//! Everything else about a thread is a pure function of its entries: its messages, a compacted
//! view, a provider's request. This module knows the entries; storing them is the host's.

mod entry;
mod recover;
mod view;

pub use entry::{CallEnd, Entry, EntryBody, Outcome, TableChange};
pub use recover::recover;
pub use view::{
    Folded, call_ids, cut_point, files, fold, last_backend_states, messages, removed_tools,
    turn_usage,
};

#[cfg(test)]
mod tests;
