//! How a session's turns end, by themselves or because somebody wants it, and what is noted of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::actor::{OpeningTurn, QueuedTurn, SavedSessionActor};
use super::requests::CancelRequest;
use super::runs::end_of;
use crate::session::{ChatError, TurnSummary};
use conjure_store::{RunState, RunUsage, ThreadId};

/// How long a turn that is ended may take to come to its end.
const ENDING: Duration = Duration::from_secs(10);

impl SavedSessionActor {
    /// The session ended by itself; the answer of its turn says why.
    pub(super) async fn ended(&mut self) {
        if self.running.is_none() {
            self.close().await;
        } else if let Some(open) = &mut self.open {
            open.is_outdated = true;
        }
    }

    pub(super) async fn turn_over(&mut self, answer: Result<TurnSummary, ChatError>) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        self.used = Instant::now();
        if let Some(open) = &mut self.open {
            while let Some(stamped) = open.events.try_next() {
                running.see(&stamped.event);
            }
            open.opened.live.set_run(None);
        }
        let (state, error) = end_of(&answer);
        let (id, spent) = (&running.turn_id, running.spent);
        self.end_run(id, state, Some(spent), error.as_deref()).await;
        self.inner.note_latest(&self.id, &running.thread).await;
        // One that had its answer before it was stopped is over.
        if running.goes_on && state == RunState::Cancelled {
            let turn = QueuedTurn {
                turn_id: uuid::Uuid::now_v7().to_string(),
                thread: running.thread,
                message: None,
                terms: running.terms,
            };
            if let Err(error) = self.enqueue(turn, true).await {
                tracing::error!("the turn does not go on with its new settings: {error}");
            }
        }
    }

    pub(super) async fn cancel(&mut self, what: CancelRequest) {
        if what.drop_queued {
            self.drop_waiting(RunState::Cancelled, "it was dropped before it began")
                .await;
        }
        if let Some(only) = &what.turn {
            if let Some(at) = self.waiting.iter().position(|turn| turn.turn_id == *only) {
                self.waiting.remove(at);
                let why = Some("it was cancelled before it began");
                self.end_run(only, RunState::Cancelled, None, why).await;
                return;
            }
            let opens = self.opening.as_ref().map(|opening| &opening.turn.turn_id);
            let runs = self.running.as_ref().map(|running| &running.turn_id);
            if opens != Some(only) && runs != Some(only) {
                return;
            }
        }
        if let Some(OpeningTurn { turn, .. }) = self.opening.take() {
            let why = Some("it was cancelled before it began");
            self.end_run(&turn.turn_id, RunState::Cancelled, None, why)
                .await;
        }
        if let Some(running) = &mut self.running {
            running.goes_on = false;
        }
        // Also where no turn runs: a summary that somebody asked for may be on its way.
        if let Some(open) = &self.open {
            open.opened.live.session.cancel(false).await;
        }
    }

    /// Somebody came while an unattended turn runs: calls that ask wait for them from now on. Or
    /// the last one has left, and what waits is denied.
    pub(super) async fn attended(&mut self, is_there: bool) {
        if let (Some(open), Some(running)) = (&self.open, &self.running) {
            let mode = self.inner.approval_mode(is_there);
            let session = Arc::clone(&open.opened.live.session);
            session.terms(running.terms.rules(), mode).await;
        }
    }

    pub(super) fn has_open(&self, thread: &ThreadId) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.opened.live.session.thread() == thread)
    }

    /// Ends what runs on a thread or waits for it, and closes it.
    pub(super) async fn leave_thread(&mut self, thread: &ThreadId) {
        let waiting = std::mem::take(&mut self.waiting);
        let (gone, kept): (Vec<QueuedTurn>, Vec<QueuedTurn>) =
            waiting.into_iter().partition(|turn| &turn.thread == thread);
        self.waiting = kept.into();
        for turn in gone {
            let why = Some("its thread was cleared before it began");
            self.end_run(&turn.turn_id, RunState::Cancelled, None, why)
                .await;
        }
        let opens = self.opening.as_ref();
        if self.has_open(thread) || opens.is_some_and(|opening| &opening.turn.thread == thread) {
            self.leave().await;
        }
    }

    /// Ends the turn that runs, what came so far is kept, and closes the thread.
    pub(super) async fn leave(&mut self) {
        self.cancel(CancelRequest::default()).await;
        if let Some(running) = &mut self.running {
            let answer = match tokio::time::timeout(ENDING, &mut running.answer).await {
                Ok(Ok(answer)) => answer,
                _ => Err(ChatError::Ended {
                    reason: Some("it was ended and gave no answer in time".to_owned()),
                }),
            };
            self.turn_over(answer).await;
        }
        self.close().await;
    }

    /// Closes the thread, if it is open.
    pub(super) async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let live = open.opened.live;
            live.session.end().await;
            self.inner.closed(&live);
        }
    }

    pub(super) async fn drop_waiting(&mut self, state: RunState, why: &str) {
        for turn in std::mem::take(&mut self.waiting) {
            self.end_run(&turn.turn_id, state, None, Some(why)).await;
        }
    }

    pub(super) async fn end_run(
        &self,
        id: &str,
        state: RunState,
        spent: Option<RunUsage>,
        error: Option<&str>,
    ) {
        if let Err(failed) = self.inner.store.end_run(id, state, spent, error).await {
            tracing::error!(run = id, "its end was not noted: {failed}");
        }
    }
}
