//! The states of an entry, as people and programs see them.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::Connection;

/// The state of an entry.
#[derive(Clone)]
pub(crate) enum EntryState {
    /// Not wanted yet.
    Idle,
    /// Being connected, or waiting for its turn to be.
    Starting,
    /// Connected.
    Ready(Arc<Connection>),
    /// Waiting before the next try.
    Backoff {
        /// How many tries failed in a row.
        tries: u32,
        /// How long this wait is.
        wait: Duration,
        why: String,
    },
    /// The server wants credentials that it does not have.
    NeedsAuth(String),
    /// It will not work until somebody changes something; tried again when it is wanted.
    Failed(String),
    /// There is no program that could be started; tried again when it is wanted.
    NoProgram(String),
    /// Over.
    Closed,
}

/// Why there is no connection for a call.
#[derive(Debug, Clone)]
pub(crate) struct NotThere {
    pub(crate) why: String,
    /// A login would help.
    pub(crate) needs_auth: bool,
}

impl EntryState {
    /// What it means for a call.
    pub(super) fn not_there(&self) -> NotThere {
        NotThere {
            why: self.why(),
            needs_auth: matches!(self, Self::NeedsAuth(_)),
        }
    }

    /// Whether somebody must change something first.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(
            self,
            Self::NeedsAuth(_) | Self::Failed(_) | Self::NoProgram(_)
        )
    }

    /// The state's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Ready(_) => "ready",
            Self::Backoff { .. } => "backoff",
            Self::NeedsAuth(_) => "needs_auth",
            Self::Failed(_) | Self::NoProgram(_) => "failed",
            Self::Closed => "closed",
        }
    }

    /// Why it is not ready.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Idle => "it was not started".to_owned(),
            Self::Starting => "it is still starting".to_owned(),
            Self::Ready(_) => String::new(),
            Self::Backoff { tries, wait, why } => {
                let times = if *tries == 1 {
                    "once".to_owned()
                } else {
                    format!("{tries} times")
                };
                format!("{why}; tried {times}, again in {wait:.1?}")
            }
            Self::NeedsAuth(why) | Self::Failed(why) | Self::NoProgram(why) => why.clone(),
            Self::Closed => "it was closed".to_owned(),
        }
    }
}
