//! What came of a call.

use std::time::Duration;

use conjure_core::chat::{FunctionCall, FunctionCallOutput};
use conjure_core::context::failure;
use conjure_core::log::CallEnd;
use conjure_skill_sdk::protocol::ToolResult;
use serde_json::Value;

use crate::artifacts::Artifact;

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// What the model reads.
    pub output: FunctionCallOutput,
    /// How it ended.
    pub end: CallEnd,
    /// From start to result.
    pub duration: Duration,
    /// Files that it made.
    pub files: Vec<Artifact>,
    /// Data for programs: the structured result, if there is one.
    pub structured: Option<Value>,
    /// What the plugin said, word for word, where somebody wanted it so.
    pub said: Option<Box<ToolResult>>,
}

impl CallReport {
    /// The report of a call whose own code in the host broke.
    pub(crate) fn broken(call: &FunctionCall) -> Self {
        let text = failure(
            &call.name,
            "the host broke while it ran the call; this is a bug of it",
        );
        Self::without_answer(call, text, CallEnd::Indeterminate)
    }

    /// The report of a call that was not begun.
    pub(crate) fn not_run(call: &FunctionCall, reason: &str) -> Self {
        let text = failure(&call.name, &format!("it was not begun: {reason}"));
        Self::without_answer(call, text, CallEnd::Refused)
    }

    pub(super) fn without_answer(call: &FunctionCall, text: String, end: CallEnd) -> Self {
        Self {
            output: FunctionCallOutput::text(&call.call_id, text, true),
            end,
            duration: Duration::ZERO,
            files: Vec::new(),
            structured: None,
            said: None,
        }
    }
}
