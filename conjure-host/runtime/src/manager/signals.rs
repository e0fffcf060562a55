//! Messages of other processes that share the store: what they ask of sessions that run here, and what
//! they write to threads and sessions that somebody follows here. Nobody listens while there is neither.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Manager, ManagerState, lock};
use conjure_store::StoreSignal;

/// How often is looked where no word comes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Listens for as long as a manager is there.
pub(super) async fn listen(inner: Weak<ManagerState>, wanted: Arc<Notify>) {
    loop {
        wanted.notified().await;
        let Some(store) = inner.upgrade().map(|inner| inner.store.clone()) else {
            return;
        };
        let mut signals = store.signals();
        loop {
            let signal = tokio::time::timeout(POLL_INTERVAL, signals.next())
                .await
                .ok();
            let Some(inner) = inner.upgrade() else { return };
            if inner.closing.is_cancelled() && inner.tasks.is_empty() {
                return;
            }
            if signal.is_none() && !inner.is_listening() {
                break;
            }
            match signal {
                Some(StoreSignal::Thread(thread)) => {
                    inner.thread_watches.notify(&thread);
                    if inner.thread_watches.has(&thread) {
                        inner.pending_marks.add([thread]);
                    }
                }
                Some(StoreSignal::Requests) | None => serve_requests(&inner).await,
                Some(StoreSignal::Sessions) => inner.sessions_changed.notify_one(),
                Some(StoreSignal::Anywhere) => {
                    inner.thread_watches.notify_all();
                    serve_requests(&inner).await;
                    inner.pending_marks.add(inner.thread_watches.followed());
                    inner.sessions_changed.notify_one();
                }
            }
        }
    }
}

/// Takes what other processes ask; each is done beside the others.
async fn serve_requests(inner: &Arc<ManagerState>) {
    if lock(&inner.actors).is_empty() {
        return;
    }
    match inner.store.take_requests().await {
        Ok(requests) => {
            for request in requests {
                let manager = Manager {
                    inner: Arc::clone(inner),
                };
                tokio::spawn(manager.serve_request(request));
            }
        }
        Err(error) => tracing::warn!("what other processes ask is not known: {error}"),
    }
}

impl ManagerState {
    fn is_listening(&self) -> bool {
        !lock(&self.actors).is_empty()
            || self.thread_watches.is_followed()
            || self.states.is_followed()
    }
}
