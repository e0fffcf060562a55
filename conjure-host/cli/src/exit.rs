//! How the program ends.

use conjure_config::SpecError;
use conjure_runtime::session::{ChatError, CompactError, SessionError};
use conjure_store::StoreError;

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
    /// Ended by SIGTERM.
    Terminated,
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Fine => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Provider => 3,
            Self::Limit => 4,
            Self::Host => 5,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

/// Why a verb could not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// Whether the person has read it already.
    pub(crate) shown: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            shown: false,
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
            | SessionError::Unfold(_)
            | SessionError::Compact(CompactError::Busy | CompactError::Nothing)
            | SessionError::Store(
                StoreError::NoThread { .. }
                | StoreError::BadId { .. }
                | StoreError::BadLocation { .. }
                | StoreError::ThreadExists { .. }
                | StoreError::NoEntry { .. }
                | StoreError::NotFound { .. }
                | StoreError::NameTaken { .. }
                | StoreError::BadName { .. }
                | StoreError::InUse { .. },
            ) => Exit::Usage,
            SessionError::Compact(CompactError::Failed { .. }) => Exit::Provider,
            SessionError::Compact(CompactError::Ended) => Exit::Host,
            // The directories that the person names were looked at before.
            SessionError::Store(_) | SessionError::Directory { .. } => Exit::Host,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        SessionError::from(error).into()
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
