//! How a session ends: what runs is stopped and tells its end, and the log has it.

use std::time::Duration;

use conjure_core::turn::Input;

use super::actor::Actor;
use super::handle::ChatError;
use conjure_store::StoreError;

impl Actor {
    /// Ends everything that the session started.
    pub(super) async fn stop(mut self: Box<Self>, reason: Option<String>) {
        if let Some(asked) = self.compaction.take() {
            drop(asked.request.stop());
        }
        if reason.is_some()
            && let Some(request) = self.request.take()
        {
            drop(request.stop());
        }
        for cancel in self.calls.values() {
            cancel.cancel();
        }
        let reason = match reason {
            None => self.wind_down().await.err().map(|error| error.to_string()),
            reason => reason,
        };
        let waited = self
            .waiting_for_log
            .drain(..)
            .flat_map(|after| after.answers);
        for (done, answer) in waited.chain(self.answers.drain(..)) {
            let answer = match &reason {
                // It is not in the log, so it did not happen.
                Some(reason) => Err(ChatError::Ended {
                    reason: Some(reason.clone()),
                }),
                None => answer,
            };
            let _ = done.send(answer);
        }
        for (_, done) in self.waiting.drain() {
            let _ = done.send(Err(ChatError::Ended {
                reason: reason.clone(),
            }));
        }
        self.name.given().await;
        self.toolbox.close().await;
    }

    /// Lets backends tell what they saw in the last reply, so that the log has it.
    async fn see_observed(&mut self, deadline: tokio::time::Instant) {
        let observed = tokio::time::timeout_at(deadline, self.observed.clone().wait());
        tokio::pin!(observed);
        loop {
            tokio::select! {
                biased;
                Some(report) = self.reports.recv() => self.report(*report),
                _ = &mut observed => break,
            }
        }
        while let Ok(report) = self.reports.try_recv() {
            self.report(*report);
        }
    }

    /// Lets running calls report their end, so that the log has it. A call that waited for the log
    /// begins, finds that it is cancelled, and reports that.
    async fn wind_down(&mut self) -> Result<(), StoreError> {
        self.input(Input::Cancel { drop_queued: true });
        self.hand_over();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        while self.machine.is_busy() {
            tokio::select! {
                biased;
                written = self.recorder.next_written() => {
                    written?;
                    self.after_written();
                }
                report = tokio::time::timeout_at(deadline, self.reports.recv()) => match report {
                    Ok(Some(report)) => {
                        self.report(*report);
                        self.hand_over();
                    }
                    _ => break,
                },
            }
        }
        self.see_observed(deadline).await;
        self.recorder.commit().await
    }
}
