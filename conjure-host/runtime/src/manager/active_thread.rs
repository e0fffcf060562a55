//! A session's thread while it is open.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_core::chat::EventId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lock;
use crate::session::{Subscription, ThreadHandle};

/// A thread that is open in this process, as everybody but its session's actor has it.
#[derive(Clone)]
pub(super) struct ActiveThread {
    /// The saved session that has it open.
    pub(super) owner: String,
    pub(super) handle: Arc<ThreadHandle>,
    /// The turn that runs.
    run: Arc<Mutex<Option<String>>>,
    abandoned: CancellationToken,
    /// The last sign of life while its actor was at work for somebody.
    last_alive: Arc<Mutex<Option<Instant>>>,
}

impl ActiveThread {
    /// A thread of this session, whose actor lets go of it when it is `abandoned`.
    pub(super) fn new(owner: &str, handle: ThreadHandle, abandoned: CancellationToken) -> Self {
        Self {
            owner: owner.to_owned(),
            handle: Arc::new(handle),
            run: Arc::default(),
            abandoned,
            last_alive: Arc::default(),
        }
    }

    pub(super) fn run(&self) -> Option<String> {
        lock(&self.run).clone()
    }

    pub(super) fn set_run(&self, run: Option<String>) {
        *lock(&self.run) = run;
    }

    /// Notes that the thread's actor lives: it is at work for somebody, and drives the thread meanwhile.
    pub(super) fn note_alive(&self) {
        *lock(&self.last_alive) = Some(Instant::now());
    }

    /// Whether the actor was noted as alive within this time.
    pub(super) fn was_alive_within(&self, time: Duration) -> bool {
        lock(&self.last_alive).is_some_and(|alive| alive.elapsed() < time)
    }

    /// How often the thread was opened, with this time.
    pub(super) fn epoch(&self) -> u64 {
        self.handle.epoch()
    }

    /// Follows its events behind `after`, or from the thread's beginning.
    pub(super) fn follow(&self, after: Option<EventId>) -> Subscription {
        self.handle.events(after)
    }

    /// Ends it without asking its actor, which hangs: what it started ends with it, and nothing more
    /// is written.
    pub(super) fn abandon(&self) {
        self.abandoned.cancel();
    }
}
