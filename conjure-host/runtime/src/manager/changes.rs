//! How it is with the sessions, for lists that stay up to date.

use std::collections::HashMap;
use std::sync::Mutex;

use serde::Serialize;
use tokio::sync::broadcast;

use super::lock;
use super::view::SessionState;
use conjure_store::ThreadId;

/// Changes that a slow follower may miss before it has to look again.
const KEPT: usize = 1024;

/// A change of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum SessionChange {
    /// How it is with it.
    State {
        /// The session.
        session: String,
        /// How it is now.
        state: SessionState,
        /// The turn that runs.
        turn: Option<String>,
        /// The thread that is open.
        thread: Option<ThreadId>,
        /// How many follow-ups wait.
        queued: usize,
    },
    /// It was made, or its settings, its thread or what waits in it are other ones.
    Saved {
        /// The session.
        session: String,
    },
    /// It was deleted.
    Deleted {
        /// The session.
        session: String,
    },
    /// A thread was named, cleared or removed. What another program does is told of threads that
    /// somebody follows.
    Thread {
        /// The thread.
        thread: ThreadId,
        /// Its newest label; empty where it has none.
        label: String,
        /// The last entry that was deleted when it was cleared; 0 where it never was.
        cleared_upto: u64,
        /// It is there no more.
        removed: bool,
    },
    /// Changes were missed: what is known of all sessions is to be read anew.
    Missed,
}

impl SessionChange {
    /// The session that changed; none where any may have.
    fn session(&self) -> Option<&str> {
        match self {
            Self::State { session, .. } | Self::Saved { session } | Self::Deleted { session } => {
                Some(session)
            }
            Self::Thread { .. } | Self::Missed => None,
        }
    }
}

/// The status of a session that has an actor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ActorStatus {
    pub(super) state: SessionState,
    pub(super) turn: Option<String>,
    pub(super) thread: Option<ThreadId>,
    pub(super) queued: usize,
}

/// How it is with each session.
pub(super) struct States {
    known: Mutex<HashMap<String, ActorStatus>>,
    told: broadcast::Sender<SessionChange>,
}

impl Default for States {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            told: broadcast::Sender::new(KEPT),
        }
    }
}

impl States {
    pub(super) fn of(&self, session: &str) -> ActorStatus {
        lock(&self.known).get(session).cloned().unwrap_or_default()
    }

    /// Whether something goes on in a session here.
    pub(super) fn is_known(&self, session: &str) -> bool {
        lock(&self.known).contains_key(session)
    }

    /// How many sessions have a turn that runs.
    pub(super) fn running(&self) -> usize {
        let known = lock(&self.known);
        let runs = |status: &&ActorStatus| status.state != SessionState::Idle;
        known.values().filter(runs).count()
    }

    pub(super) fn set(&self, session: &str, status: ActorStatus) {
        {
            let mut known = lock(&self.known);
            if known.get(session).cloned().unwrap_or_default() == status {
                return;
            }
            if status == ActorStatus::default() {
                known.remove(session);
            } else {
                known.insert(session.to_owned(), status.clone());
            }
        }
        self.tell(SessionChange::State {
            session: session.to_owned(),
            state: status.state,
            turn: status.turn,
            thread: status.thread,
            queued: status.queued,
        });
    }

    pub(super) fn tell(&self, change: SessionChange) {
        // Nobody need follow.
        let _ = self.told.send(change);
    }

    pub(super) fn follow(&self) -> SessionChangeStream {
        SessionChangeStream(self.told.subscribe())
    }
}

/// The changes of all sessions, as they come.
pub struct SessionChangeStream(broadcast::Receiver<SessionChange>);

impl SessionChangeStream {
    /// The next change; nothing when the manager is gone. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<SessionChange> {
        match self.0.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(SessionChange::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// Waits for a change of one session, or for one that was missed. Safe to drop and call again.
    pub async fn of(&mut self, session: &str) {
        while let Some(change) = self.next().await {
            let is_of = match &change {
                SessionChange::Thread { .. } => false,
                change => change.session().is_none_or(|changed| changed == session),
            };
            if is_of {
                return;
            }
        }
        // The manager is gone, and nothing changes any more.
        std::future::pending::<()>().await;
    }
}

impl super::Manager {
    /// Follows the sessions from now on.
    pub fn changes(&self) -> SessionChangeStream {
        self.inner.states.follow()
    }

    /// How many sessions have a turn that runs.
    pub fn running(&self) -> usize {
        self.inner.states.running()
    }
}
