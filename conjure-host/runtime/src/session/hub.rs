//! The newest events of an open thread, for any number of subscribers.
//!
//! The hub holds what was written to the log since the thread was opened, from the beginning of the
//! turn before the running one, and nothing when it rests. A subscriber reads at its own pace, and
//! what is no longer here from the log; a slow one slows nobody.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use conjure_core::chat::{Event, EventId};
use tokio::sync::watch;

use conjure_store::{Log, StoreError, ThreadId};

/// Events that are read from the log at once.
const PAGE: usize = 500;
/// How long is waited before a log that failed is read again.
const AGAIN: Duration = Duration::from_secs(1);

/// An event with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Stamped {
    /// Number of the event in the thread.
    pub id: EventId,
    /// What happened.
    pub event: Event,
}

/// Where events are published.
#[derive(Debug)]
pub(crate) struct Hub {
    buffer: RwLock<EventBuffer>,
    /// How many were published.
    length: watch::Sender<u64>,
    /// How many were, the last time that one was more than a piece of a text.
    beyond_pieces: watch::Sender<u64>,
    /// Nothing more is written by this host, for now.
    closed: AtomicBool,
}

/// The newest events, kept in memory for subscribers.
#[derive(Debug)]
struct EventBuffer {
    events: VecDeque<Arc<Stamped>>,
    /// How many were published before these.
    dropped: u64,
    /// Up to which event none is held; nothing where there are none before these.
    floor: Option<EventId>,
    /// Where the newest turn begins among all that were published.
    turn: u64,
}

/// The next event of a subscriber, if it has come.
enum NextEvent {
    Event(Arc<Stamped>),
    /// Nothing yet.
    None,
    /// The next event is in the log only, or would be.
    InLog,
}

impl EventBuffer {
    /// Lets go of the first of its events.
    fn drop_first(&mut self, count: usize) {
        if let Some(last) = self.events.drain(..count).next_back() {
            self.floor = Some(last.id);
        }
        self.dropped += count as u64;
    }

    /// Where what comes behind `after` begins, among all that were published.
    fn position_after(&self, after: Option<EventId>) -> u64 {
        let here = self
            .events
            .partition_point(|stamped| Some(stamped.id) <= after);
        self.dropped + here as u64
    }

    fn push(&mut self, stamped: Stamped) {
        if matches!(stamped.event, Event::TurnStarted { .. }) {
            let before = self.turn.saturating_sub(self.dropped);
            self.drop_first(usize::try_from(before).unwrap_or_default());
            self.turn = self.dropped + self.events.len() as u64;
        }
        self.events.push_back(Arc::new(stamped));
    }
}

impl Hub {
    /// A hub for the events of this epoch.
    pub(crate) fn new(epoch: u64) -> Arc<Self> {
        let held = EventBuffer {
            events: VecDeque::new(),
            dropped: 0,
            floor: (epoch > 1).then(|| EventId {
                epoch: epoch - 1,
                seq: u64::MAX,
            }),
            turn: 0,
        };
        Arc::new(Self {
            buffer: RwLock::new(held),
            length: watch::Sender::new(0),
            beyond_pieces: watch::Sender::new(0),
            closed: AtomicBool::new(false),
        })
    }

    /// Shows events that have been written.
    pub(crate) fn publish(&self, new: Vec<Stamped>) {
        if new.is_empty() {
            return;
        }
        let is_beyond_pieces = !new.iter().all(|stamped| is_piece(&stamped.event));
        let length = {
            let mut held = self.buffer.write().unwrap_or_else(PoisonError::into_inner);
            for stamped in new {
                held.push(stamped);
            }
            held.dropped + held.events.len() as u64
        };
        self.length.send_replace(length);
        if is_beyond_pieces {
            self.beyond_pieces.send_replace(length);
        }
    }

    /// Holds nothing any more of what was published so far.
    pub(crate) fn rest(&self) {
        let mut held = self.buffer.write().unwrap_or_else(PoisonError::into_inner);
        let all = held.events.len();
        held.drop_first(all);
        held.events.shrink_to_fit();
    }

