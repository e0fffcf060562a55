//! What came of a call.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::channel::{CapturedOutput, LogLine};
use crate::error::{Error, Result};
use crate::protocol::ToolResult;

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The reply, or the fault as an error.
    pub reply: Result<Value>,
    /// What was emitted as standard output.
    pub stdout: Vec<u8>,
    /// What was emitted as standard error.
    pub stderr: Vec<u8>,
    /// The events, in order.
    pub events: Vec<Value>,
    /// The log lines, in order.
    pub logs: Vec<LogLine>,
    /// How often the host's channel was full. Depends on the transport.
    pub fulls: usize,
}

impl Outcome {
    pub(super) fn new(reply: Result<Value>, output: CapturedOutput) -> Self {
        let CapturedOutput {
            stdout,
            stderr,
            events,
            logs,
            fulls,
        } = output;
        Self {
            reply,
            stdout,
            stderr,
            events,
            logs,
            fulls,
        }
    }

    /// The reply as a type.
    ///
    /// # Errors
    /// The fault, or how the reply does not fit.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_value(self.reply.clone()?)?)
    }

    /// The reply as a tool's result.
    ///
    /// # Errors
    /// As [`Outcome::parse`].
    pub fn result(&self) -> Result<ToolResult> {
        self.parse()
    }

    /// The text of a tool's result, or the fault's message.
    pub fn text(&self) -> String {
        match self.result() {
            Ok(result) => result.joined_text(),
            Err(error) => error.message().to_owned(),
        }
    }

    /// The fault's code, if it is one.
    pub fn code(&self) -> Option<u32> {
        self.reply.as_ref().err().map(Error::code)
    }

    /// Drops what depends on the transport, so that outcomes can be compared.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.fulls = 0;
        self
    }
}
