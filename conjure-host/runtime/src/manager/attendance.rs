//! Whether a person is there who could decide about the calls of a session: somebody who follows
//! the events of its thread, or those of all sessions, in this process or in another one that
//! shares the store. Who has left is there no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::runs::wait_for_signal;
use super::terms::TurnTerms;
use super::{Manager, ManagerState};
use crate::session::ApprovalMode;
use conjure_store::ThreadId;

/// How often the store is asked where no word comes, and told where it was not.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);

/// How many follow a thread in this process, or with `None` all threads.
type Followers = BTreeMap<Option<ThreadId>, usize>;

/// Followers in this process, by thread.
#[derive(Debug, Clone)]
pub(super) struct Attendance(watch::Sender<Followers>);

impl Default for Attendance {
    fn default() -> Self {
        Self(watch::Sender::new(Followers::new()))
    }
}

impl Attendance {
    fn has_follower(&self, thread: &ThreadId) -> bool {
        let followers = self.0.borrow();
        followers.contains_key(&None) || followers.contains_key(&Some(thread.clone()))
    }

    /// Tells of each change.
    pub(super) fn changes(&self) -> watch::Receiver<Followers> {
        self.0.subscribe()
    }
}

/// A client that is there, until this is dropped.
#[derive(Debug)]
pub struct Attendant {
    attendance: Attendance,
    thread: Option<ThreadId>,
}

impl Drop for Attendant {
    fn drop(&mut self) {
        let thread = &self.thread;
        self.attendance.0.send_if_modified(|followers| {
            let left = followers.get(thread).map_or(0, |one| one.saturating_sub(1));
            if left > 0 {
                followers.insert(thread.clone(), left);
                return false;
            }
            followers.remove(thread).is_some()
        });
    }
}

impl Manager {
    /// Says that a client is there that can decide about calls and answer questions in a thread, or
    /// in all: what asks in an unattended turn of it waits for that client.
    pub fn attend(&self, thread: Option<&ThreadId>) -> Attendant {
        let (attendance, thread) = (self.inner.attendance.clone(), thread.cloned());
        attendance.0.send_if_modified(|followers| {
            let its = followers.entry(thread.clone()).or_default();
            *its += 1;
            *its == 1
        });
        Attendant { attendance, thread }
    }
}

impl ManagerState {
    async fn is_attended(&self, thread: &ThreadId) -> bool {
        if self.attendance.has_follower(thread) {
            return true;
        }
        let elsewhere = self.store.is_followed(thread).await;
        elsewhere.unwrap_or_else(|error| {
            tracing::warn!(%thread, "who follows it in other processes is not known: {error}");
            false
        })
    }

    /// What becomes of the calls of a turn that ask, and who watches over that: nobody where
    /// whoever said it can be asked.
    pub(super) async fn approvals(
        self: &Arc<Self>,
        terms: &TurnTerms,
        thread: &ThreadId,
    ) -> (ApprovalMode, Option<Presence>) {
        let presence = if terms.unattended {
            let watch = Presence::watch(Arc::clone(self), thread.clone(), terms.may_come);
            Some(watch.await)
        } else {
            None
        };
        let is_there = presence.as_ref().is_none_or(Presence::is_present);
        (self.approval_mode(is_there), presence)
    }

    pub(super) fn approval_mode(&self, is_there: bool) -> ApprovalMode {
        if is_there {
            ApprovalMode::Within(self.options.approval)
        } else {
            ApprovalMode::Unattended
        }
    }
}

/// Whether somebody is there while an unattended turn runs.
pub(super) struct Presence {
    presence: watch::Receiver<bool>,
    _watching: AbortOnDropHandle<()>,
}

impl Presence {
    /// From here on. Who `may_come` counts at first.
    async fn watch(inner: Arc<ManagerState>, thread: ThreadId, may_come: bool) -> Self {
        let is_there = may_come || inner.is_attended(&thread).await;
        let (tell, told) = watch::channel(is_there);
        let watching = tokio::spawn(track_presence(inner, thread, tell));
        Self {
            presence: told,
            _watching: AbortOnDropHandle::new(watching),
        }
    }

    fn is_present(&self) -> bool {
        *self.presence.borrow()
    }

    /// Waits until that is otherwise. Safe to drop and call again.
    pub(super) async fn changed(&mut self) -> bool {
        if self.presence.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.presence.borrow_and_update()
    }
}

/// Tells who comes at once, and who leaves a while later: a page that is loaded anew is back.
async fn track_presence(inner: Arc<ManagerState>, thread: ThreadId, tell: watch::Sender<bool>) {
    let mut signals = inner.store.signals();
    let mut changes = inner.attendance.changes();
    let mut left: Option<Instant> = None;
    loop {
        changes.mark_unchanged();
        let is_there = inner.is_attended(&thread).await;
        let was_there = *tell.borrow();
        let mut look = POLL_INTERVAL;
        if is_there || !was_there {
            left = None;
            tell.send_if_modified(|told| std::mem::replace(told, is_there) != is_there);
        } else {
            let gone = left.get_or_insert_with(Instant::now).elapsed();
            match inner.options.absence.checked_sub(gone) {
                Some(rest) if !rest.is_zero() => look = POLL_INTERVAL.min(rest),
                _ => drop(tell.send_replace(false)),
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = wait_for_signal(Some(&mut signals), &thread) => {}
            () = tokio::time::sleep(look) => {}
        }
    }
}

/// Tells other processes who is there in this one, until the manager is gone or goes down. What
/// could not be told is told later.
pub(super) async fn announce(
    inner: Weak<ManagerState>,
    mut changes: watch::Receiver<Followers>,
    closing: CancellationToken,
) {
    let mut told = BTreeSet::new();
    loop {
        let now: BTreeSet<Option<ThreadId>> = changes.borrow_and_update().keys().cloned().collect();
        let is_known = now.is_empty() && told.is_empty();
        if !is_known {
            let Some(inner) = inner.upgrade() else { return };
            match inner.store.set_followed(&now).await {
                Ok(()) => told.clone_from(&now),
                Err(error) => tracing::debug!("who follows here is not told: {error}"),
            }
        }
        let again = async {
            // A process that was taken for dead has another name since.
            if now.is_empty() && told.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(RENEW_INTERVAL).await;
        };
        tokio::select! {
            () = closing.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}
