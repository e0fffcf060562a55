//! What subscribers get, and when.

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
    assert_eq!(thread.hub.buffer.read().unwrap().events.len(), 6);
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

    fn read<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Record>, StoreError>> {
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
    assert_eq!(thread.hub.buffer.read().unwrap().events.capacity(), 0);
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
