//! What a session records: the entries of its thread, and what it shows.
//!
//! Both go through the [queue](RecordQueue) into the thread's log, and are shown when the log says that
//! it has them.

use std::sync::Arc;

use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};

use super::hub::Hub;
use super::loaded_thread::LoadedThread;
use super::record_queue::RecordQueue;
use conjure_store::{Log, StoreError, ThreadId};

/// The writer of one open thread.
pub(crate) struct Recorder {
    thread: ThreadId,
    epoch: u64,
    queue: Arc<RecordQueue>,
    entries: Vec<Entry>,
    /// What closes what was open when the host ended.
    closing: Vec<EntryBody>,
    /// What those who follow are told of that.
    closing_events: Vec<Event>,
}

impl Recorder {
    /// Opens a thread for writing, and [reads](LoadedThread::read) it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn open(log: &dyn Log, thread: &ThreadId) -> Result<Self, StoreError> {
        let open = log.open(thread).await?;
        let LoadedThread {
            entries,
            closing,
            closing_events,
        } = LoadedThread::read(log, thread).await?;
        let turn = entries.last().map_or(0, |entry| entry.turn);
        Ok(Self {
            thread: open.thread().clone(),
            epoch: open.epoch(),
            queue: RecordQueue::new(open, turn),
            entries,
            closing,
            closing_events,
        })
    }

    /// Where the events are shown.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        self.queue.hub()
    }

    /// Where pieces of a reply go.
    pub(super) fn queue(&self) -> &Arc<RecordQueue> {
        &self.queue
    }

    /// The thread.
    pub(crate) fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Counts how often the thread was opened.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Every entry of the thread.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Closes what was open when the host ended, and tells so. It comes before anything else.
    pub(crate) fn recover(&mut self) {
        // Before the entries: where not all of it is written, the rest is told and written later.
        for event in std::mem::take(&mut self.closing_events) {
            self.event(event);
        }
        for body in std::mem::take(&mut self.closing) {
            self.entry(body);
        }
    }

    /// The event behind which comes what is shown of this opening, and not of a turn that an earlier
    /// one left open. Asked before anything else is shown, before or after [`Recorder::recover`].
    pub(crate) fn opening_event_id(&self) -> EventId {
        let EventId { epoch, seq } = self.queue.next_event();
        EventId {
            epoch,
            seq: seq - 1 + self.closing_events.len() as u64,
        }
    }

    /// Takes an entry in; the next [`Recorder::hand_over`] takes it along.
    pub(crate) fn entry(&mut self, body: EntryBody) {
        self.entries.push(self.queue.entry(body));
    }

    /// Takes an event in; the next [`Recorder::hand_over`] takes it along, and it is shown once it
    /// is written.
    pub(crate) fn event(&mut self, event: Event) {
        self.queue.event(event);
    }

    /// Hands what waits to the log, unless something is on its way already and this can wait for
    /// it. The number that [`Recorder::is_written`] is asked with for everything so far.
    pub(crate) fn hand_over(&mut self, can_wait: bool) -> u64 {
        self.queue.hand_over(can_wait)
    }

    /// Whether a batch is in the log, and shown.
    pub(crate) fn is_written(&self, batch: u64) -> bool {
        self.queue.is_written(batch)
    }

    /// Waits until more is written of what the session waits for; for ever when it waits for nothing.
    /// Safe to drop and call again.
    ///
    /// # Errors
    /// The store's; nothing that was handed over since is written then.
    pub(crate) async fn next_written(&mut self) -> Result<(), StoreError> {
        self.queue.progress().await
    }

    /// Gives room back, and what was shown: it is in the log.
    pub(crate) fn rest(&mut self) {
        self.queue.rest();
        self.entries.shrink_to_fit();
    }

    /// Writes what waits, and shows it.
    ///
    /// # Errors
    /// As [`Recorder::next_written`].
    pub(crate) async fn commit(&mut self) -> Result<(), StoreError> {
        let last = self.hand_over(false);
        while !self.is_written(last) {
            self.next_written().await?;
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue.close();
    }
}
