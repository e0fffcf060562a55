//! Reading a thread: a page of its entries, what comes behind an event, all of it.
//!
//! A page reads its own rows and no others, however long the thread is.

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};
use futures_util::TryStreamExt as _;

use crate::lineage::{Stretch, VisibleEntries};
use crate::recent_events::all_events;
use crate::row::{column, number};
use crate::sql::{DatabaseConnection, DatabaseRow, SqlTransaction, Value};
use crate::{Record, Store, StoreError, ThreadId, body};

/// Operation that errors name.
const READING: &str = "read the thread";
/// Rows of events that are read at once.
const BATCH_ROWS: u64 = 256;
/// Most entries that a vector is allocated for in advance.
const MAX_RESERVED: u64 = 1 << 16;
/// A page ends with the row that brings it to so many bytes of JSON.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Selection of entries for one page.
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
    /// Entries in order, without a gap.
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
    /// A page of what a thread shows, its ancestors' entries included; at most `limit` entries,
    /// and no more behind the one that brings it to 4 MiB of JSON.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn entries(
        &self,
        thread: &ThreadId,
        window: Window,
        limit: u64,
    ) -> Result<EntryPage, StoreError> {
        let tx = self.db().snapshot(READING).await?;
        let shown = VisibleEntries::read(&tx, thread).await?;
        let entries = page(&tx, &shown, window, limit, PAGE_BYTES).await?;
        Ok(EntryPage {
            entries,
            first_seq: shown.floor + 1,
            last_seq: shown.last,
        })
    }

    /// The events of a thread behind `after`, or from its beginning, in order; at most `limit`, and
    /// no more behind those that bring them to 4 MiB of JSON. None means that there are no more yet;
    /// only what is behind `after` is read.
    ///
    /// A fork has events of its own from its first turn on, and none of its ancestors': whoever
    /// follows one is shown the ancestors' part by its entries. Events that were cleared are gone,
    /// and their numbers with them: what follows has higher ones.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn events_after(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<(EventId, Event)>, StoreError> {
        let mut events = Vec::new();
        let mut after = after.unwrap_or(EventId { epoch: 0, seq: 0 });
        let mut room = PAGE_BYTES;
        while events.len() < limit && room > 0 {
            let rows = (limit - events.len()).min(BATCH_ROWS as usize) as u64;
            let reader = self.db().reader().acquire().await;
            let mut reader = reader.map_err(StoreError::of(READING))?;
            let runs = event_rows(reader.connection(), thread, after, rows, room).await?;
            let Some(newest) = runs.last() else { break };
            let next = newest.last;
            for run in runs {
                room = room.saturating_sub(run.size);
                events.extend(run.events.into_iter().filter(|(id, _)| *id > after));
            }
            after = next;
        }
        events.truncate(limit);
        Ok(events)
    }

    /// Every entry that a thread shows.
    pub(crate) async fn all_entries(&self, thread: &ThreadId) -> Result<Vec<Entry>, StoreError> {
        let tx = self.db().snapshot(READING).await?;
        let shown = VisibleEntries::read(&tx, thread).await?;
        // A vector that grows is there twice while it is moved. There is room for those that whoever
        // opens the thread adds.
        let count = shown.last.saturating_sub(shown.floor).min(MAX_RESERVED);
        let entries = Vec::with_capacity((count + count / 8) as usize);
        let all = Window::After(0);
        page_into(&tx, &shown, all, i64::MAX as u64, usize::MAX, entries).await
    }

    /// The entries of what a thread shows that change which part of it a model reads: compactions,
    /// and those that take one back.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn fold_entries(&self, thread: &ThreadId) -> Result<Vec<Entry>, StoreError> {
        let tx = self.db().snapshot(READING).await?;
        let shown = VisibleEntries::read(&tx, thread).await?;
        let sql = "SELECT seq, turn_index, at_ms, body FROM entries WHERE thread_id = $1 \
                   AND seq > $2 AND seq <= $3 AND kind IN ('compacted', 'unfolded') ORDER BY seq";
        let rows = shown.rows(&tx, sql).await?;
        let entries = rows.iter().map(|row| entry(row, thread.as_str()));
        entries.map(|read| Ok(read?.0)).collect()
    }

    /// Records of a thread, in the order in which they were written.
    pub(crate) async fn records(&self, thread: &ThreadId) -> Result<Vec<Record>, StoreError> {
        let tx = self.db().snapshot(READING).await?;
        let shown = VisibleEntries::read(&tx, thread).await?;
        let all = Window::After(0);
        let entries = page(&tx, &shown, all, i64::MAX as u64, usize::MAX).await?;
        let mut entries = entries.into_iter().peekable();
        let mut records = Vec::new();
        let mut after = EventId { epoch: 0, seq: 0 };
        loop {
            let mut tx = tx.lock().await;
            let runs = event_rows(tx.connection(), thread, after, BATCH_ROWS, usize::MAX).await?;
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
}

async fn page(
    tx: &SqlTransaction,
    shown: &VisibleEntries,
    window: Window,
    limit: u64,
    room: usize,
) -> Result<Vec<Entry>, StoreError> {
    page_into(tx, shown, window, limit, room, Vec::new()).await
}

/// Like [`page`], into a vector that is empty yet.
async fn page_into(
    tx: &SqlTransaction,
    shown: &VisibleEntries,
    window: Window,
    limit: u64,
    mut room: usize,
    mut entries: Vec<Entry>,
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
    for stretch in stretches {
        let left = limit.saturating_sub(entries.len() as u64);
        let wanted = Stretch {
            after_seq: stretch.after_seq.max(above),
            last_seq: stretch.last_seq.min(upto),
            thread: stretch.thread,
        };
        if left > 0 && room > 0 && wanted.after_seq < wanted.last_seq {
            stretch_entries(tx, &wanted, left, backwards, &mut room, &mut entries).await?;
        }
    }
    if backwards {
        entries.reverse();
    }
    Ok(entries)
}

/// Adds the entries of a stretch, from its end or from its beginning on, until there is no room left.
async fn stretch_entries(
    tx: &SqlTransaction,
    stretch: &Stretch,
    limit: u64,
    backwards: bool,
    room: &mut usize,
    entries: &mut Vec<Entry>,
) -> Result<(), StoreError> {
    let order = if backwards { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT seq, turn_index, at_ms, body FROM entries \
         WHERE thread_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq {order} LIMIT $4"
    );
    let values: [Value; 4] = [
        stretch.thread.as_str().into(),
        stretch.after_seq.into(),
        stretch.last_seq.into(),
        limit.into(),
    ];
    for_each_row(tx.lock().await.connection(), &sql, values, |row| {
        let (entry, size) = entry(&row, &stretch.thread)?;
        *room = room.saturating_sub(size);
        entries.push(entry);
        Ok(*room > 0)
    })
    .await
}

/// Rows of events, the first that holds something behind `after` first, until they have so
/// many bytes.
async fn event_rows(
    connection: DatabaseConnection<'_>,
    thread: &ThreadId,
    after: EventId,
    rows: u64,
    mut room: usize,
) -> Result<Vec<EventsRow>, StoreError> {
    let sql = format!(
        "SELECT epoch, first_seq, last_seq, after_entry, body FROM {} \
         WHERE thread_id = $1 AND (epoch, last_seq) > ($2, $3) \
         ORDER BY epoch, last_seq LIMIT $4",
        all_events(connection.backend())
    );
    let values: [Value; 4] = [
        thread.as_str().into(),
        after.epoch.into(),
        after.seq.into(),
        rows.into(),
    ];
    let mut runs = Vec::new();
    for_each_row(connection, &sql, values, |row| {
        let epoch = number(&row, "epoch")?;
        let first = number(&row, "first_seq")?;
        let last = number(&row, "last_seq")?;
        let whose = || format!("events {epoch}.{first} to {last} of thread {thread}");
        let (events, size): (Vec<Event>, usize) = body::read_sized(column(&row, "body")?, whose)?;
        if events.len() as u64 != last + 1 - first.min(last + 1) {
            return Err(StoreError::Corrupt {
                what: READING,
                reason: format!("{} are {} events", whose(), events.len()),
            });
        }
        let ids = (first..).map(|seq| EventId { epoch, seq });
        runs.push(EventsRow {
            after_entry: number(&row, "after_entry")?,
            last: EventId { epoch, seq: last },
            size,
            events: ids.zip(events).collect(),
        });
        room = room.saturating_sub(size);
        Ok(room > 0)
    })
    .await?;
    Ok(runs)
}

/// Takes rows one at a time, as long as more are wanted: those behind are not kept in memory.
async fn for_each_row(
    connection: DatabaseConnection<'_>,
    sql: &str,
    values: [Value; 4],
    mut take: impl FnMut(DatabaseRow) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let rows = connection.stream(sql, values.into());
    let mut rows = rows.map_err(StoreError::of(READING))?;
    while let Some(row) = rows.try_next().await.map_err(StoreError::of(READING))? {
        if !take(row)? {
            break;
        }
    }
    Ok(())
}

/// A row of entries, with its bytes of JSON.
pub(crate) fn entry(row: &DatabaseRow, thread: &str) -> Result<(Entry, usize), StoreError> {
    let seq = number(row, "seq")?;
    let whose = || format!("entry {seq} of thread {thread}");
    let (body, size): (EntryBody, usize) = body::read_sized(column(row, "body")?, whose)?;
    let entry = Entry {
        seq,
        turn: number(row, "turn_index")?,
        at_ms: column(row, "at_ms")?,
        body,
    };
    Ok((entry, size))
}

/// A row of events.
struct EventsRow {
    after_entry: u64,
    last: EventId,
    /// Bytes of JSON.
    size: usize,
    events: Vec<(EventId, Event)>,
}
