//! Following a thread: what the store has behind a number, then what is written, for as long as
//! anybody listens. Whether the thread is open here, and by which session, makes no difference.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{Event, EventId};

use super::active_thread::ActiveThread;
use super::interrupted_turns::is_unlogged_end;
use super::thread_watch::{MarkState, ThreadWatch};
use super::{Manager, ManagerError, ManagerState, lock};
use crate::session::{Stamped, Subscription, ThreadHandle};
use conjure_store::{StoreError, ThreadId, ThreadMark};

/// Events that are read at once.
const PAGE: usize = 500;
/// How often the store is asked for what another process wrote, where no word of it comes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The turn whose end was told before its log had it.
enum AnnouncedEnd {
    None,
    /// The last that there was.
    LastTurn,
    /// The one of this id.
    Turn(String),
}

/// Follows a thread's events, each once and in order.
pub struct EventStream {
    inner: Arc<ManagerState>,
    thread: ThreadId,
    last_seen: Option<EventId>,
    announced_end: AnnouncedEnd,
    read: VecDeque<Arc<Stamped>>,
    live: Option<Subscription>,
    /// What was followed last.
    last_handle: Weak<ThreadHandle>,
    watch: ThreadWatch,
}

impl Manager {
    /// Follows a thread's events: behind `after`, or from its beginning.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
    pub async fn events(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
    ) -> Result<EventStream, ManagerError> {
        let mark = self.inner.thread_mark_state(thread).await?;
        let told_end = self.announced_end(thread, after).await?;
        self.inner.listening.notify_one();
        Ok(EventStream {
            watch: self.inner.thread_watches.follow(thread, mark),
            inner: Arc::clone(&self.inner),
            thread: thread.clone(),
            last_seen: after,
            announced_end: told_end,
            read: VecDeque::new(),
            live: None,
            last_handle: Weak::new(),
        })
    }

    /// The turn whose end was told to somebody who has seen so much, and has not read it in the log.
    async fn announced_end(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
    ) -> Result<AnnouncedEnd, ManagerError> {
        let Some(after) = after else {
            return Ok(AnnouncedEnd::None);
        };
        let turn = self.inner.interrupted.of(thread);
        let turn = turn.filter(|turn| turn.last_id() <= after);
        let Some(turn) = turn else {
            return Ok(match is_unlogged_end(after) {
                true => AnnouncedEnd::LastTurn,
                false => AnnouncedEnd::None,
            });
        };
        let last = Some(turn.last_id());
        let logged = self.inner.store.events_after(thread, last, PAGE).await?;
        let mut seen = logged.iter().take_while(|(id, _)| *id <= after);
        let is_closed =
            seen.any(|(_, event)| matches!(event, Event::Done { .. } | Event::TurnStarted { .. }));
        Ok(match is_closed {
            true => AnnouncedEnd::None,
            false => AnnouncedEnd::Turn(turn.turn_id),
        })
    }
}

impl ManagerState {
    /// What is known of the mark of a thread that is there. Of one that is open here the store is
    /// asked nothing: when a network fails, all its clients come back at the same time.
    async fn thread_mark_state(&self, thread: &ThreadId) -> Result<MarkState, ManagerError> {
        if lock(&self.active_threads).contains_key(thread) {
            return Ok(MarkState::Unread);
        }
        let known = self.store.thread(thread).await?;
        Ok(MarkState::Announced(Some(ThreadMark {
            label: known.label,
            cleared_upto: known.cleared_upto,
        })))
    }
}

impl Manager {
    /// Follows a thread's events from the beginning of the turn that runs, or from now on where
    /// none does. Where another process runs it, from when that opened the thread.
    ///
    /// # Errors
    /// As [`Manager::events`].
    #[boxed]
    pub async fn events_of_turn(&self, thread: &ThreadId) -> Result<EventStream, ManagerError> {
        let open = lock(&self.inner.active_threads).get(thread).cloned();
        let after = match open {
            Some(open) => open.handle.before_turn(),
            None => self.inner.store.thread(thread).await?.history_end(),
        };
        self.events(thread, after).await
    }
}

impl AnnouncedEnd {
    fn is_of(&self, turn_id: &str) -> bool {
        match self {
            Self::None => false,
            Self::LastTurn => true,
            Self::Turn(turn) => turn == turn_id,
        }
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
            let Some(event) = self.next_event().await? else {
                return Ok(None);
            };
            if !self.is_duplicate(&event) {
                return Ok(Some(event));
            }
        }
    }

    /// Whether an event says what was said of its turn when its log did not have that.
    fn is_duplicate(&mut self, stamped: &Stamped) -> bool {
        match &stamped.event {
            Event::Done { turn_id, .. } if is_unlogged_end(stamped.id) => {
                self.announced_end = AnnouncedEnd::Turn(turn_id.clone());
                false
            }
            Event::TurnStarted { .. } => {
                self.announced_end = AnnouncedEnd::None;
                false
            }
            Event::Error(_) => !matches!(self.announced_end, AnnouncedEnd::None),
            Event::Done { turn_id, .. } => {
                let is_told = self.announced_end.is_of(turn_id);
                if is_told {
                    self.announced_end = AnnouncedEnd::None;
                }
                is_told
            }
            _ => false,
        }
    }

    async fn next_event(&mut self) -> Result<Option<Arc<Stamped>>, ManagerError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.last_seen = Some(event.id);
                return Ok(Some(event));
            }
            if let Some(live) = &mut self.live {
                if let Some(event) = live.next_until_closed().await? {
                    self.last_seen = Some(event.id);
                    return Ok(Some(event));
                }
                self.live = None;
            }
            self.watch.mark_unchanged();
            if self.read_interrupted().await? {
                continue;
            }
            let open = lock(&self.inner.active_threads).get(&self.thread).cloned();
            if let Some(open) = open.filter(|open| !self.is_over(open)) {
                self.live = Some(open.follow(self.last_seen));
                self.last_handle = Arc::downgrade(&open.handle);
                continue;
            }
            if self.read_more().await? {
                continue;
            }
            if self.inner.closing.is_cancelled() && self.inner.tasks.is_empty() {
                return Ok(None);
            }
            tokio::select! {
                () = self.watch.changed() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => match self.inner.store.thread(&self.thread).await {
                    Err(StoreError::NoThread { .. }) => return Ok(None),
                    found => drop(found?),
                },
            }
        }
    }

    /// Whether this one was followed to its end already.
    fn is_over(&self, open: &ActiveThread) -> bool {
        std::ptr::eq(self.last_handle.as_ptr(), Arc::as_ptr(&open.handle))
    }

    /// Reads what is told of a turn whose end its log has not, behind all that the log has of it.
    /// Whether there was something to read.
    async fn read_interrupted(&mut self) -> Result<bool, ManagerError> {
        let seen = self.last_seen;
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
        let events = self
            .inner
            .store
            .events_after(&self.thread, self.last_seen, PAGE);
        let events = events.await?;
        let stamped = events.into_iter().map(|(id, event)| Stamped { id, event });
        self.read.extend(stamped.map(Arc::new));
        Ok(!self.read.is_empty())
    }
}
