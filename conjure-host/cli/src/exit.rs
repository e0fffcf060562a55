//! How the program ends.

/// The exit codes, as `conjure --help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The verb worked.
    Success,
    /// The verb was done, and the answer is no.
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
            Self::Success => 0,
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
