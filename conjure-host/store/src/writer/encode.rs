//! From records to rows. Runs where an append is asked for, so that what goes through the writer's
//! queue is bytes that are ready to be bound.

use conjure_core::chat::{Event, Usage};
use conjure_core::log::{CallEnd, Entry, EntryBody};

use crate::body;
use crate::{Record, StoreError, ThreadId};

/// A row of events holds no more than this, in bytes, unless one event is longer.
const MAX_ROW_BYTES: usize = 32 * 1024;
/// Cost of a row in the queue beside its body, in bytes.
const ROW_OVERHEAD: usize = 96;

/// The place of a file whose bytes are a blob of this store.
pub(crate) const BLOB_LOCATION_PREFIX: &str = "blob:";

/// An append, as rows.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) entries: Vec<EntryRow>,
    pub(crate) events: Vec<EventRow>,
    pub(crate) calls: Vec<CallRow>,
    pub(crate) files: Vec<FileRow>,
    pub(crate) spent: ReplyUsage,
    /// The newest cost event's account of the thread, as JSON.
    pub(crate) cost: Option<String>,
    /// Cost in the queue, in bytes.
    pub(crate) size: usize,
}

#[derive(Debug)]
pub(crate) struct EntryRow {
    pub(crate) seq: u64,
    pub(crate) turn: u64,
    pub(crate) kind: &'static str,
    pub(crate) at_ms: i64,
    pub(crate) body: Vec<u8>,
}

/// A run of events without a gap.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub(crate) epoch: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The entry of the same append that is before them.
    pub(crate) after_entry: Option<u64>,
    pub(crate) body: Vec<u8>,
}

impl EventRow {
    /// Takes the events of the next row in, if they follow and the row may grow.
    pub(crate) fn try_merge(&mut self, next: &Self) -> bool {
        let follows = (self.epoch, self.last + 1) == (next.epoch, next.first);
        if !follows || self.body.len() + next.body.len() > MAX_ROW_BYTES {
            return false;
        }
        // `[a]` and `[b]` become `[a,b]`.
        self.body.pop();
        self.body.push(b',');
        let rest = next.body.get(1..).unwrap_or_default();
        self.body.extend_from_slice(rest);
        self.last = next.last;
        true
    }
}

/// Columns of a call, from an entry.
#[derive(Debug)]
pub(crate) struct CallRow {
    pub(crate) call_id: String,
    pub(crate) seq: u64,
    pub(crate) at_ms: i64,
    pub(crate) change: CallChange,
}

#[derive(Debug)]
pub(crate) enum CallChange {
    Began {
        backend: String,
        plugin: Option<String>,
    },
    Ended {
        state: &'static str,
        duration_ms: u64,
    },
}

/// Columns of a file, from an entry.
#[derive(Debug)]
pub(crate) struct FileRow {
    pub(crate) seq: u64,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) media_type: String,
    pub(crate) size: Option<u64>,
    pub(crate) source: String,
    pub(crate) call_id: Option<String>,
    pub(crate) location: Option<String>,
    pub(crate) remote: Option<String>,
}

/// The usage of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReplyUsage {
    pub(crate) replies: u64,
    pub(crate) usage: Usage,
    pub(crate) latency_ms: u64,
}

impl ReplyUsage {
    pub(crate) fn add(&mut self, other: Self) {
        self.replies += other.replies;
        self.usage += other.usage;
        self.latency_ms += other.latency_ms;
    }
}

/// Bodies above this are compressed here, in bytes: a long reply is in several, which would all wait
/// in full for the writer.
const COMPRESS_HERE_ABOVE: usize = 1024 * 1024;

/// Makes rows of an append.
///
/// # Errors
/// [`StoreError::Gap`]: its numbers do not follow each other.
pub(crate) fn rows(thread: &ThreadId, records: &[Record]) -> Result<Rows, StoreError> {
    let mut rows = Rows::default();
    for record in records {
        match record {
            Record::Entry(entry) => rows.entry(thread, entry)?,
            Record::Event { id, event } => rows.event(thread, id.epoch, id.seq, event)?,
            Record::Opened { .. } => {}
        }
    }
    let bodies = rows.entries.iter().map(|row| row.body.len() + ROW_OVERHEAD);
    let runs = rows.events.iter().map(|row| row.body.len() + ROW_OVERHEAD);
    rows.size = bodies.chain(runs).sum::<usize>() + ROW_OVERHEAD;
    for run in &mut rows.events {
        run.body.push(b']');
    }
    let entries = rows.entries.iter_mut().map(|row| &mut row.body);
    let long = entries.chain(rows.events.iter_mut().map(|row| &mut row.body));
    for body in long.filter(|body| body.len() > COMPRESS_HERE_ABOVE) {
        *body = body::pack(std::mem::take(body));
    }
    Ok(rows)
}

