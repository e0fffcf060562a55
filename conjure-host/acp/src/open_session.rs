//! A session that is open on a connection.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_runtime::manager::SessionView;
use tokio::sync::watch;

use super::modes::Mode;

/// What a connection knows of a session that it has open.
#[derive(Debug)]
pub(crate) struct OpenSession {
    /// Its id at the manager, whatever the client calls it.
    pub(crate) id: String,
    mode: Mutex<Mode>,
    /// The name of its thread, as the client was told.
    title: Mutex<Option<String>>,
    /// Number of cancellations that the client sent.
    cancels: AtomicU64,
    /// How often what ran was stopped because of that.
    stops: watch::Sender<u64>,
}

impl OpenSession {
    pub(crate) fn new(view: &SessionView) -> Self {
        Self {
            id: view.id.clone(),
            mode: Mutex::default(),
            title: Mutex::new(title(view)),
            cancels: AtomicU64::new(0),
            stops: watch::Sender::new(0),
        }
    }

    /// How often the client said to stop so far. A prompt for which it said so before its turn
    /// began has another number then than when it came.
    pub(crate) fn cancels(&self) -> u64 {
        self.cancels.load(Ordering::SeqCst)
    }

    /// Takes note that the client said to stop.
    pub(crate) fn note_cancel(&self) {
        self.cancels.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes note that what ran is stopped, as the client said.
    pub(crate) fn note_stopped(&self) {
        self.stops.send_modify(|stops| *stops += 1);
    }

    /// Waits until what ran is stopped, as the client says after it had said so this often.
    pub(crate) async fn stopped_since(&self, cancels: u64) {
        let mut stops = self.stops.subscribe();
        // The sender is this session's: there is one as long as somebody waits.
        let _ = stops.wait_for(|stops| *stops > cancels).await;
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
