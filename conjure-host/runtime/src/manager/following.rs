//! Following a thread: what the store has behind a number, then what is written, for as long as
//! anybody listens. Whether the thread is open here, and by which session, makes no difference.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use conjure_core::chat::EventId;

use super::open::ActiveThread;
use super::thread_watch::ThreadWatch;
use super::{Manager, ManagerError, ManagerState, lock};
use crate::session::{Stamped, Subscription, ThreadHandle};
use conjure_store::{StoreError, ThreadId, ThreadMark};

/// Events that are read at once.
const PAGE: usize = 500;
/// How often the store is asked for what another process wrote, where no word of it comes.
const LOOK: Duration = Duration::from_secs(1);

/// Follows a thread's events, each once and in order.
pub struct EventStream {
    inner: Arc<ManagerState>,
    thread: ThreadId,
    seen: Option<EventId>,
    read: VecDeque<Arc<Stamped>>,
    live: Option<Subscription>,
    /// What was followed last.
    followed: Weak<ThreadHandle>,
    word: ThreadWatch,
}

impl Manager {
    /// Follows a thread's events: behind `after`, or from its beginning.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    pub async fn events(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
    ) -> Result<EventStream, ManagerError> {
        let known = self.inner.store.thread(thread).await?;
        let mark = ThreadMark {
            label: known.label,
            cleared_upto: known.cleared_upto,
        };
        self.inner.listening.notify_one();
        Ok(EventStream {
            word: self.inner.words.follow(thread, mark),
            inner: Arc::clone(&self.inner),
            thread: thread.clone(),
            seen: after,
            read: VecDeque::new(),
            live: None,
            followed: Weak::new(),
        })
    }
}

impl Manager {
    /// Follows a thread's events from the beginning of the turn that runs, or from now on where
    /// none does. Where another process runs it, from when that opened the thread.
    ///
    /// # Errors
    /// As [`Manager::events`].
    pub async fn events_of_turn(&self, thread: &ThreadId) -> Result<EventStream, ManagerError> {
        let open = lock(&self.inner.live).get(thread).cloned();
        let after = match open {
            Some(open) => open.handle.before_turn(),
            None => {
                let known = self.inner.store.thread(thread).await?;
                let epoch = match known.is_open {
                    true => known.epoch.checked_sub(1),
                    false => Some(known.epoch),
                };
                let seq = u64::MAX;
                epoch.map(|epoch| EventId { epoch, seq })
            }
        };
        self.events(thread, after).await
    }
}

impl EventStream {
    /// The next event, as soon as there is one. Nothing when the manager goes down or the thread
    /// was removed. Safe to drop and call again.
    ///
    /// # Errors
    /// The store's; the next call tries again.
    pub async fn next(&mut self) -> Result<Option<Arc<Stamped>>, ManagerError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.seen = Some(event.id);
                return Ok(Some(event));
            }
            if let Some(live) = &mut self.live {
                if let Some(event) = live.next_until_closed().await? {
                    self.seen = Some(event.id);
                    return Ok(Some(event));
                }
                self.live = None;
            }
            self.word.mark_known();
            if self.read_interrupted().await? {
                continue;
            }
            let open = lock(&self.inner.live).get(&self.thread).cloned();
            if let Some(open) = open.filter(|open| !self.is_over(open)) {
                self.live = Some(open.follow(self.seen));
                self.followed = Arc::downgrade(&open.handle);
                continue;
            }
            if self.read_more().await? {
                continue;
            }
            if self.inner.closing.is_cancelled() && self.inner.tasks.is_empty() {
                return Ok(None);
            }
            tokio::select! {
                () = self.word.told() => {}
                () = tokio::time::sleep(LOOK) => match self.inner.store.thread(&self.thread).await {
                    Err(StoreError::NoThread { .. }) => return Ok(None),
                    found => drop(found?),
                },
            }
        }
    }

    /// Whether this one was followed to its end already.
    fn is_over(&self, open: &ActiveThread) -> bool {
        std::ptr::eq(self.followed.as_ptr(), Arc::as_ptr(&open.handle))
    }

    /// Reads what is told of a turn whose end its log has not, behind all that the log has of it.
    /// Whether there was something to read.
    async fn read_interrupted(&mut self) -> Result<bool, ManagerError> {
        let seen = self.seen;
        let turn = self.inner.interrupted.of(&self.thread);
        let Some(turn) = turn.filter(|turn| seen < Some(turn.last_id())) else {
            return Ok(false);
        };
        let events = self.inner.store.events_after(&self.thread, seen, PAGE);
        let written = events.await?.into_iter();
        let written = written.take_while(|(id, _)| id.epoch <= turn.epoch);
        let stamped = written.map(|(id, event)| Stamped { id, event });
        self.read.extend(stamped.map(Arc::new));
        if self.read.is_empty() {
            let told = turn.events().into_iter();
            let told = told.filter(|told| Some(told.id) > seen);
            self.read.extend(told.map(Arc::new));
        }
        Ok(true)
    }

    async fn read_more(&mut self) -> Result<bool, ManagerError> {
        let events = self.inner.store.events_after(&self.thread, self.seen, PAGE);
        let events = events.await?;
        let stamped = events.into_iter().map(|(id, event)| Stamped { id, event });
        self.read.extend(stamped.map(Arc::new));
        Ok(!self.read.is_empty())
    }
}
