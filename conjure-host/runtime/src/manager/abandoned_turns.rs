//! Turns that never began: what was said in them is kept in their thread, with why nothing came of
//! it.

use std::collections::BTreeSet;

use conjure_core::chat::{ErrorEvent, Event, Message, Usage};
use conjure_core::label::label;
use conjure_core::log::{Entry, EntryBody, TurnOutcome};

use super::run_ends::RunEnd;
use super::turn_queue::QueuedTurn;
use super::{ManagerState, lock};
use crate::session::Recorder;
use conjure_store::{Run, RunState, StoreError, ThreadId};

/// Runs that are looked at at once.
const PAGE: u64 = 100;

impl ManagerState {
    /// Writes a turn that could not begin.
    pub(super) async fn record_failure(
        &self,
        thread: &ThreadId,
        turn_id: &str,
        message: Option<Message>,
        error: &str,
    ) -> Result<(), StoreError> {
        let mut recorder = Recorder::open(&self.store, thread).await?;
        record_failed_turn(&mut recorder, turn_id, message, failed(error), error);
        recorder.commit().await?;
        let name = label(recorder.entries(), &BTreeSet::new());
        self.name_thread(thread, name).await;
        self.thread_watches.notify(thread);
        Ok(())
    }

    /// Writes what was said in turns whose process ended before they began. One whose thread
    /// somebody writes now is written another time.
    pub(super) async fn record_unbegun(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let runs = self.store.unwritten_runs(after.as_ref(), PAGE).await?;
            let Some(last) = runs.last() else {
                return Ok(());
            };
            after = Some(last.cursor());
            for run in runs {
                // Its session closes it some time.
                if lock(&self.active_threads).contains_key(&run.thread) || run.message.is_none() {
                    continue;
                }
                match self.record_unbegun_run(&run).await {
                    Ok(()) | Err(StoreError::NoThread { .. }) => {
                        self.store.mark_run_written(&run.id).await?;
                    }
                    Err(StoreError::Busy { .. }) => {}
                    Err(error) => tracing::warn!(
                        run = run.id,
                        thread = %run.thread,
                        "what was said in it is not in its thread yet: {error}"
                    ),
                }
            }
        }
    }

    async fn record_unbegun_run(&self, run: &Run) -> Result<(), StoreError> {
        let mut recorder = Recorder::open(&self.store, &run.thread).await?;
        let began = |entry: &Entry| matches!(&entry.body, EntryBody::TurnStarted { turn_id } if turn_id == &run.id);
        if !recorder.entries().iter().any(began) {
            let (outcome, why) = match (run.state, &run.error) {
                (RunState::Failed, Some(error)) => (failed(error), error.as_str()),
                (RunState::Lost, _) => (
                    TurnOutcome::Interrupted,
                    "its session broke before it began",
                ),
                (_, Some(error)) => (TurnOutcome::Interrupted, error.as_str()),
                _ => (TurnOutcome::Interrupted, "the host ended before it began"),
            };
            let message = run.message.clone();
            record_failed_turn(&mut recorder, &run.id, message, outcome, why);
            recorder.commit().await?;
            self.free_files(&run.id, run.message.as_ref());
            // The log has it now; what is told without a log would be told twice.
            self.interrupted.forget(&run.thread);
            let name = label(recorder.entries(), &BTreeSet::new());
            self.name_thread(&run.thread, name).await;
        }
        drop(recorder);
        self.thread_watches.notify(&run.thread);
        if let Some(session) = &run.session_id {
            self.note_latest(session, &run.thread).await;
        }
        Ok(())
    }

    /// Names a thread that has no name after what was said in it.
    async fn name_thread(&self, thread: &ThreadId, name: Option<String>) {
        let Some(name) = name else { return };
        if let Err(error) = self.store.name_if_nameless(thread, &name).await {
            tracing::warn!(%thread, "the thread was not named: {error}");
        }
    }

    /// Ends a turn that cannot begin, as failed.
    pub(super) async fn fail_unbegun(&self, session: &str, turn: QueuedTurn, error: &str) {
        self.free_files(&turn.turn_id, turn.message.as_ref());
        let recorded = self.record_failure(&turn.thread, &turn.turn_id, turn.message, error);
        match recorded.await {
            Ok(()) => {
                let (id, state) = (&turn.turn_id, RunState::Failed);
                self.end_run(id, state, None, Some(error)).await;
            }
            // The run keeps what was said until it is.
            Err(why) => {
                tracing::warn!(
                    run = turn.turn_id,
                    "what was said is not in its thread yet: {why}"
                );
                self.note_end(RunEnd::unwritten(&turn.turn_id, error)).await;
            }
        }
        self.note_latest(session, &turn.thread).await;
    }

    /// Notes the newest entry of a session's thread.
    pub(super) async fn note_latest(&self, session: &str, thread: &ThreadId) {
        let noted = async {
            let seq = self.store.thread(thread).await?.last_seq;
            self.store.set_latest_entry(session, thread, seq).await
        };
        if let Err(error) = noted.await {
            tracing::warn!(%thread, "the newest entry was not noted: {error}");
        }
    }
}

fn failed(error: &str) -> TurnOutcome {
    TurnOutcome::Failed {
        error: error.to_owned(),
        kind: "session".to_owned(),
    }
}

/// A whole turn in which nothing but this was said.
fn record_failed_turn(
    recorder: &mut Recorder,
    turn_id: &str,
    message: Option<Message>,
    outcome: TurnOutcome,
    error: &str,
) {
    recorder.recover();
    recorder.entry(EntryBody::TurnStarted {
        turn_id: turn_id.to_owned(),
    });
    recorder.event(Event::TurnStarted {
        turn_id: turn_id.to_owned(),
    });
    if let Some(message) = message {
        recorder.entry(EntryBody::Message { message });
    }
    recorder.event(Event::Error(ErrorEvent {
        error: error.to_owned(),
        kind: "session".to_owned(),
    }));
    recorder.event(Event::Done {
        turn_id: turn_id.to_owned(),
        outcome: outcome.as_str().to_owned(),
        stop_reason: None,
        text: String::new(),
    });
    recorder.entry(EntryBody::TurnEnded {
        turn_id: turn_id.to_owned(),
        outcome,
        usage: Usage::default(),
        stop_reason: None,
    });
}
