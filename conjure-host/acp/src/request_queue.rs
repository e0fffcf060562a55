//! The order in which what a client asks about one session takes effect.
//!
//! Requests are worked on at the same time. Each takes a place when it arrives, so that a prompt
//! begins behind all that came before it, and a cancellation ends just that. Runs nothing itself:
//! turns that have begun are in the queue of the session.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The requests about one session that have not taken effect yet.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    places: Arc<watch::Sender<Places>>,
}

/// The places that are taken, by their numbers.
#[derive(Debug, Default)]
struct Places {
    next: u64,
    taken: BTreeMap<u64, TakenPlace>,
}

/// What is known of a request that has a place.
#[derive(Debug)]
struct TakenPlace {
    cancelled: CancellationToken,
    /// Whether it is itself the cancelling of others.
    cancels: bool,
}

/// The place of one request. Dropping it says that the request has taken effect.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    places: Arc<watch::Sender<Places>>,
    number: u64,
    cancelled: CancellationToken,
}

impl RequestQueue {
    /// Takes the place behind all others.
    pub(crate) fn enter(&self) -> QueuePlace {
        self.take_place(false)
    }

    fn take_place(&self, cancels: bool) -> QueuePlace {
        let cancelled = CancellationToken::new();
        let mut number = 0;
        // Nobody waits for a place to be taken.
        self.places.send_if_modified(|places| {
            number = places.next;
            places.next += 1;
            let cancelled = cancelled.clone();
            let place = TakenPlace { cancelled, cancels };
            places.taken.insert(number, place);
            false
        });
        QueuePlace {
            places: Arc::clone(&self.places),
            number,
            cancelled,
        }
    }

    /// Cancels all that has a place, and takes the place behind it: what comes later waits until
    /// the cancelling is done, and is not cancelled.
    pub(crate) fn cancel(&self) -> QueuePlace {
        let place = self.take_place(true);
        let before: Vec<CancellationToken> = {
            let places = self.places.borrow();
            let before = places.taken.range(..place.number);
            before.map(|(_, place)| place.cancelled.clone()).collect()
        };
        for cancelled in before {
            cancelled.cancel();
        }
        place
    }
}

impl QueuePlace {
    /// Waits until all that came before has taken effect.
    pub(crate) async fn first(&self) {
        let mut places = self.places.subscribe();
        let is_first = |places: &Places| {
            let first = places.taken.keys().next();
            first == Some(&self.number)
        };
        // The sender is this place's own: there is one as long as somebody waits.
        let _ = places.wait_for(is_first).await;
    }

    /// Waits until the client cancels what it asked so far.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Waits until no cancelling is at work.
    pub(crate) async fn no_cancelling(&self) {
        let mut places = self.places.subscribe();
        let is_none = |places: &Places| !places.taken.values().any(|place| place.cancels);
        let _ = places.wait_for(is_none).await;
    }

    /// Whether the client has cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.places
            .send_modify(|places| drop(places.taken.remove(&self.number)));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_first(place: &QueuePlace) -> bool {
        place.first().now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_place_is_first_when_all_before_it_are_given_up() {
        let queue = RequestQueue::default();
        let (one, two, three) = (queue.enter(), queue.enter(), queue.enter());
        assert!(is_first(&one) && !is_first(&two) && !is_first(&three));
        // What is given up while it waits lets nobody pass by those before it.
        drop(two);
        assert!(!is_first(&three));
        drop(one);
        assert!(is_first(&three));
    }

    #[tokio::test]
    async fn a_cancellation_is_for_what_came_before_it() {
        let queue = RequestQueue::default();
        let before = queue.enter();
        let cancelling = queue.cancel();
        let behind = queue.enter();
        assert!(before.is_cancelled() && !behind.is_cancelled());
        drop(before);
        assert!(!is_first(&behind), "the cancelling is not done");
        assert!(behind.no_cancelling().now_or_never().is_none());
        drop(cancelling);
        assert!(behind.no_cancelling().now_or_never().is_some());
        assert!(is_first(&behind));
    }
}
