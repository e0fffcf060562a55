//! Answers that a server has not got yet: with too many of them, nothing more of it is read.
//!
//! rmcp makes a task of each request of the server's and of each answer to one, so a server that
//! asks and takes no answer would fill the memory with them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use tokio::sync::watch;
use tokio::time::Instant;

/// The most answers that may be missing before nothing more of the server is read.
pub(crate) const MAX_UNANSWERED: usize = 64;
/// How long it may leave so many of them untaken.
const MAX_STALL: Duration = Duration::from_secs(30);

/// What a connection owes its server.
#[derive(Debug, Default)]
pub(crate) struct AnswerBacklog {
    answers: Mutex<BacklogState>,
    /// Time since which there are too many answers; `None` while there are not.
    full: watch::Sender<Option<Instant>>,
}

#[derive(Debug, Default)]
struct BacklogState {
    /// Requests of the server's whose answer is not being sent yet.
    unanswered: HashSet<RequestId>,
    /// How many answers are being sent.
    sending: usize,
}

/// An answer is being sent until this is dropped.
#[derive(Debug)]
pub(crate) struct SendingAnswer(Arc<AnswerBacklog>);

impl AnswerBacklog {
    /// Why a connection is closed whose server takes no answers.
    pub(crate) fn stall() -> String {
        let seconds = MAX_STALL.as_secs();
        format!("it took none of {MAX_UNANSWERED} answers to its own requests within {seconds} s")
    }

    /// Waits until there are few enough. False when there were too many for too long.
    pub(crate) async fn until_room(&self) -> bool {
        if self.full.borrow().is_none() {
            return true;
        }
        let mut full = self.full.subscribe();
        loop {
            let since = *full.borrow_and_update();
            let Some(since) = since else { return true };
            let end = since + MAX_STALL;
            if Instant::now() >= end {
                return false;
            }
            let _ = tokio::time::timeout_at(end, full.changed()).await;
        }
    }

    /// Notes a request where there is room for it: whether it is the first one under its id.
    pub(crate) fn record_if_room(&self, id: &RequestId) -> Option<bool> {
        self.change(|backlog| {
            (backlog.unanswered.len() + backlog.sending < MAX_UNANSWERED)
                .then(|| backlog.unanswered.insert(id.clone()))
        })
    }

    /// Notes what the server said, before rmcp gets it. False for what rmcp is not to get: a second
    /// request under an id whose first one has no answer yet.
    pub(crate) fn record(&self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Request(request) => {
                self.change(|backlog| backlog.unanswered.insert(request.id.clone()))
            }
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // It gets no answer any more. One that is sent all the same is counted then.
                    self.change(|backlog| backlog.unanswered.remove(id));
                }
                true
            }
            _ => true,
        }
    }

    /// Notes an answer that goes out; nothing for any other message.
    pub(crate) fn sending(
        self: &Arc<Self>,
        message: &ClientJsonRpcMessage,
    ) -> Option<SendingAnswer> {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => return None,
        };
        self.change(|backlog| {
            if let Some(id) = id {
                backlog.unanswered.remove(id);
            }
            backlog.sending += 1;
        });
        Some(SendingAnswer(Arc::clone(self)))
    }

    /// Forgets the requests that came before the handshake was over: rmcp answers few of them.
    pub(crate) fn forget_open(&self) {
        self.change(|backlog| backlog.unanswered.clear());
    }

    fn change<T>(&self, change: impl FnOnce(&mut BacklogState) -> T) -> T {
        let mut backlog = self.lock();
        let changed = change(&mut backlog);
        let is_full = backlog.unanswered.len() + backlog.sending >= MAX_UNANSWERED;
        self.full.send_if_modified(|full| {
            let turns = full.is_some() != is_full;
            if turns {
                *full = is_full.then(Instant::now);
            }
            turns
        });
        changed
    }

    fn lock(&self) -> MutexGuard<'_, BacklogState> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SendingAnswer {
    fn drop(&mut self) {
        self.0
            .change(|backlog| backlog.sending = backlog.sending.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ClientResult;
    use serde_json::{Value, json};

    use super::*;

    fn said(message: &Value) -> ServerJsonRpcMessage {
        let mut read = crate::wire::read(message.to_string().as_bytes());
        read.messages.remove(0)
    }

    fn ping(id: usize) -> ServerJsonRpcMessage {
        said(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }))
    }

    fn answer(id: i64) -> ClientJsonRpcMessage {
        ClientJsonRpcMessage::response(ClientResult::empty(()), RequestId::Number(id))
    }

    async fn has_room(backlog: &AnswerBacklog) -> bool {
        let room = tokio::time::timeout(Duration::from_millis(1), backlog.until_room());
        room.await == Ok(true)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_more_is_read_until_an_answer_is_out() {
        let backlog = Arc::new(AnswerBacklog::default());
        for id in 0..MAX_UNANSWERED {
            assert!(has_room(&backlog).await, "{id}");
            assert!(backlog.record(&ping(id)));
        }
        assert!(!has_room(&backlog).await);
        let sending = backlog.sending(&answer(0)).unwrap();
        assert!(!has_room(&backlog).await, "it is not out yet");
        drop(sending);
        assert!(has_room(&backlog).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_no_answers_for_long_is_given_up() {
        let backlog = Arc::new(AnswerBacklog::default());
        for id in 0..MAX_UNANSWERED {
            backlog.record(&ping(id));
        }
        let begun = Instant::now();
        assert!(!backlog.until_room().await);
        assert_eq!(begun.elapsed().as_secs(), MAX_STALL.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_some_now_and_then_is_not() {
        let backlog = Arc::new(AnswerBacklog::default());
        let mut next = 0;
        for _ in 0..10 {
            while has_room(&backlog).await {
                backlog.record(&ping(next));
                next += 1;
            }
            let waiting = tokio::spawn({
                let backlog = Arc::clone(&backlog);
                async move { backlog.until_room().await }
            });
            tokio::time::sleep(MAX_STALL - Duration::from_secs(1)).await;
            drop(backlog.sending(&answer(i64::try_from(next).unwrap() - 1)));
            assert!(waiting.await.unwrap());
        }
    }

    #[test]
    fn what_is_cancelled_is_owed_no_more_and_an_id_counts_once() {
        let backlog = Arc::new(AnswerBacklog::default());
        assert!(backlog.record(&ping(1)));
        assert!(!backlog.record(&ping(1)), "its first one has no answer yet");
        let params = json!({ "requestId": 1 });
        let cancelled = "notifications/cancelled";
        backlog.record(&said(
            &json!({ "jsonrpc": "2.0", "method": cancelled, "params": params }),
        ));
        assert!(backlog.lock().unanswered.is_empty());
        // One that is sent all the same is counted.
        let sending = backlog.sending(&answer(1));
        assert_eq!(backlog.lock().sending, 1);
        drop(sending);
        assert_eq!(backlog.lock().sending, 0);
        backlog.record(&ping(2));
        backlog.forget_open();
        assert!(backlog.lock().unanswered.is_empty());
    }
}
