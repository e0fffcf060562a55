//! Threads whose process ended in the middle of a turn: what was open in them is closed as when they
//! are opened, so that those who follow them are told.

use super::ManagerState;
use crate::session::Recorder;
use conjure_store::{Log as _, Run, StoreError};

impl ManagerState {
    /// Counts what runs spent whose process is gone, and closes their threads. A thread that cannot
    /// be closed is closed by whoever opens it next.
    pub(super) async fn close_abandoned(&self, runs: &[Run]) {
        for run in runs.iter().filter(|run| run.started_at_ms.is_some()) {
            match self.close_abandoned_thread(run).await {
                Ok(()) | Err(StoreError::NoThread { .. }) => {}
                Err(error) => tracing::warn!(
                    run = run.id,
                    thread = %run.thread,
                    "who follows the thread is not told that its turn is over: {error}"
                ),
            }
        }
    }

    async fn close_abandoned_thread(&self, run: &Run) -> Result<(), StoreError> {
        let mut recorder = match Recorder::open(&self.store, &run.thread).await {
            Ok(recorder) => recorder,
            // Whoever writes it by now has closed it.
            Err(StoreError::Busy { .. }) => {
                let entries = self.store.read_entries(&run.thread).await?;
                self.note_abandoned_usage(run, &entries).await;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.note_abandoned_usage(run, recorder.entries()).await;
        recorder.recover();
        recorder.commit().await?;
        drop(recorder);
        self.thread_watches.notify(&run.thread);
        if let Some(session) = &run.session_id {
            self.note_latest(session, &run.thread).await;
        }
        Ok(())
    }
}
