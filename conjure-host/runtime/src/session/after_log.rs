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
    use conjure_store::{Committed, InMemory, Log, Record, StoreError, ThreadId, ThreadLog};

    type Release = oneshot::Sender<Result<(), StoreError>>;

    /// A log that says nothing of the append in which a call begins until it is told to.
    #[derive(Clone, Default)]
    struct Slow {
        log: Arc<InMemory>,
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

        fn append(&mut self, records: &[Record], durable: bool) -> Committed {
            let committed = self.log.append(records, durable);
            let begins = |record: &Record| matches!(record, Record::Entry(entry) if matches!(entry.body, EntryBody::CallStarted { .. }));
            if !records.iter().any(begins) {
                return committed;
            }
            let (release, waits) = oneshot::channel();
            *self.slow.held.lock().unwrap() = Some(release);
            self.slow.holds.notify_one();
            Committed::waits(waits)
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
