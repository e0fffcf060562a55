//! What a session does only when the log has what went before.

use std::collections::VecDeque;

use conjure_core::chat::FunctionCall;
use conjure_core::routing::RouteRef;
use tokio::sync::oneshot;

use super::compaction::{CompactError, CompactionResult, UnfoldError, UnfoldResult};
use super::error::ChatError;
use super::recorder::Recorder;
use super::turns::{AnswerTo, TurnResult};

/// Something that leaves the session, and so waits for the log.
pub(super) enum Deferred {
    /// Ask the model.
    Send(u64),
    /// Run a call.
    Run {
        call: FunctionCall,
        route: Option<RouteRef>,
    },
}

/// An answer to whoever asked for something that changes the log.
pub(super) enum LoggedAnswer {
    Turn(AnswerTo, TurnResult),
    Compaction(oneshot::Sender<CompactionResult>, (u64, u64)),
    Unfold(oneshot::Sender<UnfoldResult>, (u64, u64)),
}

impl LoggedAnswer {
    fn send(self) {
        match self {
            Self::Turn(answer_to, answer) => drop(answer_to.send(answer)),
            Self::Compaction(done, compacted) => drop(done.send(Ok(compacted))),
            Self::Unfold(done, unfolded) => drop(done.send(Ok(unfolded))),
        }
    }

    /// Says that the log could not be written, so that what was to be told did not happen.
    fn send_failure(self, reason: &str) {
        match self {
            Self::Turn(answer_to, _) => {
                let reason = Some(reason.to_owned());
                drop(answer_to.send(Err(ChatError::Ended { reason })));
            }
            Self::Compaction(done, _) => {
                let error = reason.to_owned();
                drop(done.send(Err(CompactError::Failed { error })));
            }
            Self::Unfold(done, _) => {
                let error = reason.to_owned();
                drop(done.send(Err(UnfoldError::Failed { error })));
            }
        }
    }
}

/// What must not happen before the log has what went before: requests and calls that leave the
/// session, and answers.
#[derive(Default)]
pub(super) struct AfterLog {
    /// What waits for records that were not handed over yet.
    deferred: Vec<Deferred>,
    answers: Vec<LoggedAnswer>,
    /// What waits for records that were, in order.
    batches: VecDeque<AfterBatch>,
    /// Requests that wait for something else than the log.
    blocked: Vec<Deferred>,
}

/// What is done once a batch of records is in the log.
struct AfterBatch {
    batch: u64,
    deferred: Vec<Deferred>,
    answers: Vec<LoggedAnswer>,
}

impl AfterLog {
    pub(super) fn defer(&mut self, deferred: Deferred) {
        self.deferred.push(deferred);
    }

    pub(super) fn answer(&mut self, answer: LoggedAnswer) {
        self.answers.push(answer);
    }

    /// Answers whoever waits for a turn, where somebody does.
    pub(super) fn answer_turn(&mut self, answer: Option<(AnswerTo, TurnResult)>) {
        let answer = answer.map(|(answer_to, answer)| LoggedAnswer::Turn(answer_to, answer));
        self.answers.extend(answer);
    }

    /// Takes a request back that waits for the log; false when it left already.
    pub(super) fn take_back(&mut self, request: u64) -> bool {
        let batches = self.batches.iter_mut();
        let batches = batches.map(|after| &mut after.deferred);
        let all = batches.chain([&mut self.deferred, &mut self.blocked]);
        all.into_iter().any(|deferred| {
            let before = deferred.len();
            deferred.retain(|it| !matches!(it, Deferred::Send(number) if *number == request));
            deferred.len() < before
        })
    }

    /// Hands what happened to the log, and gives the answers that it has by now. What is to be done
    /// now is given back; where requests are held, without these.
    pub(super) fn hand_over(&mut self, recorder: &mut Recorder, holds: bool) -> Vec<Deferred> {
        let waits = !self.deferred.is_empty() || !self.answers.is_empty();
        let batch = recorder.hand_over(!waits);
        if waits {
            self.batches.push_back(AfterBatch {
                batch,
                deferred: std::mem::take(&mut self.deferred),
                answers: std::mem::take(&mut self.answers),
            });
        }
        let ready = self.ready(recorder);
        if !holds {
            let mut held = std::mem::take(&mut self.blocked);
            held.extend(ready);
            return held;
        }
        let is_request = |deferred: &Deferred| matches!(deferred, Deferred::Send(_));
        let (requests, rest): (Vec<_>, Vec<_>) = ready.into_iter().partition(is_request);
        self.blocked.extend(requests);
        rest
    }

    fn ready(&mut self, recorder: &Recorder) -> Vec<Deferred> {
        let mut ready = Vec::new();
        while let Some(after) = self.batches.front()
            && recorder.is_written(after.batch)
            && let Some(after) = self.batches.pop_front()
        {
            ready.extend(after.deferred);
            after.answers.into_iter().for_each(LoggedAnswer::send);
        }
        ready
    }

