//! What crossed the boundary, under the names of the schemas.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::protocol::op;

/// A message that crossed the boundary.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The name of its schema, such as `executor.bash.request`; `envelope` for a whole request.
    pub schema: String,
    /// The message.
    pub json: Value,
}

#[derive(Default)]
pub(super) struct SharedTranscript(Mutex<Vec<Message>>);

impl SharedTranscript {
    pub(super) fn record(&self, schema: impl Into<String>, json: &Value) {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(Message {
            schema: schema.into(),
            json: json.clone(),
        });
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The name of an operation's schemas: all typed tools share theirs.
pub(super) fn family(operation: &str) -> &str {
    if operation.starts_with(op::SKILL_TOOL) {
        op::SKILL_TOOL.trim_end_matches('.')
    } else {
        operation
    }
}
