//! What an open thread waits for while whoever has it drives it.

use super::tools::ToolChange;
use crate::backend::reports::TaskReport;
use conjure_store::StoreError;

/// Something that happens to an open thread.
pub(crate) enum ThreadEvent {
    /// The log has what was handed to it, or failed.
    Written(Result<(), StoreError>),
    /// One of its tasks reports.
    Report(Box<TaskReport>),
    /// Something changes its tools.
    Tools(ToolChange),
    /// The running turn is out of time.
    OutOfTime,
    /// A call waited too long for a person.
    Unanswered,
}
