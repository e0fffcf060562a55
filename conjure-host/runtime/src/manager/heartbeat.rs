//! Signs of life: runs whose sessions answer are noted as alive, and those that are silent for too
//! long are ended and marked.

use std::sync::Weak;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::requests::ActorRequest;
use super::{ManagerError, ManagerState, lock};
use conjure_store::{Run, RunState};

impl ManagerState {
    /// Ends what a process left behind that is no more.
    pub(super) async fn take_over_abandoned(&self) -> Result<Vec<Run>, ManagerError> {
        let gone = self.store.abandoned_runs().await?;
        if gone.is_empty() {
            return Ok(gone);
        }
        // While the runs are not over: where this process ends meanwhile, another closes them.
        self.close_abandoned(&gone).await;
        let over = self.store.take_over_runs().await?;
        let is_late = |run: &&Run| !gone.iter().any(|known| known.id == run.id);
        let late: Vec<Run> = over.iter().filter(is_late).cloned().collect();
        self.close_abandoned(&late).await;
        // No warning: whoever follows the thread is told of its end, and a chat would show both.
        for run in &over {
            tracing::info!(
                run = run.id,
                thread = %run.thread,
                "the process that ran it is gone; it is interrupted, and nothing of it is repeated"
            );
        }
        Ok(over)
    }

    /// Looks at every run once.
    async fn check_runs(&self) -> Result<(), ManagerError> {
        let open: Vec<_> = lock(&self.active_threads).values().cloned().collect();
        let half = self.options.silence / 2;
        let asked = open.into_iter().filter_map(|live| {
            let run = live.run()?;
            let actor = lock(&self.actors).get(&live.owner).cloned()?;
            Some(async move {
                let lives = answers_within(half, &actor).await || live.was_alive_within(half);
                lives.then_some(run)
            })
        });
        let alive: Vec<String> = futures_util::future::join_all(asked)
            .await
            .into_iter()
            .flatten()
            .collect();
        let alive: Vec<&str> = alive.iter().map(String::as_str).collect();
        self.store.beat_runs(&alive).await?;
        let silence = i64::try_from(self.options.silence.as_millis()).unwrap_or(i64::MAX);
        for run in self.store.silent_runs(silence).await? {
            self.end_silent(&run).await?;
        }
        self.take_over_abandoned().await?;
        self.store.drop_untaken_requests().await?;
        Ok(self.record_unbegun().await?)
    }

    /// Ends a run of this process that gives no sign of life. Its session ends with it: it cannot
    /// be asked for anything.
    async fn end_silent(&self, run: &Run) -> Result<(), ManagerError> {
        if run.state == RunState::Queued {
            return Ok(());
        }
        let live = lock(&self.active_threads).get(&run.thread).cloned();
        let Some(live) = live.filter(|live| live.run().as_deref() == Some(&run.id)) else {
            return Ok(());
        };
        let why = format!(
            "its session gave no sign of life for {} s and was ended; what came so far is kept",
            self.options.silence.as_secs()
        );
        tracing::error!(run = run.id, thread = %run.thread, "{why}");
        let ended = self
            .store
            .end_run(&run.id, RunState::Lost, None, Some(&why));
        if ended.await? && live.run().as_deref() == Some(&run.id) {
            live.abandon();
        }
        Ok(())
    }
}

/// Whether a session's actor answers in this time.
async fn answers_within(time: Duration, actor: &mpsc::Sender<Box<ActorRequest>>) -> bool {
    let (done, answer) = oneshot::channel();
    let answer = async {
        let asked = actor.send(Box::new(ActorRequest::Alive(done))).await;
        asked.is_ok() && answer.await.is_ok()
    };
    tokio::time::timeout(time, answer).await.unwrap_or(false)
}

/// Looks after runs until the manager is gone or goes down.
pub(super) async fn run_heartbeat(
    inner: Weak<ManagerState>,
    closing: CancellationToken,
    every: Duration,
) {
    let mut has_failed = false;
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        let looked = async {
            if has_failed || !inner.run_ends.is_empty() {
                // A process that could not write for a while says first that it lives: it would
                // take itself for one that is gone.
                inner.store.probe().await?;
                inner.write_run_ends().await;
            }
            inner.check_runs().await?;
            inner.adopt().await
        };
        let looked = looked.await;
        has_failed = looked.is_err();
        if let Err(error) = looked {
            tracing::warn!("runs could not be looked after: {error}");
        }
    }
}
