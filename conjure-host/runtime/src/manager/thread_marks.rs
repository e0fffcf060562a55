//! Tells those who follow the sessions that a thread was named, cleared or removed: by this process,
//! and by others where somebody follows the thread here.

use std::sync::Weak;

use super::ManagerState;
use super::changes::SessionChange;
use conjure_store::{MarkedThread, MarkedThreads, ThreadId, ThreadMark};

/// Tells what this process does, for as long as a manager is there.
pub(super) async fn tell(inner: Weak<ManagerState>, mut marked: MarkedThreads) {
    while let Some(word) = marked.next().await {
        let Some(inner) = inner.upgrade() else { return };
        match word {
            MarkedThread::Thread(thread) => inner.tell_marks(&[thread], true).await,
            MarkedThread::Missed => inner.states.tell(SessionChange::Missed),
        }
    }
}

impl ManagerState {
    /// Tells of these threads what is not known yet, or all of it.
    pub(super) async fn tell_marks(&self, threads: &[ThreadId], tells_all: bool) {
        let marks = match self.store.thread_marks(threads).await {
            Ok(marks) => marks,
            Err(error) => {
                tracing::warn!("how threads are named is not known: {error}");
                return;
            }
        };
        for thread in threads {
            let mark = marks.iter().find(|(marked, _)| marked == thread);
            let mark = mark.map(|(_, mark)| mark.clone());
            if self.words.mark(thread, mark.clone()) || tells_all {
                self.states.tell(told(thread, mark));
            }
        }
    }
}

fn told(thread: &ThreadId, mark: Option<ThreadMark>) -> SessionChange {
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
