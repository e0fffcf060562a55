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
    /// Its number in the thread.
    pub id: EventId,
    /// What happened.
    pub event: Event,
}

/// Where events are published.
#[derive(Debug)]
pub(crate) struct Hub {
    held: RwLock<EventBuffer>,
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
    /// Its next event is in the log only, or would be.
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
    fn behind(&self, after: Option<EventId>) -> u64 {
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
            held: RwLock::new(held),
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
            let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
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
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
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
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let next = held.behind(after);
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
            let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
            held.events.back().map(|stamped| stamped.id).or(held.floor)
        };
        self.subscribe(newest, log, thread)
    }

    /// The last event before the turn that runs, or before now where none does, if there is one.
    pub(crate) fn before_turn(&self) -> Option<EventId> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
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
fn is_piece(event: &Event) -> bool {
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
        let held = self.hub.held.read().unwrap_or_else(PoisonError::into_inner);
        if self.is_behind || self.next < held.dropped {
            // What is next was dropped, unless it has been read elsewhere already.
            self.is_behind = self.after < held.floor;
            if self.is_behind {
                return NextEvent::InLog;
            }
            self.next = held.behind(self.after);
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
            let held = self.hub.held.read();
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
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake, Waker};

    use futures_util::future::BoxFuture;

    use super::*;
    use conjure_store::{MemoryLog, Record, ThreadLog};

    fn id(seq: u64) -> EventId {
        EventId { epoch: 1, seq }
    }

    fn stamped(seq: u64) -> Stamped {
        let event = Event::Content {
            delta: seq.to_string(),
        };
        Stamped { id: id(seq), event }
    }

    fn turn(seq: u64) -> Stamped {
        let event = Event::TurnStarted {
            turn_id: seq.to_string(),
        };
        Stamped { id: id(seq), event }
    }

    /// A thread that writes to its log what it shows.
    struct Thread {
        hub: Arc<Hub>,
        log: Arc<MemoryLog>,
        open: Box<dyn conjure_store::ThreadLog>,
        id: ThreadId,
    }

    impl Thread {
        async fn new() -> Self {
            let (log, id) = (Arc::new(MemoryLog::default()), ThreadId::fresh());
            Self {
                hub: Hub::new(1),
                open: log.open(&id).await.unwrap(),
                log,
                id,
            }
        }

        async fn write(&mut self, new: &[Stamped]) {
            let record = |stamped: &Stamped| Record::Event {
                id: stamped.id,
                event: stamped.event.clone(),
            };
            let records: Vec<Record> = new.iter().map(record).collect();
            self.open.append(&records, false).await.unwrap();
        }

        async fn publish(&mut self, new: Vec<Stamped>) {
            self.write(&new).await;
            self.hub.publish(new);
        }

        fn follow(&self, after: Option<u64>) -> Subscription {
            let log: Arc<dyn Log> = Arc::clone(&self.log) as _;
            self.hub.subscribe(after.map(id), log, self.id.clone())
        }
    }

    async fn seen(subscription: &mut Subscription, count: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        for _ in 0..count {
            seen.push(subscription.next().await.id.seq);
        }
        assert!(subscription.try_next().is_none(), "no more comes");
        seen
    }

    #[tokio::test]
    async fn who_comes_into_a_turn_follows_from_its_beginning_and_else_from_now() {
        let mut thread = Thread::new().await;
        let done = |seq| Stamped {
            id: id(seq),
            event: Event::Done {
                turn_id: String::new(),
                outcome: "completed".to_owned(),
                stop_reason: None,
                text: String::new(),
            },
        };
        thread.publish(vec![turn(1), stamped(2)]).await;
        assert_eq!(thread.hub.before_turn(), None);
        thread.publish(vec![done(3)]).await;
        thread.publish(vec![turn(4), stamped(5)]).await;
        assert_eq!(thread.hub.before_turn(), Some(id(3)));
        thread.publish(vec![done(6), stamped(7)]).await;
        assert_eq!(thread.hub.before_turn(), Some(id(7)));
        thread.hub.rest();
        thread.publish(vec![turn(8)]).await;
        assert_eq!(thread.hub.before_turn(), Some(id(7)));
    }

    #[tokio::test]
    async fn a_subscriber_who_read_ahead_in_the_store_gets_nothing_twice() {
        let mut thread = Thread::new().await;
        thread.publish(vec![stamped(1)]).await;
        let (mut behind, mut ahead) = (thread.follow(None), thread.follow(Some(3)));
        let new = vec![stamped(2), stamped(3), stamped(4)];
        thread.publish(new).await;
        assert_eq!(seen(&mut behind, 4).await, [1, 2, 3, 4]);
        assert_eq!(seen(&mut ahead, 1).await, [4]);
    }

    #[tokio::test]
    async fn events_of_turns_before_the_last_are_read_from_the_log() {
        let mut thread = Thread::new().await;
        let mut slow = thread.follow(None);
        thread.publish(vec![turn(1), stamped(2), stamped(3)]).await;
        let log: Arc<dyn Log> = Arc::clone(&thread.log) as _;
        let mut now = thread.hub.subscribe_from_now(log, thread.id.clone());
        for first in [4, 7, 10] {
            let new = vec![turn(first), stamped(first + 1), stamped(first + 2)];
            thread.publish(new).await;
        }
        assert_eq!(thread.hub.held.read().unwrap().events.len(), 6);
        let all: Vec<u64> = (1..=12).collect();
        assert_eq!(seen(&mut slow, 12).await, all);
        assert_eq!(seen(&mut now, 9).await, all[3..]);
        for after in 0..12 {
            let mut late = thread.follow(Some(after));
            let rest = seen(&mut late, 12 - after as usize).await;
            assert_eq!(rest, all[after as usize..]);
        }
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn pieces_wake_nobody_who_does_nothing_about_them_and_come_with_what_is_behind() {
        let mut thread = Thread::new().await;
        let log: Arc<dyn Log> = Arc::clone(&thread.log) as _;
        let mut beyond = thread.hub.subscribe_beyond_pieces(log, thread.id.clone());
        let wakes = Arc::new(Wakes::default());
        {
            let waker = Waker::from(Arc::clone(&wakes));
            let mut next = pin!(beyond.next());
            assert!(
                next.as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            thread.publish(vec![stamped(1), stamped(2)]).await;
            assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
            thread.publish(vec![stamped(3), turn(4)]).await;
            assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        }
        assert_eq!(seen(&mut beyond, 4).await, [1, 2, 3, 4]);
        thread.publish(vec![stamped(5)]).await;
        thread.hub.close();
        assert_eq!(seen(&mut beyond, 1).await, [5]);
        assert!(beyond.next_or_end().await.is_none());
    }

    /// A log whose events cannot be read so many times.
    struct Failing(Arc<MemoryLog>, AtomicUsize);

    impl Log for Failing {
        fn open<'a>(
            &'a self,
            thread: &'a ThreadId,
        ) -> BoxFuture<'a, Result<Box<dyn ThreadLog>, StoreError>> {
            self.0.open(thread)
        }

        fn read<'a>(
            &'a self,
            thread: &'a ThreadId,
        ) -> BoxFuture<'a, Result<Vec<Record>, StoreError>> {
            let left = self
                .1
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                });
            match left {
                Ok(_) => Box::pin(std::future::ready(Err(StoreError::Closed))),
                Err(_) => self.0.read(thread),
            }
        }

        fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>> {
            self.0.threads()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_cannot_be_read_is_read_again() {
        let mut thread = Thread::new().await;
        thread.publish(vec![turn(1), stamped(2)]).await;
        thread.hub.rest();
        let log = Failing(Arc::clone(&thread.log), AtomicUsize::new(2));
        let mut late = thread.hub.subscribe(None, Arc::new(log), thread.id.clone());
        assert!(late.next_until_closed().await.is_err());
        assert!(late.try_next().is_none());
        assert_eq!(seen(&mut late, 2).await, [1, 2]);
    }

    #[tokio::test]
    async fn a_hub_that_rests_holds_nothing_and_loses_nothing() {
        let mut thread = Thread::new().await;
        let (mut slow, mut quick) = (thread.follow(None), thread.follow(None));
        thread.publish(vec![turn(1), stamped(2), stamped(3)]).await;
        assert_eq!(seen(&mut quick, 3).await, [1, 2, 3]);
        thread.hub.rest();
        thread.hub.rest();
        assert_eq!(thread.hub.held.read().unwrap().events.capacity(), 0);
        let mut late = thread.follow(Some(1));
        for first in [4, 6] {
            thread.publish(vec![turn(first), stamped(first + 1)]).await;
        }
        assert_eq!(seen(&mut slow, 7).await, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(seen(&mut quick, 4).await, [4, 5, 6, 7]);
        assert_eq!(seen(&mut late, 6).await, [2, 3, 4, 5, 6, 7]);
    }

    #[tokio::test]
    async fn a_page_of_the_log_may_reach_behind_what_is_shown() {
        let mut thread = Thread::new().await;
        for first in [1, 3, 5] {
            thread.publish(vec![turn(first), stamped(first + 1)]).await;
        }
        let mut late = thread.follow(None);
        // In the log, and shown only later.
        thread.write(&[stamped(7)]).await;
        assert_eq!(seen(&mut late, 7).await, [1, 2, 3, 4, 5, 6, 7]);
        thread.hub.publish(vec![stamped(7), stamped(8)]);
        assert_eq!(seen(&mut late, 1).await, [8]);
    }

    #[tokio::test]
    async fn a_thread_opened_again_shows_what_was_before_and_then_what_comes() {
        let mut thread = Thread::new().await;
        thread.publish(vec![turn(1), stamped(2)]).await;
        thread.hub = Hub::new(2);
        let mut all = thread.follow(None);
        assert_eq!(seen(&mut all, 2).await, [1, 2]);
        let event = stamped(1).event;
        let id = EventId { epoch: 2, seq: 1 };
        thread.publish(vec![Stamped { id, event }]).await;
        assert_eq!(all.next().await.id, id);
        thread.hub.close();
        assert!(all.next_until_closed().await.unwrap().is_none());
    }
}
