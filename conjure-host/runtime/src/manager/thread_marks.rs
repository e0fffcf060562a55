//! Tells those who follow the sessions that a thread was named, cleared or removed: by this process,
//! and by others where somebody follows the thread here.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::changes::SessionChange;
use super::{ManagerState, lock};
use conjure_store::{MarkedThread, MarkedThreads, ThreadId, ThreadMark};

/// For how long threads are gathered whose marks another process may have changed: it says of every
/// append that something was written, and names are few.
const GATHER_TIME: Duration = Duration::from_millis(250);

/// Threads whose marks are to be looked at.
#[derive(Debug, Default)]
pub(super) struct PendingMarks {
    due: Mutex<BTreeSet<ThreadId>>,
    arrived: Notify,
}

impl PendingMarks {
    /// Another process wrote to these.
    pub(super) fn add(&self, threads: impl IntoIterator<Item = ThreadId>) {
        let mut due = lock(&self.due);
        due.extend(threads);
        if !due.is_empty() {
            self.arrived.notify_one();
        }
    }

    /// Waits for threads to look at, and returns those that were gathered. Safe to drop and call again.
    async fn next_batch(&self) -> Vec<ThreadId> {
        while lock(&self.due).is_empty() {
            self.arrived.notified().await;
        }
        tokio::time::sleep(GATHER_TIME).await;
        std::mem::take(&mut *lock(&self.due)).into_iter().collect()
    }
}

/// Tells what this process does and what others did, one after the other, for as long as a manager is
/// there.
pub(super) async fn watch_marks(
    inner: Weak<ManagerState>,
    mut marked: MarkedThreads,
    looks: Arc<PendingMarks>,
) {
    loop {
        let (threads, is_own) = tokio::select! {
            word = marked.next() => match word {
                Some(MarkedThread::Thread(thread)) => (vec![thread], true),
                Some(MarkedThread::Missed) => (Vec::new(), true),
                None => return,
            },
            threads = looks.next_batch() => (threads, false),
        };
        let Some(inner) = inner.upgrade() else { return };
        match threads.as_slice() {
            [] => inner.states.notify(SessionChange::Missed),
            threads => inner.notify_marks(threads, is_own).await,
        }
    }
}

impl ManagerState {
    /// Tells of these threads what is not known yet, or all of it.
    async fn notify_marks(&self, threads: &[ThreadId], tells_all: bool) {
        let marks = match self.store.thread_marks(threads).await {
            Ok(marks) => marks,
            // Who goes down needs no names any more.
            Err(_) if self.closing.is_cancelled() => return,
            Err(error) => {
                tracing::warn!("how threads are named is not known: {error}");
                return self.states.notify(SessionChange::Missed);
            }
        };
        for thread in threads {
            let mark = marks.iter().find(|(marked, _)| marked == thread);
            let mark = mark.map(|(_, mark)| mark.clone());
            if self.thread_watches.update_mark(thread, mark.clone()) || tells_all {
                self.states.notify(thread_change(thread, mark));
            }
        }
    }
}

fn thread_change(thread: &ThreadId, mark: Option<ThreadMark>) -> SessionChange {
    let removed = mark.is_none();
    let (label, cleared_upto) = match mark {
        Some(mark) => (mark.label, mark.cleared_upto),
        None => (String::new(), 0),
    };
    SessionChange::Thread {
        thread: thread.clone(),
        label,
        cleared_upto,
        removed,
    }
}
