//! The name that a thread gets by itself, after what was said in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::label::label;
use tokio::task::JoinHandle;

use super::host_state::HostState;
use super::recorder::Recorder;

/// How long the end of a session waits for the name.
const LIMIT: Duration = Duration::from_secs(2);

/// Whether a thread was given a name.
#[derive(Debug, Default)]
pub(super) struct ThreadName {
    task: Option<JoinHandle<()>>,
}

impl ThreadName {
    /// Gives the thread a name, as soon as enough was said for one. A name that it has stays.
    pub(super) fn assign(&mut self, shared: &HostState, recorder: &Recorder) {
        if self.task.is_some() {
            return;
        }
        let Some(name) = label(recorder.entries(), &BTreeSet::new()) else {
            return;
        };
        let (log, thread) = (Arc::clone(&shared.log), recorder.thread().clone());
        self.task = Some(tokio::spawn(async move {
            if let Err(error) = log.name(&thread, &name).await {
                tracing::warn!(%thread, "the thread was not named: {error}");
            }
        }));
    }

    /// Waits until it is given, for a while.
    pub(super) async fn wait(&mut self) {
        if let Some(given) = self.task.take() {
            let _ = tokio::time::timeout(LIMIT, given).await;
        }
    }
}
