//! The turn loop as a state machine: inputs in, actions out.
//!
//! Owns the order of things: which request leaves when, which calls run at the same time, what a
//! cancel leaves behind. Performs nothing: the host does what the actions say and reports back.

mod file_notice;
mod input;
mod judge;
mod machine;
mod notice;
mod recover;
mod settings;
mod step;
mod table_judge;

pub use input::{ApprovalDecision, EffectiveFrom, HostAction, ModelFailure, TurnInput};
pub use judge::{CallVerdict, Judge};
pub use machine::Machine;
pub(crate) use machine::UNFIT_ANSWER;
pub use notice::{describe_notice, describe_state_move, notice_text};
pub use recover::recover;
pub use settings::{CompactionTrigger, TurnBudget, TurnSettings};
pub use table_judge::TableJudge;

#[cfg(test)]
pub(crate) mod tests;