    /// Gives the answers that still wait. Where the log could not be written they are not in it, so
    /// what they tell did not happen.
    pub(super) fn end(&mut self, failure: Option<&str>) {
        let batches = self.batches.drain(..).flat_map(|after| after.answers);
        for answer in batches.chain(self.answers.drain(..)) {
            match failure {
                Some(reason) => answer.send_failure(reason),
                None => answer.send(),
            }
        }
    }

    /// Gives room back.
    pub(super) fn shrink_to_fit(&mut self) {
        self.deferred.shrink_to_fit();
        self.answers.shrink_to_fit();
        self.batches.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use conjure_core::log::{CallEnd, EntryBody};
    use conjure_skill_sdk::Skill;
    use conjure_skill_sdk::protocol::Execute;
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use serde_json::json;
    use tokio::sync::{Notify, oneshot};

    use crate::Host;
    use conjure_config::{PolicySpec, SessionSpec};
    use conjure_store::{Log, MemoryLog, PendingAppend, Record, StoreError, ThreadId, ThreadLog};

    type Release = oneshot::Sender<Result<(), StoreError>>;

    /// A log that says nothing of the append in which a call begins until it is told to.
    #[derive(Clone, Default)]
    struct Slow {
        log: Arc<MemoryLog>,
        holds: Arc<Notify>,
        held: Arc<Mutex<Option<Release>>>,
    }

    struct SlowThread {
        log: Box<dyn ThreadLog>,
        slow: Slow,
    }

    impl Log for Slow {
        fn open<'a>(
            &'a self,
            thread: &'a ThreadId,
        ) -> BoxFuture<'a, Result<Box<dyn ThreadLog>, StoreError>> {
            async move {
                let log = self.log.open(thread).await?;
                let slow = self.clone();
                Ok(Box::new(SlowThread { log, slow }) as Box<dyn ThreadLog>)
            }
            .boxed()
        }

        fn read<'a>(
            &'a self,
            thread: &'a ThreadId,
        ) -> BoxFuture<'a, Result<Vec<Record>, StoreError>> {
            self.log.read(thread)
        }

        fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>> {
            self.log.threads()
        }
    }

    impl ThreadLog for SlowThread {
        fn thread(&self) -> &ThreadId {
            self.log.thread()
        }

        fn epoch(&self) -> u64 {
            self.log.epoch()
        }

        fn last_seq(&self) -> u64 {
            self.log.last_seq()
        }

        fn append(&mut self, records: &[Record], durable: bool) -> PendingAppend {
            let committed = self.log.append(records, durable);
            let begins = |record: &Record| matches!(record, Record::Entry(entry) if matches!(entry.body, EntryBody::CallStarted { .. }));
            if !records.iter().any(begins) {
                return committed;
            }
            let (release, waits) = oneshot::channel();
            *self.slow.held.lock().unwrap() = Some(release);
            self.slow.holds.notify_one();
            PendingAppend::pending(waits)
        }
    }

    #[tokio::test]
    async fn a_session_that_is_closed_while_a_call_waits_for_the_log_ends_its_turn_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let call = json!({ "tool": "still_execute", "arguments": { "command": "x" } });
        let script = json!({ "steps": [{ "calls": [call] }, { "text": "over" }] });
        std::fs::write(dir.path().join("script.json"), script.to_string()).unwrap();
        let log = Slow::default();
        let skill = || Skill::new("still", "Is still").execute("x", |_cx, _: Execute| "ran");
        let builder = Host::builder().data_dir(dir.path()).log(log.clone());
        let host = builder.skill(skill).build().await.unwrap();
        let spec = SessionSpec {
            provider: Some("scripted".to_owned()),
            script: Some(dir.path().join("script.json")),
            policy: PolicySpec {
                allow: vec!["still_*".parse().unwrap()],
                ..PolicySpec::default()
            },
            ..SessionSpec::calls(&[], None)
        };
        let session = host.session(spec).await.unwrap();
        let thread = session.thread().clone();
        {
            let mut chat = std::pin::pin!(session.chat("Go"));
            tokio::select! {
                answer = &mut chat => panic!("{answer:?}"),
                () = log.holds.notified() => {}
            }
        }
        let mut close = std::pin::pin!(session.close());
        assert!(close.as_mut().now_or_never().is_none());
        // The session's task runs on this thread too, until it can only wait.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let release = log.held.lock().unwrap().take().unwrap();
        release.send(Ok(())).unwrap();
        close.await;
        let entries = host.entries(&thread).await.unwrap();
        let end = entries.iter().find_map(|entry| match &entry.body {
            EntryBody::CallEnded { end, .. } => Some(*end),
            _ => None,
        });
        assert_eq!(end, Some(CallEnd::Cancelled));
        let last = entries.last().map(|entry| &entry.body);
        assert!(
            matches!(last, Some(EntryBody::TurnEnded { .. })),
            "{last:?}"
        );
    }
}
