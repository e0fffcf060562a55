//! Reading a thread: a page of its entries, what comes behind an event, all of it.
//!
//! A page reads its own rows and no others, however long the thread is.

use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};
use sea_orm::{ConnectionTrait, DatabaseTransaction, Value};

use crate::lineage::{Shown, Stretch};
use crate::row::{column, number};
use crate::{Record, Store, StoreError, ThreadId, body};

/// What is said of a failure.
const READING: &str = "read the thread";
/// Rows of events that are read at once.
const ROWS: u64 = 256;

/// Which entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The newest.
    Last,
    /// The newest of those before this one.
    Before(u64),
    /// The oldest of those behind this one; behind 0 are all.
    After(u64),
}

/// A page of a thread's entries.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryPage {
    /// In their order, without a gap.
    pub entries: Vec<Entry>,
    /// The first entry that the thread shows.
    pub first_seq: u64,
    /// The last; smaller than the first when it shows none.
    pub last_seq: u64,
}

impl EntryPage {
    /// Whether the thread shows entries before these.
    pub fn has_earlier(&self) -> bool {
        let first = self.entries.first();
        first.is_some_and(|first| first.seq > self.first_seq)
    }

    /// Whether the thread shows entries behind these.
    pub fn has_later(&self) -> bool {
        let last = self.entries.last();
        last.is_some_and(|last| last.seq < self.last_seq)
    }
}

impl Store {
    /// A page of what a thread shows, its ancestors' entries included; at most `limit` entries.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    pub async fn entries(
        &self,
        thread: &ThreadId,
        window: Window,
        limit: u64,
    ) -> Result<EntryPage, StoreError> {
        let tx = self.db().snapshot(READING).await?;
        let shown = Shown::read(&tx, self.db().backend(), thread).await?;
        let entries = self.page(&tx, &shown, window, limit).await?;
        Ok(EntryPage {
            entries,
            first_seq: shown.floor + 1,
            last_seq: shown.last,
        })
    }

    /// The events of a thread behind `after`, or from its beginning, in order; at most `limit`.
    /// Those of its ancestors are not among them.
    ///
    /// # Errors
    /// What the database says.
    pub async fn events_after(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<(EventId, Event)>, StoreError> {
        let mut events = Vec::new();
        let mut after = after.unwrap_or(EventId { epoch: 0, seq: 0 });
        while events.len() < limit {
            let runs = self.runs(self.db().reader(), thread, after).await?;
            let Some(newest) = runs.last() else { break };
            let next = newest.last;
            for run in runs {
                events.extend(run.events.into_iter().filter(|(id, _)| *id > after));
            }
            after = next;
        }
        events.truncate(limit);
        Ok(events)
    }

    /// What a thread is made of, in the order in which it was written.
    pub(crate) async fn records(&self, thread: &ThreadId) -> Result<Vec<Record>, StoreError> {
        let tx = self.db().snapshot(READING).await?;
        let shown = Shown::read(&tx, self.db().backend(), thread).await?;
        let entries = self
            .page(&tx, &shown, Window::After(0), i64::MAX as u64)
            .await?;
        let mut entries = entries.into_iter().peekable();
        let mut records = Vec::new();
        let mut after = EventId { epoch: 0, seq: 0 };
        loop {
            let runs = self.runs(&tx, thread, after).await?;
            let Some(newest) = runs.last() else { break };
            after = newest.last;
            for run in runs {
                while let Some(entry) = entries.next_if(|entry| entry.seq <= run.after_entry) {
                    records.push(Record::Entry(entry));
                }
                let events = run.events.into_iter();
                records.extend(events.map(|(id, event)| Record::Event { id, event }));
            }
        }
        records.extend(entries.map(Record::Entry));
        Ok(records)
    }

    async fn page(
        &self,
        tx: &DatabaseTransaction,
        shown: &Shown,
        window: Window,
        limit: u64,
    ) -> Result<Vec<Entry>, StoreError> {
        let (above, upto, backwards) = match window {
            Window::Last => (0, u64::MAX, true),
            Window::Before(seq) => (0, seq.saturating_sub(1), true),
            Window::After(seq) => (seq, u64::MAX, false),
        };
        let mut stretches = shown.stretches.clone();
        if !backwards {
            stretches.reverse();
        }
        let mut entries: Vec<Entry> = Vec::new();
        for stretch in stretches {
            let left = limit.saturating_sub(entries.len() as u64);
            let wanted = Stretch {
                above: stretch.above.max(above),
                upto: stretch.upto.min(upto),
                thread: stretch.thread,
            };
            if left > 0 && wanted.above < wanted.upto {
                entries.extend(self.stretch(tx, &wanted, left, backwards).await?);
            }
        }
        if backwards {
            entries.reverse();
        }
        Ok(entries)
    }

    /// Entries of a stretch, from its end or from its beginning on.
    async fn stretch(
        &self,
        tx: &DatabaseTransaction,
        stretch: &Stretch,
        limit: u64,
        backwards: bool,
    ) -> Result<Vec<Entry>, StoreError> {
        let order = if backwards { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT seq, turn_index, at_ms, body FROM entries \
             WHERE thread_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq {order} LIMIT $4"
        );
        let values: [Value; 4] = [
            stretch.thread.as_str().into(),
            stretch.above.into(),
            stretch.upto.into(),
            limit.into(),
        ];
        let rows = tx
            .query_all_raw(self.db().statement(&sql, values))
            .await
            .map_err(StoreError::of(READING))?;
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let seq = number(&row, "seq")?;
            let whose = || format!("entry {seq} of thread {}", stretch.thread);
            let body: EntryBody = body::read(column(&row, "body")?, whose)?;
            entries.push(Entry {
                seq,
                turn: number(&row, "turn_index")?,
                at_ms: column(&row, "at_ms")?,
                body,
            });
        }
        Ok(entries)
    }

    /// Rows of events, the first that holds something behind `after` first.
    async fn runs(
        &self,
        db: &impl ConnectionTrait,
        thread: &ThreadId,
        after: EventId,
    ) -> Result<Vec<Run>, StoreError> {
        let sql = "SELECT epoch, first_seq, last_seq, after_entry, body FROM events \
                   WHERE thread_id = $1 AND (epoch, last_seq) > ($2, $3) \
                   ORDER BY epoch, last_seq LIMIT $4";
        let values: [Value; 4] = [
            thread.as_str().into(),
            after.epoch.into(),
            after.seq.into(),
            ROWS.into(),
        ];
        let rows = db
            .query_all_raw(self.db().statement(sql, values))
            .await
            .map_err(StoreError::of(READING))?;
        let mut runs = Vec::with_capacity(rows.len());
        for row in rows {
            let epoch = number(&row, "epoch")?;
            let first = number(&row, "first_seq")?;
            let last = number(&row, "last_seq")?;
            let whose = || format!("events {epoch}.{first} to {last} of thread {thread}");
            let events: Vec<Event> = body::read(column(&row, "body")?, whose)?;
            if events.len() as u64 != last + 1 - first.min(last + 1) {
                return Err(StoreError::Corrupt {
                    what: READING,
                    reason: format!("{} are {} events", whose(), events.len()),
                });
            }
            let ids = (first..).map(|seq| EventId { epoch, seq });
            runs.push(Run {
                after_entry: number(&row, "after_entry")?,
                last: EventId { epoch, seq: last },
                events: ids.zip(events).collect(),
            });
        }
        Ok(runs)
    }
}

/// A row of events.
struct Run {
    after_entry: u64,
    last: EventId,
    events: Vec<(EventId, Event)>,
}
