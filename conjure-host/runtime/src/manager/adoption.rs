//! Turns that waited in a process that is gone, or that goes down: where they are taken over, and how
//! they are cancelled before anybody has.
//!
//! A server takes over whatever waits. A command line does where something was said in the session from
//! it: that is what somebody waits for there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::requests::ActorRequest;
use super::{Manager, ManagerError, ManagerState, lock};
use conjure_store::{Run, RunState};

/// Turns that are remembered, the newest ones.
const MAX_REMEMBERED: usize = 1_000;
/// Why a turn is over that was cancelled while it waited.
pub(super) const CANCELLED_WAITING: &str = "it was cancelled before it began";

/// The turns that were begun from this process, wherever they run or wait, each with its session.
#[derive(Debug, Default)]
pub(super) struct OwnTurns(Mutex<VecDeque<(String, String)>>);

impl OwnTurns {
    /// Remembers a turn of a session.
    pub(super) fn add(&self, session: &str, turn_id: &str) {
        let mut turns = lock(&self.0);
        if turns.len() >= MAX_REMEMBERED {
            turns.pop_front();
        }
        turns.push_back((session.to_owned(), turn_id.to_owned()));
    }

    /// Whether a turn was begun from here.
    pub(super) fn has(&self, turn_id: &str) -> bool {
        lock(&self.0).iter().any(|(_, turn)| turn == turn_id)
    }

    /// Whether any turn of a session was.
    fn has_session_turn(&self, session: &str) -> bool {
        lock(&self.0).iter().any(|(known, _)| known == session)
    }

    fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

impl ManagerState {
    /// Whether turns of a session that waited elsewhere are run here.
    fn adopts(&self, session: &str) -> bool {
        self.options.adopts || self.own_turns.has_session_turn(session)
    }

    /// Has the sessions that have turns which waited in a process that is gone take these over.
    pub(super) async fn adopt(self: &Arc<Self>) -> Result<(), ManagerError> {
        let is_wanted = self.options.adopts || !self.own_turns.is_empty();
        if !is_wanted || self.closing.is_cancelled() {
            return Ok(());
        }
        for session in self.store.orphaned_sessions().await? {
            if self.adopts(&session) {
                self.adopt_in(&session).await;
            }
        }
        Ok(())
    }

    /// Like [`Self::adopt`], for the session of a turn that somebody waits for here, as soon as it is
    /// known.
    pub(super) async fn adopt_awaited(self: &Arc<Self>, run: &Run) {
        let Some(session) = run.session_id.as_deref() else {
            return;
        };
        let is_wanted = run.state == RunState::Queued && self.adopts(session);
        if !is_wanted || self.closing.is_cancelled() {
            return;
        }
        match self.store.has_orphans(session).await {
            Ok(true) => self.adopt_in(session).await,
            Ok(false) => {}
            Err(error) => tracing::debug!(session, "who has its turns is not known: {error}"),
        }
    }

    async fn adopt_in(self: &Arc<Self>, session: &str) {
        match self.actor(session).await {
            Ok(actor) => drop(actor.send(Box::new(ActorRequest::Adopt)).await),
            Err(error) => tracing::warn!(session, "what waits in it is not begun: {error}"),
        }
    }
}

impl Manager {
    /// Cancels a turn of a session that waits in a process that is gone, or that has let go of it.
    /// Whether nothing is left to be cancelled: it waits no more, here or elsewhere.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`] when another session's turn has this id, and the store's.
    pub(super) async fn cancel_orphan(
        &self,
        session: &str,
        turn_id: &str,
    ) -> Result<bool, ManagerError> {
        let Some(run) = self.find_run(turn_id).await? else {
            return Ok(true);
        };
        if run.state != RunState::Queued {
            return Ok(true);
        }
        if run.session_id.as_deref() != Some(session) {
            return Err(ManagerError::NotFound {
                kind: "turn",
                id: turn_id.to_owned(),
            });
        }
        let store = &self.inner.store;
        let cancelled = store.cancel_orphan(turn_id, CANCELLED_WAITING).await?;
        if let Some(run) = &cancelled {
            self.inner.free_files(&run.id, run.message.as_ref());
        }
        Ok(cancelled.is_some())
    }

    /// Whether a turn that `owner` had when it was asked about waits, and not there: it goes from one
    /// process to another, and whoever was asked had it no more, or not yet.
    pub(super) async fn turn_has_moved(
        &self,
        turn_id: &str,
        owner: Option<&str>,
    ) -> Result<bool, ManagerError> {
        let run = self.find_run(turn_id).await?;
        let Some(run) = run.filter(|run| run.state == RunState::Queued) else {
            return Ok(false);
        };
        Ok(owner != Some(run.owner.as_str()) || self.inner.store.is_orphan(turn_id).await?)
    }

    /// A turn, where there is one of this id.
    pub(super) async fn find_run(&self, turn_id: &str) -> Result<Option<Run>, ManagerError> {
        match self.run(turn_id).await {
            Ok(run) => Ok(Some(run)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_turns_are_remembered_with_their_sessions() {
        let turns = OwnTurns::default();
        assert!(turns.is_empty());
        for number in 0..=MAX_REMEMBERED {
            turns.add(&format!("session-{}", number / 2), &number.to_string());
        }
        assert!(!turns.has("0") && turns.has("1") && turns.has_session_turn("session-0"));
        turns.add("last", "last");
        assert!(!turns.has_session_turn("session-0") && turns.has_session_turn("last"));
        assert_eq!(lock(&turns.0).len(), MAX_REMEMBERED);
    }
}
