//! The numbers of a file's records: whether one follows the one before it.

use conjure_core::chat::EventId;

use crate::Record;

/// How often a thread may have been opened: it is opened as often when it is taken in.
const MAX_EPOCHS: u64 = 100_000;

/// Position in a file of records.
#[derive(Debug)]
pub(super) struct RecordSequence {
    entry: Option<u64>,
    epoch: u64,
    /// The newest event of the epoch, as the file has it.
    event: Option<u64>,
    /// Number of events of the epoch before the first one of the file.
    events_before: u64,
    /// Whether there was an event of any epoch.
    has_events: bool,
}

impl Default for RecordSequence {
    fn default() -> Self {
        Self {
            entry: None,
            epoch: 1,
            event: None,
            events_before: 0,
            has_events: false,
        }
    }
}

impl RecordSequence {
    /// Takes the next record. A thread that was cleared begins behind its first entry, and in the
    /// middle of an epoch; its events, which nobody has followed here, are counted from one.
    ///
    /// # Errors
    /// Why it cannot be the next.
    pub(super) fn take(&mut self, record: &mut Record) -> Result<(), String> {
        match record {
            Record::Entry(entry) => {
                follows("entry", self.entry, entry.seq)?;
                self.entry = Some(entry.seq);
                Ok(())
            }
            Record::Event { id, .. } => self.event(id),
            Record::Opened { epoch } if *epoch > MAX_EPOCHS => Err(format!(
                "epoch {epoch} is more often than a thread is opened, {MAX_EPOCHS} times at most"
            )),
            Record::Opened { epoch } => {
                if *epoch > self.epoch {
                    self.epoch = *epoch;
                    self.event = None;
                }
                Ok(())
            }
        }
    }

    fn event(&mut self, id: &mut EventId) -> Result<(), String> {
        if id.epoch != self.epoch {
            return Err(format!("event {id} is not of epoch {}", self.epoch));
        }
        follows("event", self.event, id.seq)?;
        if self.event.is_none() && self.has_events && id.seq != 1 {
            return Err(format!(
                "event {} is the first of epoch {}, so lines are missing",
                id.seq, id.epoch
            ));
        }
        self.has_events = true;
        if self.event.is_none() {
            self.events_before = id.seq - 1;
        }
        self.event = Some(id.seq);
        id.seq -= self.events_before;
        Ok(())
    }
}

/// Whether a number is the next one; the first may be any but 0.
fn follows(kind: &str, last: Option<u64>, number: u64) -> Result<(), String> {
    match last {
        None if number == 0 => Err(format!("{kind} 0 is none: they are counted from 1")),
        Some(last) if last.checked_add(1) != Some(number) => Err(format!(
            "{kind} {number} follows {last}, so lines are missing or not in their order"
        )),
        _ => Ok(()),
    }
}
