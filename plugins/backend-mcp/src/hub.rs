//! The ways to the sessions while no call runs: events for the host, questions for the person.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::abi::{EmitKind, EmitStatus};
use conjure_skill_sdk::protocol::PluginEvent;

/// The contexts of `backend.watch`, by session.
#[derive(Default)]
pub(crate) struct WatchHub {
    watching: Mutex<BTreeMap<String, (u64, Cx)>>,
    next: AtomicU64,
    /// Updates of resources that wait for room, and whether each came once more meanwhile.
    delayed: Mutex<BTreeMap<ResourceUpdate, bool>>,
}

/// A session, and the URI of the resource of whose change it is told.
type ResourceUpdate = (String, String);

/// The watch of a session. Dropping it ends the watch.
pub(crate) struct WatchGuard {
    hub: Arc<WatchHub>,
    session: String,
    number: u64,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut watching = self.hub.lock();
        let newest = watching.get(&self.session).map(|(number, _)| *number);
        if newest == Some(self.number) {
            watching.remove(&self.session);
        }
    }
}

impl WatchHub {
    /// A session watches. One that did before does no more.
    pub(crate) fn watch(self: &Arc<Self>, session: &str, cx: Cx) -> WatchGuard {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(session.to_owned(), (number, cx));
        WatchGuard {
            hub: Arc::clone(self),
            session: session.to_owned(),
            number,
        }
    }

    /// The context of one of these sessions.
    pub(crate) fn any_context(&self, sessions: &[String]) -> Option<Cx> {
        let watching = self.lock();
        sessions
            .iter()
            .find_map(|session| watching.get(session))
            .map(|(_, cx)| cx.clone())
    }

    /// The catalogs of these sessions are others now.
    pub(crate) fn catalog_changed(&self, sessions: &[String]) {
        for session in sessions {
            let Some(cx) = self.any_context(std::slice::from_ref(session)) else {
                continue;
            };
            let event = PluginEvent::CatalogChanged {
                sessions: vec![session.clone()],
                what: Vec::new(),
            };
            // This one must not be lost, so it waits for room.
            tokio::spawn(async move { cx.event_async(&event).await });
        }
    }

    /// Tells these sessions that a resource says something else now. Where a queue is full that
    /// waits for room, once for each session and resource, and is not lost.
    pub(crate) fn resource_updated(self: &Arc<Self>, sessions: &[String], uri: &str) {
        let event = PluginEvent::ResourceUpdated {
            uri: uri.to_owned(),
            sessions: Vec::new(),
        };
        let Ok(bytes) = serde_json::to_vec(&event) else {
            return;
        };
        for session in sessions {
            let Some(cx) = self.any_context(std::slice::from_ref(session)) else {
                continue;
            };
            if cx.try_emit(EmitKind::Event, &bytes) == EmitStatus::Full {
                let update = (session.clone(), uri.to_owned());
                self.emit_when_writable(cx, update, bytes.clone());
            }
        }
    }

    /// Tells a session of an update as soon as its queue has room.
    fn emit_when_writable(self: &Arc<Self>, cx: Cx, update: ResourceUpdate, bytes: Vec<u8>) {
        if self.delay(&update) {
            return;
        }
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let told = cx.emit_async(EmitKind::Event, &bytes).await;
                if hub.end_delay(&update, told.is_err()) {
                    return;
                }
            }
        });
    }

    /// Notes an update that is to wait for room. True where it waits already, and is told of once
    /// more after that.
    fn delay(&self, update: &ResourceUpdate) -> bool {
        let mut delayed = lock(&self.delayed);
        let is_waiting = delayed.contains_key(update);
        delayed.insert(update.clone(), is_waiting);
        is_waiting
    }

    /// An update was told of, or cannot be any more. False where it came once more meanwhile.
    fn end_delay(&self, update: &ResourceUpdate, is_gone: bool) -> bool {
        let mut delayed = lock(&self.delayed);
        let came_again = delayed.get_mut(update).is_some_and(std::mem::take);
        let is_done = is_gone || !came_again;
        if is_done {
            delayed.remove(update);
        }
        is_done
    }

    /// Tells a session's person something.
    pub(crate) fn notice(&self, session: &str, text: &str) {
        let event = PluginEvent::Notice {
            level: "warn".to_owned(),
            text: text.to_owned(),
        };
        self.send(&[session.to_owned()], &event);
    }

    /// Hands an event to these sessions. A queue that is full loses it.
    pub(crate) fn send(&self, sessions: &[String], event: &PluginEvent) {
        let Ok(bytes) = serde_json::to_vec(event) else {
            return;
        };
        let watching = self.lock();
        for (_, cx) in sessions.iter().filter_map(|session| watching.get(session)) {
            cx.try_emit(EmitKind::Event, &bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (u64, Cx)>> {
        lock(&self.watching)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