    /// Tells subscribers that nothing more comes.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.length.send_modify(|_| {});
        self.beyond_pieces.send_modify(|_| {});
    }

    /// Follows the thread from behind `after`, or from its beginning.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        after: Option<EventId>,
        log: Arc<dyn Log>,
        thread: ThreadId,
    ) -> Subscription {
        let held = self.buffer.read().unwrap_or_else(PoisonError::into_inner);
        let next = held.position_after(after);
        let is_behind = after < held.floor;
        drop(held);
        Subscription {
            hub: Arc::clone(self),
            next,
            after,
            is_behind,
            read: VecDeque::new(),
            log,
            thread,
            published: self.length.subscribe(),
        }
    }

    /// Follows the thread from now on.
    pub(crate) fn subscribe_from_now(
        self: &Arc<Self>,
        log: Arc<dyn Log>,
        thread: ThreadId,
    ) -> Subscription {
        let newest = {
            let held = self.buffer.read().unwrap_or_else(PoisonError::into_inner);
            held.events.back().map(|stamped| stamped.id).or(held.floor)
        };
        self.subscribe(newest, log, thread)
    }

    /// The last event before the turn that runs, or before now where none does, if there is one.
    pub(crate) fn before_turn(&self) -> Option<EventId> {
        let held = self.buffer.read().unwrap_or_else(PoisonError::into_inner);
        let begin = usize::try_from(held.turn.saturating_sub(held.dropped)).unwrap_or(usize::MAX);
        let is_over = |stamped: &Arc<Stamped>| matches!(stamped.event, Event::Done { .. });
        let runs = held.events.get(begin).is_some_and(|first| {
            matches!(first.event, Event::TurnStarted { .. })
                && !held.events.range(begin..).any(is_over)
        });
        let shown = if runs { begin } else { held.events.len() };
        let before = shown.checked_sub(1).and_then(|last| held.events.get(last));
        before.map(|stamped| stamped.id).or(held.floor)
    }

    /// Follows the thread from now on, for whoever does nothing about pieces of a text: they wake
    /// nobody, and come together with what comes behind them.
    pub(crate) fn subscribe_beyond_pieces(
        self: &Arc<Self>,
        log: Arc<dyn Log>,
        thread: ThreadId,
    ) -> Subscription {
        let published = self.beyond_pieces.subscribe();
        Subscription {
            published,
            ..self.subscribe_from_now(log, thread)
        }
    }
}

/// Whether an event is a piece of a text, of which there are thousands.
pub(super) fn is_piece(event: &Event) -> bool {
    matches!(
        event,
        Event::Content { .. } | Event::Thinking { .. } | Event::ToolOutput { .. }
    )
}

/// Follows a thread's events.
pub struct Subscription {
    hub: Arc<Hub>,
    /// Where its next event is among all that were published.
    next: u64,
    /// What the subscriber has seen. It may be ahead of what is published: a commit can be read from
    /// the store before its events are shown here.
    after: Option<EventId>,
    /// Whether what is next is in the log only.
    is_behind: bool,
    /// What was read there.
    read: VecDeque<Arc<Stamped>>,
    log: Arc<dyn Log>,
    thread: ThreadId,
    /// Changes when it should look.
    published: watch::Receiver<u64>,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("thread", &self.thread)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Subscription {
    /// The next event, as soon as there is one. A log that cannot be read is tried again. Safe to
    /// drop and call again.
    pub async fn next(&mut self) -> Arc<Stamped> {
        match self.next_or_end().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// The next event, as soon as there is one; nothing when none comes any more. A log that cannot
    /// be read is tried again. Safe to drop and call again.
    pub(crate) async fn next_or_end(&mut self) -> Option<Arc<Stamped>> {
        loop {
            match self.next_until_closed().await {
                Ok(event) => return event,
                Err(error) => {
                    tracing::warn!(thread = %self.thread, "its events cannot be read: {error}");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// The next event, as soon as there is one; nothing when none comes any more. Safe to drop and
    /// call again.
    ///
    /// # Errors
    /// The log's; the next call tries again.
    pub(crate) async fn next_until_closed(&mut self) -> Result<Option<Arc<Stamped>>, StoreError> {
        loop {
            let is_closed = self.hub.closed.load(Ordering::Acquire);
            match self.find() {
                NextEvent::Event(event) => return Ok(Some(event)),
                NextEvent::InLog => self.read_more().await?,
                NextEvent::None if is_closed => return Ok(None),
                // The hub lives as long as this subscription, so its sender cannot be gone.
                NextEvent::None => drop(self.published.changed().await),
            }
        }
    }

    /// The next event, if there is one here now. What is in the log only comes by
    /// [`Subscription::next`].
    pub fn try_next(&mut self) -> Option<Arc<Stamped>> {
        match self.find() {
            NextEvent::Event(event) => Some(event),
            NextEvent::None | NextEvent::InLog => None,
        }
    }

    fn find(&mut self) -> NextEvent {
        if let Some(event) = self.read.pop_front() {
            self.after = Some(event.id);
            return NextEvent::Event(event);
        }
        self.published.mark_unchanged();
        let held = self
            .hub
            .buffer
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if self.is_behind || self.next < held.dropped {
            // What is next was dropped, unless it has been read elsewhere already.
            self.is_behind = self.after < held.floor;
            if self.is_behind {
                return NextEvent::InLog;
            }
            self.next = held.position_after(self.after);
        }
        loop {
            let here = usize::try_from(self.next - held.dropped).unwrap_or(usize::MAX);
            let Some(event) = held.events.get(here).cloned() else {
                return NextEvent::None;
            };
            self.next += 1;
            if Some(event.id) > self.after {
                self.after = Some(event.id);
                return NextEvent::Event(event);
            }
        }
    }

    async fn read_more(&mut self) -> Result<(), StoreError> {
        let floor = {
            let held = self.hub.buffer.read();
            held.unwrap_or_else(PoisonError::into_inner).floor
        };
        let events = self.log.read_events(&self.thread, self.after, PAGE).await?;
        if events.is_empty() {
            // None are missing then.
            self.after = self.after.max(floor);
        }
        let stamped = events.into_iter().map(|(id, event)| Stamped { id, event });
        self.read.extend(stamped.map(Arc::new));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
