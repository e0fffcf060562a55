//! How a session's turns end, by themselves or because somebody wants it, and what is noted of them.

use std::time::Duration;

use tokio::time::Instant;

use super::ManagerState;
use super::actor::{OpeningTurn, SavedSessionActor};
use super::actor_thread::thread_happening;
use super::requests::CancelRequest;
use super::running::answer;
use super::runs::end_of;
use super::turn_queue::QueuedTurn;
use crate::session::{ChatError, TurnResult};
use conjure_store::{RunState, RunUsage, ThreadId};

/// How long a turn that is ended may take to come to its end.
const ENDING: Duration = Duration::from_secs(10);

impl SavedSessionActor {
    pub(super) async fn turn_over(&mut self, answer: TurnResult) {
        self.see_shown();
        let Some(running) = self.running.take() else {
            return;
        };
        self.used = Instant::now();
        if let Some(open) = &self.open {
            open.live.set_run(None);
        }
        let (state, error) = end_of(&answer);
        let (id, spent) = (&running.turn_id, running.spent);
        let ended = self.inner.end_run(id, state, Some(spent), error.as_deref());
        ended.await;
        self.inner.note_latest(&self.id, &running.thread).await;
        // One that had its answer before it was stopped is over.
        if running.goes_on && state == RunState::Cancelled {
            let turn = QueuedTurn {
                turn_id: uuid::Uuid::now_v7().to_string(),
                thread: running.thread,
                message: None,
                terms: running.terms,
            };
            if let Err(error) = self.waiting.add(turn, true).await {
                tracing::error!("the turn does not go on with its new settings: {error}");
            }
        }
    }

    pub(super) async fn cancel(&mut self, what: CancelRequest) {
        if what.drop_queued {
            let (state, why) = (RunState::Cancelled, "it was dropped before it began");
            self.waiting.drop_all(state, why).await;
        }
        if let Some(only) = &what.turn {
            if self.waiting.cancel(only).await {
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
            let ended = self
                .inner
                .end_run(&turn.turn_id, RunState::Cancelled, None, why);
            ended.await;
        }
        if let Some(running) = &mut self.running {
            running.goes_on = false;
        }
        // Also where no turn runs: a summary that somebody asked for may be on its way.
        if let Some(open) = &mut self.open {
            open.thread.cancel(false);
        }
    }

    /// Somebody came while an unattended turn runs: calls that ask wait for them from now on. Or
    /// the last one has left, and what waits is denied.
    pub(super) fn attended(&mut self, is_there: bool) {
        if let (Some(open), Some(running)) = (&mut self.open, &self.running) {
            let mode = self.inner.approval_mode(is_there);
            open.thread.set_terms(running.terms.rules(), mode);
        }
    }

    pub(super) fn has_open(&self, thread: &ThreadId) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.is_on(thread))
    }

    /// Ends what runs on a thread or waits for it, and closes it.
    pub(super) async fn leave_thread(&mut self, thread: &ThreadId) {
        self.waiting.drop_thread(thread).await;
        let opens = self.opening.as_ref();
        if self.has_open(thread) || opens.is_some_and(|opening| &opening.turn.thread == thread) {
            self.leave().await;
        }
    }

    /// Ends the turn that runs, what came so far is kept, and closes the thread.
    pub(super) async fn leave(&mut self) {
        self.cancel(CancelRequest::default()).await;
        if self.running.is_some() {
            let answered = tokio::time::timeout(ENDING, self.answered()).await;
            let answer = answered.unwrap_or_else(|_| {
                Err(ChatError::Ended {
                    reason: Some("it was ended and gave no answer in time".to_owned()),
                })
            });
            self.turn_over(answer).await;
        }
        self.close().await;
    }

    /// Lets the turn that runs come to its end.
    async fn answered(&mut self) -> TurnResult {
        loop {
            let Some(running) = &mut self.running else {
                return Err(ChatError::Ended { reason: None });
            };
            tokio::select! {
                biased;
                answer = answer(&mut running.answer) => return answer,
                happening = thread_happening(&mut self.open) => {
                    self.thread_happened(happening).await;
                }
            }
        }
    }

    /// Closes the thread, if it is open.
    pub(super) async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let live = open.end(None).await;
            self.inner.closed(&live);
        }
    }
}

impl ManagerState {
    pub(super) async fn end_run(
        &self,
        id: &str,
        state: RunState,
        spent: Option<RunUsage>,
        error: Option<&str>,
    ) {
        if let Err(failed) = self.store.end_run(id, state, spent, error).await {
            tracing::error!(run = id, "its end was not noted: {failed}");
        }
    }
}
