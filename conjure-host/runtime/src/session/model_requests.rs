//! What is asked of the model: the reply that a turn waits for, a summary, and the looks that
//! backends take at replies.

use std::sync::Arc;

use conjure_core::turn::TurnInput;
use conjure_skill_sdk::protocol::Observe;
use tokio::sync::oneshot;

use super::compaction::{CompactError, Compaction, CompactionResult};
use super::model::ActiveRequest;
use super::thread_resources::ThreadResources;
use crate::backend::contributors::{Contributors, PendingObservation};

/// The requests of an open thread that are on their way.
#[derive(Default)]
pub(super) struct ModelRequests {
    reply: Option<Box<ActiveRequest>>,
    summary: Option<Box<Compaction>>,
    /// Channel to whoever wants that summary, where no turn does.
    summary_waiter: Option<oneshot::Sender<CompactionResult>>,
    /// Resolves when the backends have seen the newest reply.
    observation: PendingObservation,
}

impl ModelRequests {
    /// A reply is on its way.
    pub(super) fn set_reply(&mut self, request: ActiveRequest) {
        self.reply = Some(Box::new(request));
    }

    /// The request of this number has come to its end. Whether it was the one for the running reply.
    pub(super) fn end_reply(&mut self, request: u64) -> bool {
        let reply = self.reply.take_if(|known| known.number() == request);
        reply.is_some()
    }

    /// The running reply, which is to be stopped.
    pub(super) fn take_reply(&mut self) -> Option<ActiveRequest> {
        self.reply.take().map(|request| *request)
    }

    /// A summary is on its way.
    pub(super) fn set_summary(&mut self, summary: Compaction) {
        self.summary = Some(Box::new(summary));
    }

    pub(super) fn is_summarising(&self) -> bool {
        self.summary.is_some()
    }

    /// The summary that this request was for.
    pub(super) fn take_summary_by(&mut self, request: u64) -> Option<Compaction> {
        let summary = self
            .summary
            .take_if(|summary| summary.has_request(request))?;
        Some(*summary)
    }

    /// Gives the summary up; what had come of it was paid.
    pub(super) fn stop_summary(&mut self) -> Option<TurnInput> {
        self.summary.take().and_then(|summary| summary.stop())
    }

    /// Somebody waits for the summary, and turns wait behind it.
    pub(super) fn set_summary_waiter(&mut self, done: oneshot::Sender<CompactionResult>) {
        self.summary_waiter = Some(done);
    }

    pub(super) fn has_summary_waiter(&self) -> bool {
        self.summary_waiter.is_some()
    }

    pub(super) fn take_summary_waiter(&mut self) -> Option<oneshot::Sender<CompactionResult>> {
        self.summary_waiter.take()
    }

    /// Gives up the summary that somebody wanted; what had come of it was paid.
    pub(super) fn cancel_summary(&mut self) -> Option<TurnInput> {
        let done = self.summary_waiter.take()?;
        let error = "it was cancelled".to_owned();
        let _ = done.send(Err(CompactError::Failed { error }));
        self.stop_summary()
    }

    /// Resolves when the backends have seen the newest reply.
    pub(super) fn observation(&self) -> PendingObservation {
        self.observation.clone()
    }

    /// Shows a reply to the backends with a share in its request, one reply after the other.
    /// Whether there are any.
    pub(super) fn observe(
        &mut self,
        reply: Observe,
        contributors: Contributors,
        resources: &ThreadResources,
    ) -> bool {
        if contributors.is_empty() {
            return false;
        }
        let request_context = resources.request_context.clone();
        let (artifacts, reports) = (Arc::clone(&resources.artifacts), resources.reports.clone());
        let before = self.observation.clone();
        self.observation = PendingObservation::spawn(async move {
            before.wait().await;
            contributors
                .show(&request_context, &artifacts, reply, &reports)
                .await;
        });
        true
    }
}
