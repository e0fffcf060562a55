//! Writes what a session does: entries and events get their numbers here, are appended to the
//! thread's log, and are shown only after that.

use std::sync::Arc;

use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};

use super::hub::{Hub, Stamped};
use super::reading::Thread;
use crate::store::{Record, Settled, StoreError, ThreadLog};

/// The writer of one open thread.
pub(crate) struct Recorder {
    log: Box<dyn ThreadLog>,
    hub: Arc<Hub>,
    entries: Vec<Entry>,
    /// What closes what was open when the host ended.
    closing: Vec<EntryBody>,
    turn: u64,
    next_event: EventId,
    waiting: Vec<Record>,
    durable: bool,
}

impl Recorder {
    /// Takes an open thread over.
    pub(crate) fn new(mut log: Box<dyn ThreadLog>) -> Self {
        let Thread {
            entries,
            events,
            closing,
        } = Thread::of(log.take_records());
        let turn = entries.last().map_or(0, |entry| entry.turn);
        let next_event = EventId {
            epoch: log.epoch(),
            seq: 1,
        };
        Self {
            log,
            hub: Hub::new(events),
            entries,
            closing,
            turn,
            next_event,
            waiting: Vec::new(),
            durable: false,
        }
    }

    /// Where the events are shown.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Counts how often the thread was opened.
    pub(crate) fn epoch(&self) -> u64 {
        self.next_event.epoch
    }

    /// Every entry of the thread.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Closes what was open when the host ended.
    pub(crate) fn recover(&mut self) {
        for body in std::mem::take(&mut self.closing) {
            self.entry(body);
        }
    }

    /// Takes an entry in; it is written by the next [`Recorder::commit`].
    pub(crate) fn entry(&mut self, body: EntryBody) {
        if matches!(body, EntryBody::TurnStarted { .. }) {
            self.turn += 1;
        }
        // A result that was seen must not be asked for again, whatever ends the machine: calls
        // that a model asks for after it wait. For everything else it is enough that the process
        // may end.
        self.durable |= matches!(body, EntryBody::CallEnded { .. });
        let entry = Entry {
            seq: self.entries.last().map_or(1, |last| last.seq + 1),
            turn: self.turn,
            at_ms: jiff::Timestamp::now().as_millisecond(),
            body,
        };
        self.entries.push(entry.clone());
        self.waiting.push(Record::Entry(entry));
    }

    /// Takes an event in; it is written and shown by the next [`Recorder::commit`]. Pieces of one
    /// text become one event.
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

    /// Resolves when the results so far are safe.
    pub(crate) fn settled(&self) -> Option<Settled> {
        self.log.settled()
    }

    /// Writes what waits, in one append, and shows its events.
    ///
    /// # Errors
    /// The store's; what waited still waits then.
    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.log.append(&self.waiting, self.durable)?;
        self.durable = false;
        let events = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter_map(|record| match record {
                Record::Event { id, event } => Some(Stamped { id, event }),
                _ => None,
            })
            .collect();
        self.hub.publish(events);
        Ok(())
    }
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
