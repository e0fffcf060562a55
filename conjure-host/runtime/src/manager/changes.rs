//! State of the sessions, for lists that stay up to date. What happens in this process is told as it
//! does; what others do, by those who look for it while anybody follows.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use tokio::sync::{broadcast, watch};

use super::lock;
use super::view::SessionState;
use conjure_store::ThreadId;

/// Changes that a slow follower may miss before it has to look again.
const CAPACITY: usize = 1024;
/// Time to wait for the store to tell the state of the sessions.
const READY: Duration = Duration::from_secs(1);

/// A change of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum SessionChange {
    /// The state of the session is another one.
    State {
        /// The session.
        session: String,
        /// State of the session now.
        state: SessionState,
        /// The turn that runs.
        turn: Option<String>,
        /// The thread that is open.
        thread: Option<ThreadId>,
        /// How many follow-ups wait.
        queued: usize,
    },
    /// The session was made, or its settings, its thread or what waits in it are other ones.
    Saved {
        /// The session.
        session: String,
    },
    /// The session was deleted.
    Deleted {
        /// The session.
        session: String,
    },
    /// A thread was named, cleared or removed. What another program does is told of threads that
    /// somebody follows.
    Thread {
        /// The thread.
        thread: ThreadId,
        /// Newest label of the thread; empty where it has none.
        label: String,
        /// The last entry that was deleted when it was cleared; 0 where it never was.
        cleared_upto: u64,
        /// Whether the thread is there no more.
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

/// Sessions that this process saved, each with when it was, or deleted.
pub(super) type OwnSaves = HashMap<String, Option<i64>>;

/// State of each session, and the followers who are told of changes.
pub(super) struct States {
    statuses: Mutex<HashMap<String, ActorStatus>>,
    changes: broadcast::Sender<SessionChange>,
    /// Saves that were told since the store was last looked at for followers.
    own_saves: Mutex<OwnSaves>,
    /// How many follow all sessions.
    followers: watch::Sender<usize>,
    /// Whether the state of other processes' sessions is known for them.
    watching: watch::Sender<bool>,
}

impl Default for States {
    fn default() -> Self {
        Self {
            statuses: Mutex::default(),
            changes: broadcast::Sender::new(CAPACITY),
            own_saves: Mutex::default(),
            followers: watch::Sender::new(0),
            watching: watch::Sender::new(false),
        }
    }
}

impl States {
    pub(super) fn of(&self, session: &str) -> ActorStatus {
        lock(&self.statuses)
            .get(session)
            .cloned()
            .unwrap_or_default()
    }

    /// Whether something goes on in a session here.
    pub(super) fn is_known(&self, session: &str) -> bool {
        lock(&self.statuses).contains_key(session)
    }

    /// How many sessions have a turn that runs.
    pub(super) fn running(&self) -> usize {
        let known = lock(&self.statuses);
        let runs = |status: &&ActorStatus| status.state != SessionState::Idle;
        known.values().filter(runs).count()
    }

    pub(super) fn set(&self, session: &str, status: ActorStatus) {
        {
            let mut known = lock(&self.statuses);
            if known.get(session).cloned().unwrap_or_default() == status {
                return;
            }
            if status == ActorStatus::default() {
                known.remove(session);
            } else {
                known.insert(session.to_owned(), status.clone());
            }
        }
        self.notify(SessionChange::State {
            session: session.to_owned(),
            state: status.state,
            turn: status.turn,
            thread: status.thread,
            queued: status.queued,
        });
    }

    pub(super) fn notify(&self, change: SessionChange) {
        // Nobody need follow.
        let _ = self.changes.send(change);
    }

    /// Says that this process saved a session, which it did at this time.
    pub(super) fn notify_saved(&self, session: &str, updated_at_ms: i64) {
        self.note_own_save(session, Some(updated_at_ms));
        self.notify(SessionChange::Saved {
            session: session.to_owned(),
        });
    }

    /// Says that this process deleted a session.
    pub(super) fn notify_deleted(&self, session: &str) {
        self.note_own_save(session, None);
        self.notify(SessionChange::Deleted {
            session: session.to_owned(),
        });
    }

    /// Whoever looks at the store sees it there too, and is not to tell it again.
    fn note_own_save(&self, session: &str, saved: Option<i64>) {
        if self.is_followed() {
            lock(&self.own_saves).insert(session.to_owned(), saved);
        }
    }

    /// What this process saved and deleted since this was last asked.
    pub(super) fn take_own_saves(&self) -> OwnSaves {
        std::mem::take(&mut *lock(&self.own_saves))
    }

    /// Gives back what was taken too early: it is told apart the next time. What was saved since wins.
    pub(super) fn restore_own_saves(&self, taken: OwnSaves) {
        let mut own = lock(&self.own_saves);
        for (session, saved) in taken {
            own.entry(session).or_insert(saved);
        }
    }

    /// What happens here from now on.
    pub(super) fn follow(&self) -> SessionChangeStream {
        SessionChangeStream {
            receiver: self.changes.subscribe(),
            is_watching: self.watching.subscribe(),
            _follower: None,
        }
    }

    /// What happens here and in other processes from now on.
    fn follow_all(&self) -> SessionChangeStream {
        self.followers.send_modify(|followers| *followers += 1);
        SessionChangeStream {
            _follower: Some(ChangeFollower(self.followers.clone())),
            ..self.follow()
        }
    }

    /// Whether anybody follows what happens in other processes.
    pub(super) fn is_followed(&self) -> bool {
        *self.followers.borrow() > 0
    }

    /// Says whether what other processes do from here on is told.
    pub(super) fn set_watching(&self, is_looked: bool) {
        self.watching.send_replace(is_looked);
    }

    /// How many do, as they come and go.
    pub(super) fn followers(&self) -> watch::Receiver<usize> {
        self.followers.subscribe()
    }
}

/// Somebody who follows all sessions, until this is dropped.
struct ChangeFollower(watch::Sender<usize>);

impl Drop for ChangeFollower {
    fn drop(&mut self) {
        self.0
            .send_modify(|followers| *followers = followers.saturating_sub(1));
    }
}

/// The changes of all sessions, as they come.
pub struct SessionChangeStream {
    receiver: broadcast::Receiver<SessionChange>,
    is_watching: watch::Receiver<bool>,
    _follower: Option<ChangeFollower>,
}

impl SessionChangeStream {
    /// Waits until also changes by other processes are told from here on, or for a moment where the
    /// store cannot say how it is with them: whoever reads the sessions then misses nothing.
    #[boxed]
    pub async fn ready(&mut self) {
        let looked = self.is_watching.wait_for(|is_looked| *is_looked);
        let _ = tokio::time::timeout(READY, looked).await;
    }

    /// The next change; nothing when the manager is gone. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<SessionChange> {
        match self.receiver.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(SessionChange::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// Waits for a change of one session, or for one that was missed. Safe to drop and call again.
    #[boxed]
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
    /// Follows the sessions from now on. What another process does in one is told after a second or
    /// so.
    pub fn changes(&self) -> SessionChangeStream {
        let changes = self.inner.states.follow_all();
        self.inner.listening.notify_one();
        changes
    }

    /// Follows what this process does in sessions, from now on.
    pub fn own_changes(&self) -> SessionChangeStream {
        self.inner.states.follow()
    }

    /// How many sessions have a turn that runs.
    pub fn running(&self) -> usize {
        self.inner.states.running()
    }
}
