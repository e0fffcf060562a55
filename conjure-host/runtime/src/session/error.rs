//! Why there is no session, and why a turn of one gave no answer.

use conjure_config::SpecError;
use conjure_core::log;
use conjure_providers::UnusableProvider;
use conjure_store::StoreError;

use super::compaction::{CompactError, UnfoldError};
use crate::backend::ToolboxError;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The session file.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The provider.
    #[error("{message}")]
    Provider {
        /// What, and what to do.
        message: String,
    },
    /// The tools.
    #[error(transparent)]
    Tools(ToolboxError),
    /// The thread.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A compaction that is to be taken back.
    #[error(transparent)]
    Unfold(#[from] UnfoldError),
    /// A summary that was asked for.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// A directory.
    #[error("the directory `{path}` cannot be used: {reason}")]
    Directory {
        /// The path as it was given.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
}

impl From<UnusableProvider> for SessionError {
    fn from(error: UnusableProvider) -> Self {
        Self::Provider {
            message: error.message,
        }
    }
}

/// Why a turn gave no answer. The history is kept in every case.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChatError {
    /// A limit ended it.
    #[error(
        "the turn reached the limit {}; the history is kept, go on with another message",
        log::describe_limit(.limit, *.value)
    )]
    Limit {
        /// The name of the limit.
        limit: String,
        /// Value of the limit.
        value: u64,
    },
    /// The provider failed.
    #[error("{error}")]
    Provider {
        /// What failed, why, and what to do.
        error: String,
        /// A word for programs.
        kind: String,
    },
    /// Somebody ended it.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The session ended.
    #[error("the session ended{}", reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    Ended {
        /// Why, when it was not asked for.
        reason: Option<String>,
    },
}
