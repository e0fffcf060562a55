//! What goes wrong with saved sessions.

use super::remote::{RemoteError, RemoteErrorKind};
use crate::session::{CompactError, SessionError};
use conjure_config::SpecError;
use conjure_providers::auths::AuthError;
use conjure_store::StoreError;

/// Why nothing came of what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// What was named is not there.
    #[error("there is no {kind} `{id}`")]
    NotFound {
        /// Kind of thing that was named.
        kind: &'static str,
        /// Id or name that was given.
        id: String,
    },
    /// What was said cannot be.
    #[error("{message}")]
    Invalid {
        /// Member of what was said that is wrong, where it is one.
        field: Option<&'static str>,
        /// What is wrong, and what to do.
        message: String,
    },
    /// The request does not fit with how things are.
    #[error("{message}")]
    Conflict {
        /// What is in the way, and what to do.
        message: String,
    },
    /// Too much waits already.
    #[error("{queued} messages wait in this session already; wait for one of them, or cancel")]
    Full {
        /// Number of messages that wait.
        queued: usize,
    },
    /// Another process has it, and did not answer.
    #[error("process {pid} runs this, and {why}{}", at(.address.as_deref()))]
    Elsewhere {
        /// Id of that process, on its own machine.
        pid: i64,
        /// Address at which that process serves the API, if it does.
        address: Option<String>,
        /// What that process did not do.
        why: &'static str,
        /// Whether it took no request: it may hang.
        is_silent: bool,
    },
    /// Another process that has it says no.
    #[error("{}", .0.message)]
    Remote(RemoteError),
    /// The host is going down.
    #[error("the host is going down and begins nothing any more")]
    Closing,
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A saved auth.
    #[error(transparent)]
    Auth(AuthError),
    /// The store.
    #[error(transparent)]
    Store(StoreError),
}

impl ManagerError {
    /// Whether what was named is not there.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::Remote(error) => error.kind == RemoteErrorKind::NotFound,
            _ => false,
        }
    }

    /// Whether the session has gone, or goes, to another process: who asks again finds it there.
    pub(super) fn is_session_moved(&self) -> bool {
        match self {
            Self::Remote(error) => matches!(
                error.kind,
                RemoteErrorKind::Closing | RemoteErrorKind::Moved
            ),
            Self::Store(error) => matches!(error, StoreError::SessionBusy { .. }),
            _ => false,
        }
    }
}

fn at(address: Option<&str>) -> String {
    match address {
        Some(address) => format!("; ask it itself, at {address}"),
        None => "; try again, or do it where it runs".to_owned(),
    }
}

impl From<StoreError> for ManagerError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound { kind, id } => Self::NotFound { kind, id },
            StoreError::NoThread { thread } => Self::NotFound {
                kind: "thread",
                id: thread.to_string(),
            },
            error => Self::Store(error),
        }
    }
}

impl From<CompactError> for ManagerError {
    fn from(error: CompactError) -> Self {
        Self::Session(error.into())
    }
}

impl From<AuthError> for ManagerError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Store(error) => error.into(),
            error => Self::Auth(error),
        }
    }
}

impl From<SpecError> for ManagerError {
    fn from(error: SpecError) -> Self {
        Self::Invalid {
            field: Some("tools"),
            message: error.to_string(),
        }
    }
}
