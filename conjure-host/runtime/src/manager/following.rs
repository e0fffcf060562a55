//! Following a thread: what the store has behind a number, then what is written, for as long as
//! anybody listens. Whether the thread is open here, and by which session, makes no difference.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{Event, EventId};

use super::interrupted_turns::is_unlogged_end;
use super::open::ActiveThread;
use super::thread_watch::{KnownMark, ThreadWatch};
use super::{Manager, ManagerError, ManagerState, lock};
use crate::session::{Stamped, Subscription, ThreadHandle};
use conjure_store::{StoreError, ThreadId, ThreadMark};

/// Events that are read at once.
const PAGE: usize = 500;
/// How often the store is asked for what another process wrote, where no word of it comes.
const LOOK: Duration = Duration::from_secs(1);

/// The turn whose end was told before its log had it.
enum ToldEnd {
    None,
    /// The last that there was.
    OfLast,
    /// The one of this id.
    Of(String),
}

/// Follows a thread's events, each once and in order.
pub struct EventStream {
    inner: Arc<ManagerState>,
    thread: ThreadId,
    seen: Option<EventId>,
    told_end: ToldEnd,
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
    #[boxed]
    pub async fn events(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
    ) -> Result<EventStream, ManagerError> {
        let mark = self.inner.known_mark(thread).await?;
        let told_end = self.told_end(thread, after).await?;
        self.inner.listening.notify_one();
        Ok(EventStream {
            word: self.inner.thread_watches.follow(thread, mark),
            inner: Arc::clone(&self.inner),
            thread: thread.clone(),
            seen: after,
            told_end,
            read: VecDeque::new(),
            live: None,
            followed: Weak::new(),
        })
    }

    /// The turn whose end was told to somebody who has seen so much, and has not read it in the log.
    async fn told_end(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
    ) -> Result<ToldEnd, ManagerError> {
        let Some(after) = after else {
            return Ok(ToldEnd::None);
        };
        let turn = self.inner.interrupted.of(thread);
        let turn = turn.filter(|turn| turn.last_id() <= after);
        let Some(turn) = turn else {
            return Ok(match is_unlogged_end(after) {
                true => ToldEnd::OfLast,
                false => ToldEnd::None,
            });
        };
        let last = Some(turn.last_id());
        let logged = self.inner.store.events_after(thread, last, PAGE).await?;
        let mut seen = logged.iter().take_while(|(id, _)| *id <= after);
        let is_closed =
            seen.any(|(_, event)| matches!(event, Event::Done { .. } | Event::TurnStarted { .. }));
        Ok(match is_closed {
            true => ToldEnd::None,
            false => ToldEnd::Of(turn.turn_id),
        })
    }
}

impl ManagerState {
    /// What is known of the mark of a thread that is there. Of one that is open here the store is
    /// asked nothing: when a network fails, all its clients come back at the same time.
    async fn known_mark(&self, thread: &ThreadId) -> Result<KnownMark, ManagerError> {
        if lock(&self.live).contains_key(thread) {
            return Ok(KnownMark::Unread);
        }
        let known = self.store.thread(thread).await?;
        Ok(KnownMark::Told(Some(ThreadMark {
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
        let open = lock(&self.inner.live).get(thread).cloned();
        let after = match open {
            Some(open) => open.handle.before_turn(),
            None => self.inner.store.thread(thread).await?.end_of_past(),
        };
        self.events(thread, after).await
    }
}

impl ToldEnd {
    fn is_of(&self, turn_id: &str) -> bool {
        match self {
            Self::None => false,
            Self::OfLast => true,
            Self::Of(turn) => turn == turn_id,
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
            if !self.is_told_already(&event) {
                return Ok(Some(event));
            }
        }
    }

    /// Whether an event says what was said of its turn when its log did not have that.
    fn is_told_already(&mut self, stamped: &Stamped) -> bool {
        match &stamped.event {
            Event::Done { turn_id, .. } if is_unlogged_end(stamped.id) => {
                self.told_end = ToldEnd::Of(turn_id.clone());
                false
            }
            Event::TurnStarted { .. } => {
                self.told_end = ToldEnd::None;
                false
            }
            Event::Error(_) => !matches!(self.told_end, ToldEnd::None),
            Event::Done { turn_id, .. } => {
                let is_told = self.told_end.is_of(turn_id);
                if is_told {
                    self.told_end = ToldEnd::None;
                }
                is_told
            }
            _ => false,
        }
    }

    async fn next_event(&mut self) -> Result<Option<Arc<Stamped>>, ManagerError> {
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
