//! The events of an open thread, for any number of subscribers.
//!
//! A subscriber reads at its own pace from a list that only grows; a slow one slows nobody. The
//! list holds what was written to the log, in the log's order, and nothing before that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use conjure_core::chat::{Event, EventId};
use tokio::sync::watch;

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
    events: RwLock<Vec<Arc<Stamped>>>,
    length: watch::Sender<usize>,
    /// Nothing more is written by this host, for now.
    closed: AtomicBool,
}

impl Hub {
    /// A hub that begins with what the log held.
    pub(crate) fn new(events: Vec<Stamped>) -> Arc<Self> {
        let events: Vec<_> = events.into_iter().map(Arc::new).collect();
        let length = watch::Sender::new(events.len());
        Arc::new(Self {
            events: RwLock::new(events),
            length,
            closed: AtomicBool::new(false),
        })
    }

    /// Shows events that have been written.
    pub(crate) fn publish(&self, new: Vec<Stamped>) {
        if new.is_empty() {
            return;
        }
        let length = {
            let mut events = self.events.write().unwrap_or_else(PoisonError::into_inner);
            events.extend(new.into_iter().map(Arc::new));
            events.len()
        };
        self.length.send_replace(length);
    }

    /// Tells subscribers that nothing more comes.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.length.send_modify(|_| {});
    }

    /// Follows the thread from behind `after`, or from its beginning.
    pub(crate) fn subscribe(self: &Arc<Self>, after: Option<EventId>) -> Subscription {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        let next = after.map_or(0, |after| {
            events.partition_point(|stamped| stamped.id <= after)
        });
        drop(events);
        Subscription {
            hub: Arc::clone(self),
            next,
            after,
            length: self.length.subscribe(),
        }
    }

    /// Follows the thread from now on.
    pub(crate) fn subscribe_from_now(self: &Arc<Self>) -> Subscription {
        let next = self
            .events
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len();
        Subscription {
            hub: Arc::clone(self),
            next,
            after: None,
            length: self.length.subscribe(),
        }
    }
}

/// Follows a thread's events.
#[derive(Debug)]
pub struct Subscription {
    hub: Arc<Hub>,
    next: usize,
    /// What the subscriber has seen. It may be ahead of what is published: a commit can be read from
    /// the store before its events are shown here.
    after: Option<EventId>,
    length: watch::Receiver<usize>,
}

impl Subscription {
    /// The next event, as soon as there is one. Safe to drop and call again.
    pub async fn next(&mut self) -> Arc<Stamped> {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            if self.length.changed().await.is_err() {
                // The hub lives as long as this subscription, so its sender cannot be gone.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next event, as soon as there is one; nothing when none comes any more. Safe to drop and
    /// call again.
    pub(crate) async fn next_until_closed(&mut self) -> Option<Arc<Stamped>> {
        loop {
            let is_closed = self.hub.closed.load(Ordering::Acquire);
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if is_closed || self.length.changed().await.is_err() {
                return None;
            }
        }
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Option<Arc<Stamped>> {
        self.length.mark_unchanged();
        let events = self
            .hub
            .events
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            let event = events.get(self.next).cloned()?;
            self.next += 1;
            if Some(event.id) > self.after {
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(seq: u64) -> Stamped {
        Stamped {
            id: EventId { epoch: 1, seq },
            event: Event::Content {
                delta: seq.to_string(),
            },
        }
    }

    #[test]
    fn a_subscriber_who_read_ahead_in_the_store_gets_nothing_twice() {
        let hub = Hub::new(vec![stamped(1)]);
        let mut behind = hub.subscribe(None);
        let mut ahead = hub.subscribe(Some(EventId { epoch: 1, seq: 3 }));
        hub.publish(vec![stamped(2), stamped(3), stamped(4)]);
        let seen = |subscription: &mut Subscription| -> Vec<u64> {
            std::iter::from_fn(|| subscription.try_next())
                .map(|event| event.id.seq)
                .collect()
        };
        assert_eq!(seen(&mut behind), [1, 2, 3, 4]);
        assert_eq!(seen(&mut ahead), [4]);
    }
}
