//! What went wrong, in words for the model, with a code that a program can act on.

use std::fmt;

use conjure_process_tree::field::Malformed;

/// Result of the functions of this crate.
pub type Result<T, E = AgentError> = std::result::Result<T, E>;

/// The kind of an error. Its number crosses the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentErrorKind {
    /// The operation was tried and failed.
    Failed,
    /// The request is not what it should be.
    Invalid,
    /// The call was cancelled.
    Cancelled,
    /// There is no room for one more call.
    Busy,
}

impl AgentErrorKind {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Failed => 0,
            Self::Invalid => 1,
            Self::Cancelled => 2,
            Self::Busy => 3,
        }
    }

    /// An unknown number is an ordinary failure.
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Invalid,
            2 => Self::Cancelled,
            3 => Self::Busy,
            _ => Self::Failed,
        }
    }
}

/// An error of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    kind: AgentErrorKind,
    message: String,
}

impl AgentError {
    /// An operation that failed.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of(AgentErrorKind::Failed, message)
    }

    /// A request that is not what it should be.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::of(AgentErrorKind::Invalid, message)
    }

    /// The call was cancelled.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::of(AgentErrorKind::Cancelled, "the call was cancelled")
    }

    /// A failure of a kind.
    pub fn of(kind: AgentErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> AgentErrorKind {
        self.kind
    }

    /// What failed and what to do.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AgentError {}

impl From<Malformed> for AgentError {
    fn from(error: Malformed) -> Self {
        Self::invalid(error.to_string())
    }
}
