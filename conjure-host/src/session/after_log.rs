//! What a session does only when the log has what went before.

use tokio::sync::oneshot;

use super::actor::{Actor, Answered};
use super::perform::Deferred;

/// What is done once a batch of records is in the log.
pub(super) struct AfterBatch {
    batch: u64,
    pub(super) deferred: Vec<Deferred>,
    pub(super) answers: Vec<(oneshot::Sender<Answered>, Answered)>,
}

impl Actor {
    /// Hands what happened to the log. What must not happen before it is there waits for it:
    /// requests and calls that leave the session, and answers.
    pub(super) fn hand_over(&mut self) {
        let waits = !self.deferred.is_empty() || !self.answers.is_empty();
        let batch = self.recorder.hand_over(!waits);
        if waits {
            self.waiting_for_log.push_back(AfterBatch {
                batch,
                deferred: std::mem::take(&mut self.deferred),
                answers: std::mem::take(&mut self.answers),
            });
            self.do_what_waited();
        }
    }

    /// Goes on after a batch is in the log.
    pub(super) fn after_written(&mut self) {
        self.do_what_waited();
        // What gathered meanwhile.
        self.hand_over();
    }

    fn do_what_waited(&mut self) {
        let is_written = |after: &AfterBatch| self.recorder.is_written(after.batch);
        let count = self
            .waiting_for_log
            .iter()
            .take_while(|after| is_written(after))
            .count();
        let ready: Vec<AfterBatch> = self.waiting_for_log.drain(..count).collect();
        for after in ready {
            self.perform_deferred(after.deferred);
            for (done, answer) in after.answers {
                let _ = done.send(answer);
            }
        }
    }
}
