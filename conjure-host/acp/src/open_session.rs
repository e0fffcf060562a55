//! A session that is open on a connection.

use std::sync::Mutex;

use conjure_runtime::manager::SessionView;

use super::modes::Mode;
use super::request_queue::RequestQueue;

/// What a connection knows of a session that it has open.
#[derive(Debug)]
pub(crate) struct OpenSession {
    /// Id of the session at the manager, whatever the client calls it.
    pub(crate) id: String,
    mode: Mutex<Mode>,
    /// The name of its thread, as the client was told.
    title: Mutex<Option<String>>,
    /// What the client asked about it, in the order of arrival.
    pub(crate) queue: RequestQueue,
}

impl OpenSession {
    pub(crate) fn new(view: &SessionView) -> Self {
        Self {
            id: view.id.clone(),
            mode: Mutex::default(),
            title: Mutex::new(title(view)),
            queue: RequestQueue::default(),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        *lock(&self.mode)
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        *lock(&self.mode) = mode;
    }

    /// The name of its thread, where it is another one than the client was told.
    pub(crate) fn new_title(&self, view: &SessionView) -> Option<String> {
        let now = title(view);
        let mut told = lock(&self.title);
        if *told == now {
            return None;
        }
        told.clone_from(&now);
        now
    }
}

/// What a person calls a session: its name, else that of its thread.
pub(crate) fn title(view: &SessionView) -> Option<String> {
    let label = view.thread.as_ref().map(|thread| thread.label.clone());
    let label = label.filter(|label| !label.is_empty());
    label.or_else(|| view.name.clone())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
