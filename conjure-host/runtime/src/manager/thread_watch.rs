//! Tells those who follow a thread that it was opened or closed here, or written by
//! somebody else than the session that has it open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::lock;
use conjure_store::{ThreadId, ThreadMark};

/// Followers of each thread. A change wakes those of its own thread, and costs the others nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadWatches(Arc<Mutex<HashMap<ThreadId, FollowedThread>>>);

/// A thread that somebody follows.
#[derive(Debug)]
struct FollowedThread {
    notifier: watch::Sender<()>,
    mark: MarkState,
}

/// What is known of a thread's mark where somebody follows the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MarkState {
    /// Nothing yet. A thread that is open here is followed without asking the store for it.
    Unread,
    /// As it was told last; nothing where the thread was removed.
    Announced(Option<ThreadMark>),
}

impl ThreadWatches {
    /// Tells those who follow a thread to look again.
    pub(super) fn notify(&self, thread: &ThreadId) {
        if let Some(followed) = lock(&self.0).get(thread) {
            followed.notifier.send_replace(());
        }
    }

    /// Tells all.
    pub(super) fn notify_all(&self) {
        for followed in lock(&self.0).values() {
            followed.notifier.send_replace(());
        }
    }

    /// Whether anybody follows.
    pub(super) fn is_followed(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Whether anybody follows this thread.
    pub(super) fn has(&self, thread: &ThreadId) -> bool {
        lock(&self.0).contains_key(thread)
    }

    /// The threads that are followed.
    pub(super) fn followed(&self) -> Vec<ThreadId> {
        lock(&self.0).keys().cloned().collect()
    }

    /// Takes the mark of a thread in; nothing where that was removed. Whether somebody follows the
    /// thread and it was not known to be so.
    pub(super) fn update_mark(&self, thread: &ThreadId, mark: Option<ThreadMark>) -> bool {
        let mut threads = lock(&self.0);
        let Some(followed) = threads.get_mut(thread) else {
            return false;
        };
        let mark = MarkState::Announced(mark);
        let is_new = followed.mark != mark;
        followed.mark = mark;
        is_new
    }

    /// Follows a thread, with what is known of its mark.
    pub(super) fn follow(&self, thread: &ThreadId, mark: MarkState) -> ThreadWatch {
        let mut threads = lock(&self.0);
        let followed = threads
            .entry(thread.clone())
            .or_insert_with(|| FollowedThread {
                notifier: watch::Sender::default(),
                mark,
            });
        ThreadWatch {
            receiver: Some(followed.notifier.subscribe()),
            thread: thread.clone(),
            watches: self.clone(),
        }
    }
}

/// Follows a thread.
#[derive(Debug)]
pub(super) struct ThreadWatch {
    /// Nothing only while it is dropped.
    receiver: Option<watch::Receiver<()>>,
    thread: ThreadId,
    watches: ThreadWatches,
}

impl ThreadWatch {
    /// What was told so far is known.
    pub(super) fn mark_unchanged(&mut self) {
        if let Some(told) = &mut self.receiver {
            told.mark_unchanged();
        }
    }

    /// Waits until something is told that is not known. Safe to drop and call again.
    pub(super) async fn changed(&mut self) {
        let told = match &mut self.receiver {
            Some(told) => told.changed().await,
            None => Ok(()),
        };
        // The sender stays as long as anybody follows.
        if told.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for ThreadWatch {
    fn drop(&mut self) {
        let mut threads = lock(&self.watches.0);
        self.receiver = None;
        let is_followed = |followed: &FollowedThread| followed.notifier.receiver_count() > 0;
        if !threads.get(&self.thread).is_some_and(is_followed) {
            threads.remove(&self.thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn mark(label: &str) -> ThreadMark {
        ThreadMark {
            label: label.to_owned(),
            cleared_upto: 0,
        }
    }

    fn known(label: &str) -> MarkState {
        MarkState::Announced(Some(mark(label)))
    }

    #[test]
    fn a_mark_is_new_once_and_only_where_somebody_follows() {
        let (watches, thread) = (ThreadWatches::default(), ThreadId::fresh());
        assert!(!watches.update_mark(&thread, Some(mark("one"))));
        let _followed = watches.follow(&thread, known("one"));
        assert!(!watches.update_mark(&thread, Some(mark("one"))));
        assert!(watches.update_mark(&thread, Some(mark("two"))));
        assert!(!watches.update_mark(&thread, Some(mark("two"))));
        assert!(watches.update_mark(&thread, None));
        assert_eq!(watches.followed(), [thread]);
    }

    #[test]
    fn a_mark_that_nobody_read_is_new_when_it_is_read() {
        let (watches, thread) = (ThreadWatches::default(), ThreadId::fresh());
        let _followed = watches.follow(&thread, MarkState::Unread);
        assert!(watches.update_mark(&thread, Some(mark("one"))));
        assert!(!watches.update_mark(&thread, Some(mark("one"))));
    }

    #[tokio::test]
    async fn word_goes_to_those_who_follow_the_thread_and_waits_for_them() {
        let (watches, one, two) = (
            ThreadWatches::default(),
            ThreadId::fresh(),
            ThreadId::fresh(),
        );
        let (mut first, mut second) = (
            watches.follow(&one, known("")),
            watches.follow(&one, known("")),
        );
        let mut other = watches.follow(&two, known(""));
        watches.notify(&one);
        first.changed().await;
        assert!(first.changed().now_or_never().is_none(), "it is told once");
        second.mark_unchanged();
        assert!(second.changed().now_or_never().is_none(), "it is known");
        assert!(
            other.changed().now_or_never().is_none(),
            "it is not of that"
        );
    }

    #[test]
    fn a_thread_that_nobody_follows_is_forgotten() {
        let (watches, thread) = (ThreadWatches::default(), ThreadId::fresh());
        watches.notify(&thread);
        let (first, second) = (
            watches.follow(&thread, known("")),
            watches.follow(&thread, known("")),
        );
        drop(first);
        assert_eq!(lock(&watches.0).len(), 1);
        drop(second);
        assert!(lock(&watches.0).is_empty());
    }
}
