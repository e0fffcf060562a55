//! The turns that wait for their session, in memory and in the store.

use std::collections::VecDeque;
use std::sync::Arc;

use conjure_core::chat::Message;

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
                message: format!("what holds for the turn cannot be written: {error}"),
            })?;
        let run = run.with_terms(terms);
        self.manager.store.begin_run(run).await?;
        if first {
            self.turns.push_front(turn);
        } else {
            self.turns.push_back(turn);
        }
        Ok(())
    }

    /// Takes over what waited in a process that is gone, ahead of what was said since.
    pub(super) async fn adopt(&mut self) {
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
            let terms = run.terms.as_deref().map(serde_json::from_str);
            match terms.transpose() {
                Ok(terms) => self.turns.push_front(QueuedTurn {
                    turn_id: run.id,
                    thread: run.thread,
                    message: run.message,
                    terms: terms.unwrap_or_default(),
                }),
                // Rules that are not understood may be some that deny.
                Err(error) => {
                    let why = format!("what holds for it is not understood: {error}");
                    let state = RunState::Failed;
                    self.manager.end_run(&run.id, state, None, Some(&why)).await;
                }
            }
        }
    }

    /// Ends a turn that waits. Whether there is one.
    pub(super) async fn cancel(&mut self, turn_id: &str) -> bool {
        let turn = self.position(turn_id).and_then(|at| self.turns.remove(at));
        match turn {
            Some(turn) => {
                let why = "it was cancelled before it began";
                self.ended(&turn, RunState::Cancelled, why).await;
                true
            }
            None => false,
        }
    }

    /// Ends what waits for a thread.
    pub(super) async fn drop_thread(&mut self, thread: &ThreadId) {
        let (gone, kept): (Vec<QueuedTurn>, Vec<QueuedTurn>) = std::mem::take(&mut self.turns)
            .into_iter()
            .partition(|turn| &turn.thread == thread);
        self.turns = kept.into();
        for turn in gone {
            let why = "its thread was cleared before it began";
            self.ended(&turn, RunState::Cancelled, why).await;
        }
    }

    /// Ends all that waits.
    pub(super) async fn drop_all(&mut self, state: RunState, why: &str) {
        for turn in std::mem::take(&mut self.turns) {
            self.ended(&turn, state, why).await;
        }
    }

    async fn ended(&self, turn: &QueuedTurn, state: RunState, why: &str) {
        let ended = self.manager.end_run(&turn.turn_id, state, None, Some(why));
        ended.await;
    }
}
