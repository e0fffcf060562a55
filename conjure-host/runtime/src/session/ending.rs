//! How an open thread ends: what runs is stopped and tells its end, and the log has it.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::model::ActiveRequest;
use super::open_thread::OpenThread;
use super::thread_event::ThreadEvent;
use conjure_store::StoreError;

/// How long what runs has to tell its end.
const LIMIT: Duration = Duration::from_secs(5);

/// Ends everything that a session started on its thread; at once where the log `failed`.
pub(crate) async fn end(mut thread: Box<OpenThread>, failed: Option<StoreError>) {
    thread.stop_all();
    let failed = match failed {
        Some(failed) => {
            drop(thread.model.take_reply().map(ActiveRequest::stop));
            Some(failed)
        }
        None => wind_down(&mut thread).await.err(),
    };
    let failed = failed.map(|failed| failed.to_string());
    thread.close(failed.as_deref()).await;
}

/// Lets running calls report their end, so that the log has it. A call that waited for the log
/// begins, finds that it is cancelled, and reports that.
async fn wind_down(thread: &mut OpenThread) -> Result<(), StoreError> {
    thread.cancel(true);
    let deadline = Instant::now() + LIMIT;
    while thread.is_busy() {
        match timeout_at(deadline, thread.next()).await {
            // What it offers from the next step on is of no use any more.
            Ok(ThreadEvent::Tools(_)) => {}
            Ok(event) => thread.handle(event)?,
            Err(_) => break,
        }
    }
    thread.wait_for_observation(deadline).await;
    thread.recorder.commit().await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::compaction::CompactError;
    use crate::Host;
    use conjure_config::{CompactAt, SessionSpec};

    #[tokio::test]
    async fn who_wants_a_summary_of_a_session_that_ends_is_told_that_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script.json");
        let steps = json!([
            { "text": "word ".repeat(2_000) },
            { "text": "Yes." },
            { "text": "It is never so far.", "delay_ms": 60_000 },
        ]);
        std::fs::write(&script, json!({ "steps": steps }).to_string()).unwrap();
        let host = Host::builder().data_dir(dir.path()).build().await.unwrap();
        let spec = SessionSpec {
            provider: Some("scripted".to_owned()),
            script: Some(script),
            compact_at: Some(CompactAt::Tokens(2_500)),
            ..SessionSpec::calls(&[], None)
        };
        let session = host.session(spec).await.unwrap();
        session.chat("Write a lot").await.unwrap();
        session.chat("Is that all?").await.unwrap();
        let (compacted, ()) = tokio::join!(session.compact(), session.end());
        assert_eq!(compacted, Err(CompactError::Ended));
    }
}
