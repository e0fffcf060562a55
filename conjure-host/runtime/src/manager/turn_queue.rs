//! The turns that wait for their session, in memory and in the store.

use std::collections::VecDeque;
use std::sync::Arc;

use conjure_core::chat::Message;

use super::adoption::CANCELLED_WAITING;
use super::changes::SessionChange;
use super::requests::TurnOrigin;
use super::terms::TurnTerms;
use super::{ManagerError, ManagerState};
use conjure_store::{Run, RunState, ThreadId};

/// A turn that waits for its session.
pub(super) struct QueuedTurn {
    pub(super) turn_id: String,
    pub(super) thread: ThreadId,
    /// What is said; where there is nothing the model goes on.
    pub(super) message: Option<Message>,
    pub(super) terms: Box<TurnTerms>,
    /// Process whose client asked for the turn.
    pub(super) origin: TurnOrigin,
}

/// The turns of one session that wait, in their order.
pub(super) struct TurnQueue {
    manager: Arc<ManagerState>,
    session: String,
    turns: VecDeque<QueuedTurn>,
}

impl TurnQueue {
    pub(super) fn new(manager: Arc<ManagerState>, session: &str) -> Self {
        Self {
            manager,
            session: session.to_owned(),
            turns: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    /// How many come before this turn.
    pub(super) fn position(&self, turn_id: &str) -> Option<usize> {
        self.turns.iter().position(|turn| turn.turn_id == turn_id)
    }

    /// The next turn.
    pub(super) fn pop(&mut self) -> Option<QueuedTurn> {
        let turn = self.turns.pop_front();
        if self.turns.is_empty() {
            self.turns.shrink_to_fit();
        }
        turn
    }

    /// Has a turn that was to begin wait again, before all others.
    pub(super) fn put_back(&mut self, turn: QueuedTurn) {
        self.turns.push_front(turn);
    }

    /// Adds a turn, behind all others or before them.
    ///
    /// # Errors
    /// The store's; then it does not wait.
    pub(super) async fn add(&mut self, turn: QueuedTurn, first: bool) -> Result<(), ManagerError> {
        let run = Run::new(
            &turn.turn_id,
            Some(self.session.clone()),
            turn.thread.clone(),
        );
        let run = run.with_message(turn.message.clone());
        let terms = (*turn.terms != TurnTerms::default())
            .then(|| serde_json::to_string(&turn.terms))
            .transpose()
            .map_err(|error| ManagerError::Invalid {
                field: None,
                message: format!("what holds for the turn cannot be written: {error}"),
            })?;
        let run = run.with_terms(terms);
        // It waits before it is written, so that it is not forgotten where this is given up midway.
        let id = turn.turn_id.clone();
        if first {
            self.turns.push_front(turn);
        } else {
            self.turns.push_back(turn);
        }
        let written = self.manager.store.begin_run(run).await;
        if written.is_err() {
            self.turns.retain(|turn| turn.turn_id != id);
        }
        written?;
        Ok(())
    }

    /// Takes over what waited in a process that is gone, ahead of what was said since. A process that
    /// goes down takes over nothing.
    pub(super) async fn adopt(&mut self) {
        if self.manager.closing.is_cancelled() {
            return;
        }
        let adopted = match self.manager.store.adopt_runs(&self.session).await {
            Ok(adopted) => adopted,
            Err(error) => {
                tracing::warn!(
                    session = self.session,
                    "what waited in a process that is gone is not taken over yet: {error}"
                );
                return;
            }
        };
        for run in adopted.into_iter().rev() {
            tracing::info!(run = run.id, "it waited in a process that is gone");
            let origin = match self.manager.own_turns.has(&run.id) {
                true => TurnOrigin::ThisProcess,
                false => TurnOrigin::OtherProcess,
            };
            let terms = run.terms.as_deref().map(serde_json::from_str);
            match terms.transpose() {
                Ok(terms) => self.turns.push_front(QueuedTurn {
                    turn_id: run.id,
                    thread: run.thread,
                    message: run.message,
                    terms: terms.unwrap_or_default(),
                    origin,
                }),
                // Rules that are not understood may be some that deny.
                Err(error) => {
                    let why = format!("what holds for it is not understood: {error}");
                    let state = RunState::Failed;
                    self.manager.end_run(&run.id, state, None, Some(&why)).await;
                    self.manager.free_files(&run.id, run.message.as_ref());
                }
            }
        }
    }

    /// Says something else in a turn that waits, in its place. Whether it waited still.
    ///
    /// # Errors
    /// The store's; then what was said stays.
    pub(super) async fn reword(
        &mut self,
        turn_id: &str,
        message: Message,
    ) -> Result<bool, ManagerError> {
        let is_it = |turn: &QueuedTurn| turn.turn_id == turn_id;
        if !self.turns.iter().any(is_it) {
            // It may have waited in a process that is gone.
            self.adopt().await;
        }
        let Some(turn) = self.turns.iter_mut().find(|turn| is_it(turn)) else {
            return Ok(false);
        };
        if !self.manager.store.reword_run(turn_id, &message).await? {
            return Ok(false);
        }
        turn.message = Some(message);
        self.manager.states.notify(SessionChange::Saved {
            session: self.session.clone(),
        });
        Ok(true)
    }

    /// Ends a turn that waits. Whether there is one.
    pub(super) async fn cancel(&mut self, turn_id: &str) -> bool {
        let is_there = self.position(turn_id).is_some();
        if is_there {
            self.end(turn_id, RunState::Cancelled, CANCELLED_WAITING)
                .await;
        }
        is_there
    }

    /// Ends what waits for a thread.
    pub(super) async fn drop_thread(&mut self, thread: &ThreadId) {
        let of_thread = |turn: &&QueuedTurn| &turn.thread == thread;
        while let Some(turn) = self.turns.iter().find(of_thread) {
            let id = turn.turn_id.clone();
            let why = "its thread was cleared before it began";
            self.end(&id, RunState::Cancelled, why).await;
        }
    }

    /// Ends all that waits.
    pub(super) async fn drop_all(&mut self, state: RunState, why: &str) {
        while let Some(turn) = self.turns.front() {
            let id = turn.turn_id.clone();
            self.end(&id, state, why).await;
        }
        self.turns.shrink_to_fit();
    }

    /// Ends what clients of this process said; what other processes asked for waits on.
    pub(super) async fn drop_own(&mut self, state: RunState, why: &str) {
        let is_own = |turn: &&QueuedTurn| turn.origin == TurnOrigin::ThisProcess;
        while let Some(turn) = self.turns.iter().find(is_own) {
            let id = turn.turn_id.clone();
            self.end(&id, state, why).await;
        }
    }

    /// Whether anything waits that clients of this process said.
    pub(super) fn has_own(&self) -> bool {
        self.turns
            .iter()
            .any(|turn| turn.origin == TurnOrigin::ThisProcess)
    }

    /// Leaves what waits to other processes. Where the store does not take that, it waits on, and is
    /// theirs once this process is gone.
    pub(super) async fn release(&mut self) {
        if self.turns.is_empty() {
            return;
        }
        let ids = self.turns.iter().map(|turn| turn.turn_id.clone());
        let ids: Vec<String> = ids.collect();
        match self.manager.store.release_runs(&ids).await {
            Ok(()) => self.turns.clear(),
            Err(error) => {
                let session = &self.session;
                tracing::warn!(session, "what waits in it is not left to others: {error}");
            }
        }
    }

    /// Ends one, which waits until that is noted.
    async fn end(&mut self, turn_id: &str, state: RunState, why: &str) {
        let ended = self.manager.end_run(turn_id, state, None, Some(why));
        ended.await;
        if let Some(turn) = self.turns.iter().find(|turn| turn.turn_id == turn_id) {
            self.manager.free_files(turn_id, turn.message.as_ref());
        }
        self.turns.retain(|turn| turn.turn_id != turn_id);
    }
}