impl Rows {
    fn entry(&mut self, thread: &ThreadId, entry: &Entry) -> Result<(), StoreError> {
        let follows = self.entries.last().map(|last| last.seq + 1);
        in_order(thread, "entry", follows, entry.seq)?;
        if let Some(meta) = entry.body.meta() {
            self.spent.add(ReplyUsage {
                replies: 1,
                usage: meta.usage,
                latency_ms: meta.latency_ms,
            });
        }
        self.add_call(entry);
        self.entries.push(EntryRow {
            seq: entry.seq,
            turn: entry.turn,
            kind: kind(&entry.body),
            at_ms: entry.at_ms,
            body: json(&entry.body)?,
        });
        Ok(())
    }

    fn add_call(&mut self, entry: &Entry) {
        let (call_id, change) = match &entry.body {
            EntryBody::CallStarted {
                call_id,
                backend,
                plugin,
            } => {
                let change = CallChange::Began {
                    backend: backend.clone(),
                    plugin: plugin.clone(),
                };
                (call_id, change)
            }
            EntryBody::CallEnded {
                output,
                end,
                duration_ms,
                ..
            } => {
                let change = CallChange::Ended {
                    state: state(*end),
                    duration_ms: *duration_ms,
                };
                (&output.call_id, change)
            }
            EntryBody::File {
                artifact,
                source,
                call_id,
                place,
                remote,
                ..
            } => {
                self.files.push(FileRow {
                    seq: entry.seq,
                    id: artifact.id.clone(),
                    name: artifact.name.clone(),
                    media_type: artifact.media_type.clone(),
                    size: artifact.size,
                    source: source.clone(),
                    call_id: call_id.clone(),
                    location: place.clone(),
                    remote: remote.clone(),
                });
                return;
            }
            _ => return,
        };
        self.calls.push(CallRow {
            call_id: call_id.clone(),
            seq: entry.seq,
            at_ms: entry.at_ms,
            change,
        });
    }

    fn event(
        &mut self,
        thread: &ThreadId,
        epoch: u64,
        seq: u64,
        event: &Event,
    ) -> Result<(), StoreError> {
        let follows = self.events.last().map(|last| last.last + 1);
        in_order(thread, "event", follows, seq)?;
        if let Event::Cost { thread, .. } = event {
            self.cost = Some(String::from_utf8(json(thread)?).unwrap_or_default());
        }
        let after_entry = self.entries.last().map(|entry| entry.seq);
        if let Some(run) = self.events.last_mut()
            && (run.epoch, run.after_entry) == (epoch, after_entry)
            && run.body.len() < MAX_ROW_BYTES
        {
            run.body.push(b',');
            run.last = seq;
            return to_json(&mut run.body, event);
        }
        let mut body = vec![b'['];
        to_json(&mut body, event)?;
        self.events.push(EventRow {
            epoch,
            first: seq,
            last: seq,
            after_entry,
            body,
        });
        Ok(())
    }
}

/// Whether `found` comes where `expected` does, if anything is expected.
pub(crate) fn in_order(
    thread: &ThreadId,
    kind: &'static str,
    expected: Option<u64>,
    found: u64,
) -> Result<(), StoreError> {
    match expected {
        Some(expected) if expected != found => Err(StoreError::Gap {
            thread: thread.clone(),
            kind,
            expected,
            found,
        }),
        _ => Ok(()),
    }
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::with_capacity(128);
    to_json(&mut bytes, value)?;
    Ok(bytes)
}

fn to_json(bytes: &mut Vec<u8>, value: &impl serde::Serialize) -> Result<(), StoreError> {
    serde_json::to_writer(bytes, value).map_err(|error| StoreError::Database {
        what: "append to the thread",
        reason: format!("a record is no JSON: {error}"),
    })
}

fn kind(body: &EntryBody) -> &'static str {
    match body {
        EntryBody::TurnStarted { .. } => "turn_started",
        EntryBody::Message { .. } => "message",
        EntryBody::CallStarted { .. } => "call_started",
        EntryBody::CallEnded { .. } => "call_ended",
        EntryBody::File { .. } => "file",
        EntryBody::TableChanged(_) => "table_changed",
        EntryBody::SettingsChanged { .. } => "settings_changed",
        EntryBody::BackendState { .. } => "backend_state",
        EntryBody::Compacted { .. } => "compacted",
        EntryBody::Unfolded { .. } => "unfolded",
        EntryBody::Spent { .. } => "spent",
        EntryBody::Notice { .. } => "notice",
        EntryBody::TurnEnded { .. } => "turn_ended",
    }
}

fn state(end: CallEnd) -> &'static str {
    match end {
        CallEnd::Done => "done",
        CallEnd::Failed => "failed",
        CallEnd::Refused => "refused",
        CallEnd::Cancelled => "cancelled",
        CallEnd::TimedOut => "timed_out",
        CallEnd::Indeterminate => "indeterminate",
    }
}
