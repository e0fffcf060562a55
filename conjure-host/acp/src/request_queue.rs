//! The order in which what a client asks about one session takes effect.
//!
//! Requests are worked on at the same time. Each takes a ticket when it arrives, so that a prompt
//! begins behind all that came before it, and a cancellation ends just that. Runs nothing itself:
//! turns that have begun are in the queue of the session.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The requests about one session that have not taken effect yet.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    tickets: Arc<watch::Sender<Tickets>>,
}

/// The tickets that are taken, by their numbers.
#[derive(Debug, Default)]
struct Tickets {
    next: u64,
    queued: BTreeMap<u64, QueuedRequest>,
}

/// What is known of a request that has a ticket.
#[derive(Debug)]
struct QueuedRequest {
    cancelled: CancellationToken,
    /// Whether it is itself the cancelling of others.
    cancels: bool,
}

/// The ticket of one request. Dropping it says that the request has taken effect.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    tickets: Arc<watch::Sender<Tickets>>,
    number: u64,
    cancelled: CancellationToken,
}

impl RequestQueue {
    /// A ticket behind all others.
    pub(crate) fn enter(&self) -> QueueTicket {
        self.issue(false)
    }

    fn issue(&self, cancels: bool) -> QueueTicket {
        let cancelled = CancellationToken::new();
        let mut number = 0;
        // Nobody waits for a ticket to be issued.
        self.tickets.send_if_modified(|tickets| {
            number = tickets.next;
            tickets.next += 1;
            let cancelled = cancelled.clone();
            let ticket = QueuedRequest { cancelled, cancels };
            tickets.queued.insert(number, ticket);
            false
        });
        QueueTicket {
            tickets: Arc::clone(&self.tickets),
            number,
            cancelled,
        }
    }

    /// Cancels every request that has a ticket, and takes one behind them: what comes later waits until
    /// the cancelling is done, and is not cancelled.
    pub(crate) fn cancel(&self) -> QueueTicket {
        let ticket = self.issue(true);
        let before: Vec<CancellationToken> = {
            let tickets = self.tickets.borrow();
            let before = tickets.queued.range(..ticket.number);
            before.map(|(_, ticket)| ticket.cancelled.clone()).collect()
        };
        for cancelled in before {
            cancelled.cancel();
        }
        ticket
    }
}

impl QueueTicket {
    /// Waits until all that came before has taken effect.
    pub(crate) async fn wait_first(&self) {
        let mut tickets = self.tickets.subscribe();
        let is_first = |tickets: &Tickets| {
            let first = tickets.queued.keys().next();
            first == Some(&self.number)
        };
        // The sender is this ticket's own: there is one as long as somebody waits.
        let _ = tickets.wait_for(is_first).await;
    }

    /// Waits until the client cancels what it asked so far.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Waits until no cancelling is at work.
    pub(crate) async fn wait_for_cancellations(&self) {
        let mut tickets = self.tickets.subscribe();
        let is_none = |tickets: &Tickets| !tickets.queued.values().any(|ticket| ticket.cancels);
        let _ = tickets.wait_for(is_none).await;
    }

    /// Whether the client has cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.tickets
            .send_modify(|tickets| drop(tickets.queued.remove(&self.number)));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_first(ticket: &QueueTicket) -> bool {
        ticket.wait_first().now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_ticket_is_first_when_all_before_it_are_given_up() {
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
        assert!(behind.wait_for_cancellations().now_or_never().is_none());
        drop(cancelling);
        assert!(behind.wait_for_cancellations().now_or_never().is_some());
        assert!(is_first(&behind));
    }
}
