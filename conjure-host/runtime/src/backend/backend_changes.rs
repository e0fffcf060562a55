//! What backends say outside any call: that their catalog is another one now, and notices.
//!
//! One pending `backend.watch` a session and backend; it ends with the session's lease.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_abi::EmitKind;
use conjure_skill_sdk::protocol::{Empty, PluginEvent, op};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::request_context::{CallScope, RequestContext};
use conjure_plugins::{CallOptions, Emit, Instance, emit_channel};

/// Changes that may wait; of more the oldest are forgotten, and a catalog is asked for anyway. A
/// change of a resource is not: the next one waits until there is room.
const WAITING: usize = 256;

/// Announced changes that were not handled yet.
#[derive(Debug, Default)]
pub(crate) struct BackendChanges {
    pending: Mutex<VecDeque<BackendChange>>,
    pub(crate) arrived: Notify,
    /// Told when what waited was taken.
    drained: Notify,
}

/// A change that a backend announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackendChange {
    /// The catalog of a backend is another one now.
    Catalog {
        /// The backend instance.
        backend: String,
    },
    /// A resource of a backend says something else now.
    Resource {
        /// The resource's URI.
        uri: String,
    },
    /// Something that a person should know.
    Notice {
        /// What, with the backend's name.
        text: String,
    },
}

impl BackendChanges {
    pub(crate) fn push(&self, change: BackendChange) {
        {
            let mut waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.contains(&change) {
                return;
            }
            if waiting.len() >= WAITING {
                let is_other =
                    |known: &BackendChange| !matches!(known, BackendChange::Resource { .. });
                if let Some(oldest) = waiting.iter().position(is_other) {
                    waiting.remove(oldest);
                }
            }
            waiting.push_back(change);
        }
        self.arrived.notify_one();
    }

    /// Like [`Self::push`], but waits for room and loses nothing. So a backend that tells of much is
    /// slowed down.
    async fn push_when_room(&self, change: BackendChange) {
        loop {
            let taken = self.drained.notified();
            if self.has_room() {
                return self.push(change);
            }
            taken.await;
        }
    }

    fn has_room(&self) -> bool {
        let waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.len() < WAITING
    }

    /// Everything that waits.
    pub(crate) fn take(&self) -> Vec<BackendChange> {
        let taken = {
            let mut waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.drain(..).collect()
        };
        self.drained.notify_waiters();
        taken
    }
}

/// Watches a backend for one session, until the guard is dropped.
pub(crate) fn watch(
    backend: &str,
    instance: &Arc<Instance>,
    request_context: &RequestContext,
    changes: &Arc<BackendChanges>,
) -> DropGuard {
    let cancel = CancellationToken::new();
    let (sink, mut events) = emit_channel();
    let options = CallOptions {
        deadline: None,
        sink: Some(sink),
        cancel: cancel.clone(),
        meta: request_context.meta(),
    };
    let json = request_context
        .request(CallScope::default(), &Empty {})
        .unwrap_or_default();
    let instance = Arc::clone(instance);
    let name = backend.to_owned();
    tokio::spawn(async move {
        if let Err(error) = instance.request(op::BACKEND_WATCH, json, options).await {
            tracing::debug!(backend = name, "is watched no more: {error}");
        }
    });
    let (backend, session) = (backend.to_owned(), Arc::clone(&request_context.session));
    let (changes, ended) = (Arc::clone(changes), cancel.clone());
    tokio::spawn(async move {
        while let Some(Emit { kind, bytes }) = events.next().await {
            if kind != EmitKind::Event {
                continue;
            }
            if let Some(uri) = updated_resource(&bytes, &session) {
                let pushed = changes.push_when_room(BackendChange::Resource { uri });
                if ended.run_until_cancelled(pushed).await.is_none() {
                    return;
                }
                continue;
            }
            match serde_json::from_slice(&bytes) {
                Ok(PluginEvent::CatalogChanged { sessions, .. })
                    if sessions.is_empty() || sessions.iter().any(|id| **id == *session) =>
                {
                    changes.push(BackendChange::Catalog {
                        backend: backend.clone(),
                    });
                }
                Ok(PluginEvent::State { state, detail }) => {
                    tracing::info!(backend, state, detail, "changed its state");
                }
                Ok(PluginEvent::Notice { text, .. }) => {
                    changes.push(BackendChange::Notice {
                        text: format!("{backend}: {text}"),
                    });
                }
                _ => {}
            }
        }
    });
    cancel.drop_guard()
}

/// The resource that an event says is another one now, if it says so to this session.
pub(crate) fn updated_resource(event: &[u8], session: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Updated {
        event: String,
        uri: String,
        #[serde(default)]
        sessions: Vec<String>,
    }
    let updated: Updated = serde_json::from_slice(event).ok()?;
    let concerned = updated.sessions.is_empty() || updated.sessions.iter().any(|id| id == session);
    (updated.event == "resource_updated" && concerned).then_some(updated.uri)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn resource(number: usize) -> BackendChange {
        let uri = number.to_string();
        BackendChange::Resource { uri }
    }

    #[tokio::test]
    async fn a_change_of_a_resource_waits_for_room() {
        let changes = BackendChanges::default();
        for number in 0..WAITING {
            changes.push_when_room(resource(number)).await;
        }
        let mut last = Box::pin(changes.push_when_room(resource(WAITING)));
        assert!(last.as_mut().now_or_never().is_none());
        let taken = changes.take();
        assert_eq!(taken.len(), WAITING);
        assert_eq!(taken.first(), Some(&resource(0)));
        last.await;
        for number in 0..WAITING {
            let text = number.to_string();
            changes.push(BackendChange::Notice { text });
        }
        let taken = changes.take();
        assert_eq!(taken.len(), WAITING);
        assert_eq!(taken.first(), Some(&resource(WAITING)), "it is kept");
    }
}
