//! Writes what a session does: entries and events get their numbers here, are handed to the
//! thread's log, and are shown when the log says that it has them.
//!
//! Handing over blocks nobody. While one batch is on its way the next one gathers, so that a reply
//! that comes in many pieces is written in few.

use std::collections::VecDeque;
use std::sync::Arc;

use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};

use super::hub::{Hub, Stamped};
use super::reading::LoadedThread;
use super::record_weight::weight;
use conjure_store::{Committed, Log, Record, StoreError, ThreadId, ThreadLog};

/// The writer of one open thread.
pub(crate) struct Recorder {
    log: Box<dyn ThreadLog>,
    hub: Arc<Hub>,
    entries: Vec<Entry>,
    /// What closes what was open when the host ended.
    closing: Vec<EntryBody>,
    /// What those who follow are told of that.
    closing_events: Vec<Event>,
    turn: u64,
    last_seq: u64,
    next_event: EventId,
    /// What was not handed over yet.
    waiting: Vec<Record>,
    durable: bool,
    /// What was handed over and is not written yet, in order.
    on_the_way: VecDeque<Batch>,
    /// The newest batch that was handed over, and the newest that is written.
    handed: u64,
    written: u64,
}

/// Records that were handed over at once.
struct Batch {
    committed: Committed,
    events: Vec<Stamped>,
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
        let next_event = EventId {
            epoch: open.epoch(),
            seq: 1,
        };
        Ok(Self {
            turn: entries.last().map_or(0, |entry| entry.turn),
            last_seq: open.last_seq(),
            log: open,
            hub: Hub::new(next_event.epoch),
            entries,
            closing,
            closing_events,
            next_event,
            waiting: Vec::new(),
            durable: false,
            on_the_way: VecDeque::new(),
            handed: 0,
            written: 0,
        })
    }

    /// Where the events are shown.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The thread.
    pub(crate) fn thread(&self) -> &ThreadId {
        self.log.thread()
    }

    /// Counts how often the thread was opened.
    pub(crate) fn epoch(&self) -> u64 {
        self.next_event.epoch
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
    pub(crate) fn opening(&self) -> EventId {
        EventId {
            epoch: self.next_event.epoch,
            seq: self.next_event.seq - 1 + self.closing_events.len() as u64,
        }
    }

    /// Takes an entry in; the next [`Recorder::hand_over`] takes it along.
    pub(crate) fn entry(&mut self, body: EntryBody) {
        if matches!(body, EntryBody::TurnStarted { .. }) {
            self.turn += 1;
        }
        // A result that was seen must not be asked for again, whatever ends the machine: calls
        // that a model asks for after it wait. For everything else it is enough that the process
        // may end.
        self.durable |= matches!(body, EntryBody::CallEnded { .. });
        self.last_seq += 1;
        let entry = Entry {
            seq: self.last_seq,
            turn: self.turn,
            at_ms: jiff::Timestamp::now().as_millisecond(),
            body,
        };
        self.entries.push(entry.clone());
        self.waiting.push(Record::Entry(entry));
    }

    /// Takes an event in; the next [`Recorder::hand_over`] takes it along, and it is shown once it
    /// is written. Pieces of one text become one event.
    pub(crate) fn event(&mut self, event: Event) {
        if let Some(Record::Event { event: last, .. }) = self.waiting.last_mut()
            && joined(last, &event)
        {
            return;
        }
        let id = self.next_event;
        self.next_event.seq += 1;
        self.waiting.push(Record::Event { id, event });
    }

    /// Hands what waits to the log, unless something is on its way already and this can wait for
    /// it. The number that [`Recorder::is_written`] is asked with for everything so far.
    pub(crate) fn hand_over(&mut self, can_wait: bool) -> u64 {
        if self.waiting.is_empty() || (can_wait && !self.on_the_way.is_empty()) {
            return self.handed;
        }
        // Taken, so that a thread that is idle keeps no room for a busy one.
        let mut records = std::mem::take(&mut self.waiting);
        let durable = std::mem::take(&mut self.durable);
        loop {
            let rest = records.split_off(together(&records));
            self.append(records, durable);
            if rest.is_empty() {
                return self.handed;
            }
            records = rest;
        }
    }

    fn append(&mut self, records: Vec<Record>, durable: bool) {
        let committed = self.log.append(&records, durable);
        let events = records.into_iter().filter_map(|record| match record {
            Record::Event { id, event } => Some(Stamped { id, event }),
            _ => None,
        });
        let events = events.collect();
        self.on_the_way.push_back(Batch { committed, events });
        self.handed += 1;
    }

    /// Whether a batch is in the log, and shown.
    pub(crate) fn is_written(&self, batch: u64) -> bool {
        self.written >= batch
    }

    /// Waits until the next batch is written, and shows it; for ever when none is on its way. Safe
    /// to drop and call again.
    ///
    /// # Errors
    /// The store's; nothing that was handed over since is written then.
    pub(crate) async fn next_written(&mut self) -> Result<(), StoreError> {
        let Some(batch) = self.on_the_way.front_mut() else {
            return std::future::pending().await;
        };
        (&mut batch.committed).await?;
        if let Some(batch) = self.on_the_way.pop_front() {
            self.hub.publish(batch.events);
        }
        self.written += 1;
        Ok(())
    }

    /// Gives room back, and what was shown: it is in the log.
    pub(crate) fn rest(&mut self) {
        self.hub.rest();
        self.entries.shrink_to_fit();
        self.on_the_way.shrink_to_fit();
    }

    /// Writes what waits, and shows it.
    ///
    /// # Errors
    /// As [`Recorder::next_written`].
    pub(crate) async fn commit(&mut self) -> Result<(), StoreError> {
        self.hand_over(false);
        while !self.on_the_way.is_empty() {
            self.next_written().await?;
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// The most bytes of texts and values that are appended at once, unless they are of one record.
const AT_ONCE: usize = 4 * 1024 * 1024;

/// How many of the first records are appended at once: at least one.
fn together(records: &[Record]) -> usize {
    let mut size = 0;
    let fits = records.iter().position(|record| {
        size += weight(record);
        size > AT_ONCE
    });
    fits.unwrap_or(records.len()).max(1)
}

fn joined(last: &mut Event, next: &Event) -> bool {
    match (last, next) {
        (Event::Content { delta }, Event::Content { delta: more })
        | (Event::Thinking { delta }, Event::Thinking { delta: more }) => {
            delta.push_str(more);
            true
        }
        (
            Event::ToolOutput {
                call_id,
                stream,
                chunk,
            },
            Event::ToolOutput {
                call_id: same_call,
                stream: same_stream,
                chunk: more,
            },
        ) if call_id == same_call && stream == same_stream => {
            chunk.push_str(more);
            true
        }
        _ => false,
    }
}
