//! A thread's log: append-only entries, and what is read out of them.
//!
//! Everything else about a thread is a pure function of its entries: its messages, a compacted
//! view, a provider's request. This module knows the entries; storing them is the host's.

mod budget_usage;
mod entry;
mod folds;
mod limit;
mod plugin_change;
mod reason;
#[cfg(test)]
pub(crate) mod test_kit;
mod unshown_file;
mod view;

pub use budget_usage::BudgetUsage;
pub use entry::{CallEnd, Entry, EntryBody, Spending, TableChange, TurnOutcome};
pub(crate) use folds::last_view_change;
pub use folds::{Fold, FoldState, FoldedLog, fold, folds, is_unfolded};
pub use limit::describe_limit;
pub use plugin_change::{PluginChange, StateFate, StateHandover, StateMove, VersionStep};
pub use reason::{NotRun, NoticeReason};
pub use unshown_file::{LossReason, LostFile, UnshownFile, UnshownReason};
pub use view::{
    call_ids, files, last_backend_states, messages, noted_messages, plugin_versions, removed_tools,
    turn_usage,
};

#[cfg(test)]
mod tests;
