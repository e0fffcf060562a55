//! What came of a call.

use std::time::Duration;

use conjure_core::chat::{FunctionCall, FunctionCallOutput};
use conjure_core::context::{CallFailure, CallFailureKind};
use conjure_core::log::CallEnd;
use conjure_skill_sdk::protocol::{Spent, ToolResult};
use serde_json::Value;

use crate::artifacts::Artifact;

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// What the model reads.
    pub output: FunctionCallOutput,
    /// The way in which the call ended.
    pub end: CallEnd,
    /// Time from start to result.
    pub duration: Duration,
    /// Files that it made.
    pub files: Vec<Artifact>,
    /// Files that were found while it ran, and that it cannot be said to have made.
    pub other_files: Vec<Artifact>,
    /// Data for programs: the structured result, if there is one.
    pub structured: Option<Value>,
    /// Items of a provider's own tools that it used, for people: the `provider` and `server_items`.
    pub server_items: Option<Value>,
    /// What its backend wants to find again when the thread goes on: the instance and the state.
    pub state: Option<(String, Value)>,
    /// What it paid for at models of its own: the backend instance, and tokens.
    pub spent: Vec<(String, Spent)>,
    /// What the plugin said, word for word, where somebody wanted it so.
    pub plugin_result: Option<Box<ToolResult>>,
    /// What the host says of the call behind the tool's own words, which the output has too; nothing of
    /// a call that went well or gave no words.
    pub note: Option<String>,
}

impl CallReport {
    /// The report of a call whose own code in the host broke.
    pub(crate) fn broken(call: &FunctionCall, backend: Option<&str>) -> Self {
        let kind = CallFailureKind::HostFailed;
        Self::failed(call, backend, kind, CallEnd::Indeterminate)
    }

    /// The report of a call that was not begun.
    pub fn not_run(call: &FunctionCall, backend: Option<&str>, kind: CallFailureKind<'_>) -> Self {
        Self::failed(call, backend, kind, CallEnd::Refused)
    }

    fn failed(
        call: &FunctionCall,
        backend: Option<&str>,
        kind: CallFailureKind<'_>,
        end: CallEnd,
    ) -> Self {
        let failure = CallFailure {
            tool: &call.name,
            backend,
            kind,
        };
        Self::without_answer(call, failure.to_string(), end)
    }

    pub(crate) fn without_answer(call: &FunctionCall, text: String, end: CallEnd) -> Self {
        Self {
            output: FunctionCallOutput::text(&call.call_id, text, true),
            end,
            duration: Duration::ZERO,
            files: Vec::new(),
            other_files: Vec::new(),
            structured: None,
            server_items: None,
            state: None,
            spent: Vec::new(),
            plugin_result: None,
            note: None,
        }
    }
}
