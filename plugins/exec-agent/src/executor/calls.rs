//! The calls of a session that run: whom a notice can be told, and how all of them end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::abi::{EmitKind, EmitStatus};
use conjure_skill_sdk::protocol::PluginEvent;
use tokio::sync::watch;

/// How long the end of a session waits for its calls.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The calls of a session.
#[derive(Debug)]
pub struct SessionCalls {
    running: watch::Sender<usize>,
    contexts: Mutex<BTreeMap<u64, Cx>>,
    closed: watch::Sender<bool>,
}

impl Default for SessionCalls {
    fn default() -> Self {
        Self {
            running: watch::Sender::new(0),
            contexts: Mutex::default(),
            closed: watch::Sender::new(false),
        }
    }
}

impl SessionCalls {
    /// Counts a call as running for as long as the value lives.
    pub fn begin(self: &Arc<Self>, cx: &Cx) -> CallGuard {
        let mut contexts = self.contexts();
        let number = contexts.last_key_value().map_or(0, |(last, _)| last + 1);
        contexts.insert(number, cx.clone());
        self.running.send_replace(contexts.len());
        CallGuard {
            calls: Arc::clone(self),
            number,
        }
    }

    /// Tells a person something, over the oldest call that takes it at once.
    pub fn notify(&self, text: &str) {
        let event = PluginEvent::Notice {
            level: "info".to_owned(),
            text: text.to_owned(),
        };
        let Ok(json) = serde_json::to_vec(&event) else {
            return;
        };
        let contexts: Vec<Cx> = self.contexts().values().cloned().collect();
        for cx in contexts {
            if cx.try_emit(EmitKind::Event, &json) == EmitStatus::Ok {
                return;
            }
        }
    }

    /// Whether the session is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Becomes ready when the session is over.
    pub async fn until_ended(&self) {
        let _ = self.closed.subscribe().wait_for(|over| *over).await;
    }

    /// Ends them, and waits a while until none runs.
    pub(super) async fn end(&self) {
        self.closed.send_replace(true);
        let mut running = self.running.subscribe();
        let _ = tokio::time::timeout(END_TIMEOUT, running.wait_for(|count| *count == 0)).await;
    }

    fn contexts(&self) -> MutexGuard<'_, BTreeMap<u64, Cx>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call of a session.
#[derive(Debug)]
pub struct CallGuard {
    calls: Arc<SessionCalls>,
    number: u64,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut contexts = self.calls.contexts();
        contexts.remove(&self.number);
        self.calls.running.send_replace(contexts.len());
    }
}
