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

/// The most answers that a server may be owed before nothing more of it is read.
pub(crate) const MAX_OWED: usize = 64;
/// How long it may leave so many of them untaken.
const MAX_STALL: Duration = Duration::from_secs(30);

/// What a connection owes its server.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    answers: Mutex<OwedAnswers>,
    /// Since when there are too many; nothing while there are not.
    full: watch::Sender<Option<Instant>>,
}

#[derive(Debug, Default)]
struct OwedAnswers {
    /// Requests of the server's whose answer is not being sent yet.
    open: HashSet<RequestId>,
    /// How many answers are being sent.
    sending: usize,
}

/// An answer is being sent until this is dropped.
#[derive(Debug)]
pub(crate) struct SendingAnswer(Arc<Owed>);

impl Owed {
    /// Why a connection is closed whose server takes no answers.
    pub(crate) fn stall() -> String {
        let seconds = MAX_STALL.as_secs();
        format!("it took none of {MAX_OWED} answers to its own requests within {seconds} s")
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
    pub(crate) fn note_if_room(&self, id: &RequestId) -> Option<bool> {
        self.change(|owed| {
            (owed.open.len() + owed.sending < MAX_OWED).then(|| owed.open.insert(id.clone()))
        })
    }

    /// Notes what the server said, before rmcp gets it. False for what rmcp is not to get: a second
    /// request under an id whose first one has no answer yet.
    pub(crate) fn note(&self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Request(request) => {
                self.change(|owed| owed.open.insert(request.id.clone()))
            }
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // It gets no answer any more. One that is sent all the same is counted then.
                    self.change(|owed| owed.open.remove(id));
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
        self.change(|owed| {
            if let Some(id) = id {
                owed.open.remove(id);
            }
            owed.sending += 1;
        });
        Some(SendingAnswer(Arc::clone(self)))
    }

    /// Forgets the requests that came before the handshake was over: rmcp answers few of them.
    pub(crate) fn forget_open(&self) {
        self.change(|owed| owed.open.clear());
    }

    fn change<T>(&self, change: impl FnOnce(&mut OwedAnswers) -> T) -> T {
        let mut owed = self.lock();
        let changed = change(&mut owed);
        let is_full = owed.open.len() + owed.sending >= MAX_OWED;
        self.full.send_if_modified(|full| {
            let turns = full.is_some() != is_full;
            if turns {
                *full = is_full.then(Instant::now);
            }
            turns
        });
        changed
    }

    fn lock(&self) -> MutexGuard<'_, OwedAnswers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SendingAnswer {
    fn drop(&mut self) {
        self.0
            .change(|owed| owed.sending = owed.sending.saturating_sub(1));
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

    async fn has_room(owed: &Owed) -> bool {
        let room = tokio::time::timeout(Duration::from_millis(1), owed.until_room());
        room.await == Ok(true)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_more_is_read_until_an_answer_is_out() {
        let owed = Arc::new(Owed::default());
        for id in 0..MAX_OWED {
            assert!(has_room(&owed).await, "{id}");
            assert!(owed.note(&ping(id)));
        }
        assert!(!has_room(&owed).await);
        let sending = owed.sending(&answer(0)).unwrap();
        assert!(!has_room(&owed).await, "it is not out yet");
        drop(sending);
        assert!(has_room(&owed).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_no_answers_for_long_is_given_up() {
        let owed = Arc::new(Owed::default());
        for id in 0..MAX_OWED {
            owed.note(&ping(id));
        }
        let begun = Instant::now();
        assert!(!owed.until_room().await);
        assert_eq!(begun.elapsed().as_secs(), MAX_STALL.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_some_now_and_then_is_not() {
        let owed = Arc::new(Owed::default());
        let mut next = 0;
        for _ in 0..10 {
            while has_room(&owed).await {
                owed.note(&ping(next));
                next += 1;
            }
            let waiting = tokio::spawn({
                let owed = Arc::clone(&owed);
                async move { owed.until_room().await }
            });
            tokio::time::sleep(MAX_STALL - Duration::from_secs(1)).await;
            drop(owed.sending(&answer(i64::try_from(next).unwrap() - 1)));
            assert!(waiting.await.unwrap());
        }
    }

    #[test]
    fn what_is_cancelled_is_owed_no_more_and_an_id_counts_once() {
        let owed = Arc::new(Owed::default());
        assert!(owed.note(&ping(1)));
        assert!(!owed.note(&ping(1)), "its first one has no answer yet");
        let params = json!({ "requestId": 1 });
        let cancelled = "notifications/cancelled";
        owed.note(&said(
            &json!({ "jsonrpc": "2.0", "method": cancelled, "params": params }),
        ));
        assert!(owed.lock().open.is_empty());
        // One that is sent all the same is counted.
        let sending = owed.sending(&answer(1));
        assert_eq!(owed.lock().sending, 1);
        drop(sending);
        assert_eq!(owed.lock().sending, 0);
        owed.note(&ping(2));
        owed.forget_open();
        assert!(owed.lock().open.is_empty());
    }
}
