//! What a thread is made of, and the traits behind which it is kept.
//!
//! An append-only log of records: entries, which make the conversation, and events, which make
//! what a person saw. What is shown has been written first.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use conjure_core::chat::{Event, EventId};
use conjure_core::log::Entry;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{StoreError, ThreadId};

/// One record of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A piece of the conversation.
    Entry(Entry),
    /// A piece of what a person saw.
    Event {
        /// Number of the event.
        id: EventId,
        /// Event as the person saw it.
        event: Event,
    },
    /// The thread was opened; events from here on have this epoch. Only files of JSON lines hold
    /// it: a database keeps the epoch with the thread.
    Opened {
        /// The epoch.
        epoch: u64,
    },
}

/// Keeps threads.
pub trait Log: Send + Sync + 'static {
    /// Opens a thread for writing, and makes it when it is not there. One writer at a time.
    ///
    /// # Errors
    /// [`StoreError`], [`StoreError::Busy`] among them.
    fn open<'a>(
        &'a self,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Box<dyn ThreadLog>, StoreError>>;

    /// Reads a thread's records in the order in which they were written: for a fork its
    /// ancestors' entries first, without their events.
    ///
    /// # Errors
    /// [`StoreError`], [`StoreError::NoThread`] among them.
    fn read<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Record>, StoreError>>;

    /// The entries of [`Log::read`] alone.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn read_entries<'a>(
        &'a self,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        async {
            let records = self.read(thread).await?.into_iter();
            let entries = records.filter_map(|record| match record {
                Record::Entry(entry) => Some(entry),
                _ => None,
            });
            Ok(entries.collect())
        }
        .boxed()
    }

    /// The thread's own events behind `after`, or from its beginning, in order and at most
    /// `limit`. None means that there are no more yet.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn read_events<'a>(
        &'a self,
        thread: &'a ThreadId,
        after: Option<EventId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(EventId, Event)>, StoreError>> {
        async move {
            let records = self.read(thread).await?.into_iter();
            let events = records.filter_map(|record| match record {
                Record::Event { id, event } if Some(id) > after => Some((id, event)),
                _ => None,
            });
            Ok(events.take(limit).collect())
        }
        .boxed()
    }

    /// All threads, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>>;

    /// Gives a thread that has no label this one, with a number where another thread has it. A log
    /// that keeps no labels does nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    fn name<'a>(
        &'a self,
        thread: &'a ThreadId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let _ = (thread, name);
        std::future::ready(Ok(())).boxed()
    }
}

/// A thread that is open for writing. Dropping it closes it.
pub trait ThreadLog: Send {
    /// The thread.
    fn thread(&self) -> &ThreadId;

    /// Counts how often the thread was opened, this time included.
    fn epoch(&self) -> u64;

    /// The newest entry's number when the thread was opened, its ancestors' included; 0 before
    /// the first.
    fn last_seq(&self) -> u64;

    /// Appends records, all or none, and blocks nobody: what comes back resolves when they are
    /// written, in the order of the appends. From then on the end of the process loses none of
    /// them; with `durable` the end of the machine does not either. The append is made whether
    /// or not anybody waits for it.
    ///
    /// Entries continue the thread's numbers without a gap, events those of this epoch from 1 on.
    /// An append behind one that failed fails too, until what failed comes again: so there is
    /// never a hole.
    fn append(&mut self, records: &[Record], durable: bool) -> PendingAppend;
}

/// The wait for an append. Dropping it takes nothing back.
#[derive(Debug)]
pub struct PendingAppend(WriteState);

#[derive(Debug)]
enum WriteState {
    Pending(oneshot::Receiver<Result<(), StoreError>>),
    Done(Option<StoreError>),
}

impl PendingAppend {
    /// What comes of an append later; a sender that is dropped says that the log is closed.
    #[must_use]
    pub fn pending(answer: oneshot::Receiver<Result<(), StoreError>>) -> Self {
        Self(WriteState::Pending(answer))
    }

    /// An append whose result is known at once.
    #[must_use]
    pub fn ready(result: Result<(), StoreError>) -> Self {
        Self(WriteState::Done(result.err()))
    }
}

impl Future for PendingAppend {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            WriteState::Pending(answer) => Pin::new(answer)
                .poll(cx)
                .map(|answer| answer.unwrap_or(Err(StoreError::Closed))),
            WriteState::Done(error) => Poll::Ready(error.take().map_or(Ok(()), Err)),
        }
    }
}
