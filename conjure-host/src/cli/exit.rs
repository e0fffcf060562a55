//! How the program ends.

use std::process::ExitCode;

use conjure_host::session::{ChatError, SessionError, SpecError};

/// The exit codes, as `conjure --help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It worked.
    Fine,
    /// It was done, and the answer is no.
    No,
    /// Wrong usage, or a session file that is not right.
    Usage,
    /// The provider failed.
    Provider,
    /// A limit ended the turn.
    Limit,
    /// Something of the host's own failed.
    Host,
    /// Interrupted.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::Provider => 3,
            Exit::Limit => 4,
            Exit::Host => 5,
            Exit::Interrupted => 130,
        })
    }
}

/// Why a verb could not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn host(message: impl Into<String>) -> Self {
        Self::new(Exit::Host, message)
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let exit = match &error {
            SessionError::Spec(_)
            | SessionError::Provider { .. }
            | SessionError::Tools(_)
            | SessionError::Directory { .. } => Exit::Usage,
            SessionError::Store(_) => Exit::Host,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<ChatError> for Failure {
    fn from(error: ChatError) -> Self {
        let exit = match &error {
            ChatError::Limit { .. } => Exit::Limit,
            ChatError::Provider { .. } => Exit::Provider,
            ChatError::Cancelled => Exit::Interrupted,
            ChatError::Ended { .. } => Exit::Host,
        };
        Self::new(exit, error.to_string())
    }
}
