//! The states of an entry, as people and programs see them.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::Connection;
use crate::failure::AuthDemand;

/// The state of an entry.
#[derive(Clone)]
pub(crate) enum EntryState {
    /// No call needs the connection yet.
    Idle,
    /// Being connected, or waiting for its turn to be; with the try that failed before, if the last
    /// one did.
    Starting(Option<FailedAttempt>),
    /// Connected.
    Ready(Arc<Connection>),
    /// Waiting before the next try.
    Backoff {
        /// Number of tries that failed in a row.
        tries: u32,
        /// Length of this wait.
        wait: Duration,
        reason: String,
    },
    /// The server wants credentials that it does not have.
    NeedsAuth(AuthDemand),
    /// A failure that lasts until somebody changes something; tried again when it is wanted.
    Failed(String),
    /// There is no program that could be started; tried again when it is wanted.
    NoProgram(String),
    /// Over.
    Closed,
}

/// A try to connect that failed, as it is told while the next one goes on: that one may take long,
/// and until it is over nobody knows more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedAttempt {
    /// The name of the state that it ended in, which says what can be done.
    pub(crate) state: &'static str,
    /// Whether there was no program that could be started.
    no_program: bool,
    /// Whether the credentials did not give a right.
    lacks_right: bool,
    reason: String,
}

/// Why there is no connection for a call.
#[derive(Debug, Clone)]
pub(crate) struct NoConnection {
    pub(crate) reason: String,
    /// A login would help.
    pub(crate) needs_auth: bool,
}

impl EntryState {
    /// The error that a call gets in this state.
    pub(super) fn no_connection(&self) -> NoConnection {
        NoConnection {
            reason: self.reason(),
            needs_auth: matches!(self, Self::NeedsAuth(_)),
        }
    }

    /// The state of the next try, which remembers why the last one failed.
    pub(super) fn next_try(&self) -> Self {
        let why = match self {
            Self::Backoff { reason: why, .. } | Self::Failed(why) | Self::NoProgram(why) => {
                why.clone()
            }
            Self::NeedsAuth(wanted) => wanted.reason.clone(),
            Self::Starting(before) => return Self::Starting(before.clone()),
            Self::Idle | Self::Ready(_) | Self::Closed => return Self::Starting(None),
        };
        Self::Starting(Some(FailedAttempt {
            state: self.name(),
            no_program: self.has_no_program(),
            lacks_right: self.lacks_right(),
            reason: why,
        }))
    }

    /// The try that failed before the one that goes on.
    pub(super) fn failed_try(&self) -> Option<&FailedAttempt> {
        match self {
            Self::Starting(before) => before.as_ref(),
            _ => None,
        }
    }

    /// Whether there is no program that could be started, as far as is known.
    pub(super) fn has_no_program(&self) -> bool {
        match self {
            Self::NoProgram(_) => true,
            Self::Starting(Some(before)) => before.no_program,
            _ => false,
        }
    }

    /// Whether there are credentials that do not give a right that the server wants, as far as is
    /// known.
    pub(super) fn lacks_right(&self) -> bool {
        match self {
            Self::NeedsAuth(wanted) => wanted.lacks_scope,
            Self::Starting(Some(before)) => before.lacks_right,
            _ => false,
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
            Self::Starting(_) => "starting",
            Self::Ready(_) => "ready",
            Self::Backoff { .. } => "backoff",
            Self::NeedsAuth(_) => "needs_auth",
            Self::Failed(_) | Self::NoProgram(_) => "failed",
            Self::Closed => "closed",
        }
    }

    /// Reason why the connection is not ready.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Idle => "it was not started".to_owned(),
            Self::Starting(None) => "it is still starting".to_owned(),
            Self::Starting(Some(before)) => format!("{}; it is tried again", before.reason),
            Self::Ready(_) => String::new(),
            Self::Backoff {
                tries,
                wait,
                reason: why,
            } => {
                let times = if *tries == 1 {
                    "once".to_owned()
                } else {
                    format!("{tries} times")
                };
                format!("{why}; tried {times}, again in {wait:.1?}")
            }
            Self::NeedsAuth(wanted) => wanted.reason.clone(),
            Self::Failed(why) | Self::NoProgram(why) => why.clone(),
            Self::Closed => "it was closed".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_while_the_next_try_goes_on() {
        let failed = EntryState::Backoff {
            tries: 6,
            wait: Duration::from_secs(30),
            reason: "it ended before the handshake was over".to_owned(),
        };
        let again = failed.next_try();
        let why = "it ended before the handshake was over; it is tried again";
        assert_eq!((again.name(), again.reason().as_str()), ("starting", why));
        assert_eq!(
            again.failed_try().map(|before| before.state),
            Some("backoff")
        );
        assert_eq!(again.next_try().reason(), why, "it is not told twice");
        let absent = EntryState::NoProgram("there is none".to_owned()).next_try();
        assert!(absent.has_no_program());
        let wanted = |lacks_right: bool| AuthDemand {
            reason: "HTTP 401".to_owned(),
            lacks_scope: lacks_right,
        };
        let scope = EntryState::NeedsAuth(wanted(true)).next_try();
        assert!(scope.lacks_right() && scope.next_try().lacks_right());
        let login = EntryState::NeedsAuth(wanted(false)).next_try();
        assert!(!login.lacks_right());
        assert_eq!(
            login.failed_try().map(|before| before.state),
            Some("needs_auth")
        );
        assert!(!login.has_no_program());
        let first = EntryState::Idle.next_try();
        assert_eq!(first.reason(), "it is still starting");
        assert_eq!(first.failed_try(), None);
    }
}
