//! Calls and questions that wait for a person.

use conjure_core::chat::FunctionCall;

/// Whether anybody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApprovalMode {
    /// Nobody is there: what a rule would ask about is denied, and the result says so.
    #[default]
    Unattended,
    /// Somebody follows the session and answers with [`super::Session::decide`].
    Attended,
}

/// A call that waits for a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// The call.
    pub call: FunctionCall,
    /// The rule that asks.
    pub reason: String,
}

/// What the model is told when nobody could be asked.
pub(crate) fn nobody_there(call: &FunctionCall, reason: &str) -> String {
    format!(
        "The call of `{}` needs a person's permission ({reason}), and nobody is there to give it, \
         so it was not run. Whoever started this session can allow it with `--allow '{}'`.",
        call.name, call.name
    )
}
