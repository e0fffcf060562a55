//! A session's thread while it is open.

use std::sync::{Arc, Mutex};

use conjure_core::chat::EventId;

use super::lock;
use crate::session::{Session, Subscription};

/// A thread that is open in this process, with its session.
#[derive(Clone)]
pub(super) struct ActiveThread {
    /// The saved session that has it open.
    pub(super) owner: String,
    pub(super) session: Arc<Session>,
    /// The turn that runs.
    run: Arc<Mutex<Option<String>>>,
}

impl ActiveThread {
    pub(super) fn new(owner: &str, session: Arc<Session>) -> Self {
        Self {
            owner: owner.to_owned(),
            session,
            run: Arc::default(),
        }
    }

    pub(super) fn run(&self) -> Option<String> {
        lock(&self.run).clone()
    }

    pub(super) fn set_run(&self, run: Option<String>) {
        *lock(&self.run) = run;
    }

    /// Follows its events behind `after`, or from the thread's beginning.
    pub(super) fn follow(&self, after: Option<EventId>) -> Subscription {
        self.session.events(after)
    }
}
