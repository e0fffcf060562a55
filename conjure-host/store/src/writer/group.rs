//! One transaction for all appends that wait.
//!
//! Each append is whole in it or not in it, and one that does not continue its thread is refused
//! before. When the transaction fails, all of it does, and what it held may come again.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::blob_rows;
use crate::body;
use crate::database::{Database, Transaction, now_ms};
use crate::sql::{DatabaseKind, Value};
use crate::{StoreError, ThreadId, row};

use super::encode::{
    BLOB_LOCATION_PREFIX, CallChange, CallRow, EntryRow, EventRow, FileRow, ReplyUsage, Rows,
    in_order,
};
use super::insert::{ARTIFACTS, ENTRIES, EVENTS, InsertTable, MAX_ROWS, RECENT_EVENTS, Statements};
use super::lease::{LEASE_EXPIRY, Position};
use super::{Append, WRITE_TIMEOUT, WriterTask, no_answer};

/// Operation that errors name.
const APPENDING: &str = "append to the thread";
/// More than this is compressed aside, in bytes.
const COMPRESS_ASIDE: usize = 64 * 1024;

/// Rows of events that are no longer than this, in bytes, are written to `recent_events` first. A
/// longer one is worth the pages that it takes in `events`.
const RECENT_ROW_BYTES: usize = 1024;
/// Between two looks at a database that does not answer.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// A row of events of a thread, and the newest entry before them.
type EventRecord = (ThreadId, EventRow, u64);

/// Content of one transaction.
#[derive(Default)]
struct Group {
    entries: Vec<(ThreadId, EntryRow)>,
    events: Vec<EventRecord>,
    calls: Vec<(ThreadId, CallRow)>,
    files: Vec<(ThreadId, FileRow)>,
    /// By lease.
    threads: HashMap<u64, ThreadUpdate>,
    durable: bool,
}

/// The changes of one thread in a group.
struct ThreadUpdate {
    thread: ThreadId,
    epoch: u64,
    position: Position,
    spent: ReplyUsage,
    cost: Option<String>,
    has_changed: bool,
    /// Index of the thread's newest row among the group's rows of events.
    event_row: Option<usize>,
}

type CommitSender = tokio::sync::oneshot::Sender<Result<(), StoreError>>;

impl WriterTask {
    /// Writes appends and answers them.
    pub(super) async fn write(&mut self, appends: Vec<Append>) {
        let mut group = Group::default();
        let mut answers: Vec<(ThreadId, CommitSender, Option<StoreError>)> =
            Vec::with_capacity(appends.len());
        // What waits keeps its room in the queue until it is written.
        let mut rooms = Vec::with_capacity(appends.len());
        for append in appends {
            let before = self.newest_lease.replace(append.lease);
            if before.is_some_and(|before| before != append.lease) {
                self.lease_changed = Some(Instant::now());
            }
            let refused = match self.locate(&group, &append) {
                Ok(change) => {
                    group.add(append.lease, append.rows, change, append.durable);
                    None
                }
                Err(error) => Some(error),
            };
            rooms.push(append.queue_permit);
            answers.push((append.thread, append.answer, refused));
        }
        let all_refused = answers.iter().all(|(_, _, refused)| refused.is_some());
        let written = if all_refused {
            Ok(())
        } else {
            let written = tokio::time::timeout(WRITE_TIMEOUT, self.commit(group)).await;
            written.unwrap_or_else(|_| {
                // Whether it was written nobody knows, so what comes next in these threads is not
                // known either: they must be opened again, and read.
                self.forfeit_leases();
                Err(no_answer(WRITE_TIMEOUT, APPENDING))
            })
        };
        // Whoever is answered may append more at once.
        drop(rooms);
        for (thread, answer, refused) in answers {
            let result = match (refused, &written) {
                (Some(refused), _) => Err(refused),
                (None, Err(StoreError::Lost { .. })) => Err(StoreError::Lost { thread }),
                (None, written) => written.clone(),
            };
            let _ = answer.send(result);
        }
    }

    /// Position of an append, after those that the group has.
    fn locate(&self, group: &Group, append: &Append) -> Result<ThreadUpdate, StoreError> {
        let lease = self
            .leases
            .get(&append.lease)
            .ok_or_else(|| StoreError::Lost {
                thread: append.thread.clone(),
            })?;
        let position = group
            .threads
            .get(&append.lease)
            .map_or(lease.position, |change| change.position);
        if let Some(first) = append.rows.entries.first() {
            in_order(
                &lease.thread,
                "entry",
                Some(position.last_seq + 1),
                first.seq,
            )?;
        }
        if let Some(first) = append.rows.events.first() {
            in_order(
                &lease.thread,
                "event",
                Some(position.last_event + 1),
                first.first,
            )?;
            in_order(&lease.thread, "epoch", Some(lease.epoch), first.epoch)?;
        }
        Ok(ThreadUpdate {
            thread: lease.thread.clone(),
            epoch: lease.epoch,
            position,
            spent: ReplyUsage::default(),
            cost: None,
            has_changed: false,
            event_row: None,
        })
    }

    async fn commit(&mut self, mut group: Group) -> Result<(), StoreError> {
        group.compress().await?;
        let (recent, others) = group.take_events(self.db.backend());
        let recent_rows = recent.len();
        if group.is_one_statement(&self.db) {
            match (recent_rows, others.len()) {
                (1..=MAX_ROWS, 0) => return self.execute(group, &RECENT_EVENTS, recent).await,
                (0, 1..=MAX_ROWS) => return self.execute(group, &EVENTS, others).await,
                _ => {}
            }
        }
        let number = self.groups + 1;
        let tx = self.db.begin_ahead(group.durable, APPENDING).await?;
        let sql = format!(
            "UPDATE writers SET beat_ms = {}, groups = $1 WHERE id = $2 AND lost = FALSE",
            now_ms(tx.backend())
        );
        let values = [number.into(), self.id.as_str().into()];
        if tx.execute(&sql, values).await? == 0 {
            drop(tx);
            return Err(self.lose_threads(&group));
        }
        if !group.threads(&tx, &self.id).await? {
            drop(tx);
            return Err(self.lose_threads(&group));
        }
        let Group {
            entries,
            calls,
            files,
            threads,
            ..
        } = group;
        insert_entries(&tx, &mut self.statements, entries).await?;
        for (table, events) in [(&RECENT_EVENTS, recent), (&EVENTS, others)] {
            let values = event_values(events);
            self.statements.insert(&tx, table, values).await?;
        }
        insert_files(&tx, &mut self.statements, files).await?;
        for (thread, call) in calls {
            note_call(&tx, &thread, call).await?;
        }
        let written = threads.values().map(|change| &change.thread);
        tx.notify_threads(written).await?;
        if let Err(error) = tx.commit().await {
            self.check_committed(number, error).await?;
        }
        self.groups = number;
        self.recent_rows += recent_rows;
        self.record_progress(threads);
        Ok(())
    }

    /// Writes events with one statement, which is its own transaction. What a model says comes in
    /// such groups, and each further statement is another round trip.
    async fn execute(
        &mut self,
        group: Group,
        table: &InsertTable,
        events: Vec<EventRecord>,
    ) -> Result<(), StoreError> {
        let rows = events.len();
        let mut values = event_values(events);
        values.push(self.id.as_str().into());
        let sql = self.statements.if_writer(table, rows);
        if self
            .db
            .execute_ahead(group.durable, sql, values, APPENDING)
            .await?
            == 0
        {
            self.forfeit_leases();
            let thread = group.threads.into_values().next();
            return Err(
                thread.map_or(StoreError::Closed, |change| StoreError::Lost {
                    thread: change.thread,
                }),
            );
        }
        if table.name == RECENT_EVENTS.name {
            self.recent_rows += rows;
        }
        self.record_progress(group.threads);
        Ok(())
    }

    fn record_progress(&mut self, threads: HashMap<u64, ThreadUpdate>) {
        for (lease, change) in threads {
            if let Some(lease) = self.leases.get_mut(&lease) {
                lease.position = change.position;
            }
        }
    }

    /// Another process took the threads of this one.
    fn lose_threads(&mut self, group: &Group) -> StoreError {
        self.forfeit_leases();
        let thread = group.threads.values().map(|change| &change.thread).next();
        thread.map_or(StoreError::Closed, |thread| StoreError::Lost {
            thread: thread.clone(),
        })
    }

    /// Whether a transaction whose commit gave an error was committed all the same, which a lost
    /// connection leaves open. Where that cannot be found out in time, somebody else may have the
    /// threads by now: they must be opened again, and read.
    async fn check_committed(&mut self, number: u64, error: StoreError) -> Result<(), StoreError> {
        if matches!(error, StoreError::Full { .. }) {
            // What makes it a commit was not written. To look may need space, too.
            return Err(error);
        }
        let deadline = Instant::now() + LEASE_EXPIRY;
        let sql = "SELECT groups FROM writers WHERE id = $1";
        loop {
            let row = self
                .db
                .write_connection()
                .await
                .one(sql, vec![self.id.as_str().into()])
                .await;
            match row.map_err(StoreError::of(APPENDING)) {
                Ok(Some(row)) if row::number(&row, "groups")? == number => return Ok(()),
                Ok(Some(_)) => return Err(error),
                Ok(None) => break,
                Err(StoreError::Unreachable { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(_) => break,
            }
        }
        self.forfeit_leases();
        Err(error)
    }
}

impl Group {
    fn add(&mut self, lease: u64, rows: Rows, change: ThreadUpdate, durable: bool) {
        self.durable |= durable;
        let change = self.threads.entry(lease).or_insert(change);
        let thread = &change.thread;
        let before = change.position.last_seq;
        for event in rows.events {
            change.position.last_event = event.last;
            let after_entry = event.after_entry.unwrap_or(before);
            // Runs of several appends become one row.
            if let Some((_, run, after)) = change.event_row.and_then(|at| self.events.get_mut(at))
                && *after == after_entry
                && run.try_merge(&event)
            {
                continue;
            }
            change.event_row = Some(self.events.len());
            self.events.push((thread.clone(), event, after_entry));
        }
        for entry in rows.entries {
            change.position.last_seq = entry.seq;
            change.position.last_turn = entry.turn;
            change.has_changed = true;
            self.entries.push((thread.clone(), entry));
        }
        change.spent.add(rows.spent);
        if rows.cost.is_some() {
            change.cost = rows.cost;
            change.has_changed = true;
        }
        let of_thread = |call| (thread.clone(), call);
        self.calls.extend(rows.calls.into_iter().map(of_thread));
        let of_thread = |file| (thread.clone(), file);
        self.files.extend(rows.files.into_iter().map(of_thread));
    }

    /// Takes the events out: the rows for `recent_events`, and those for `events`.
    fn take_events(&mut self, backend: DatabaseKind) -> (Vec<EventRecord>, Vec<EventRecord>) {
        let events = std::mem::take(&mut self.events);
        let is_recent = |(_, row, _): &EventRecord| {
            backend == DatabaseKind::Sqlite && row.body.len() <= RECENT_ROW_BYTES
        };
        events.into_iter().partition(is_recent)
    }

    /// Whether one statement writes it, if that takes its events.
    fn is_one_statement(&self, db: &Database) -> bool {
        db.backend() == DatabaseKind::Sqlite
            && self.threads.values().all(|change| !change.has_changed)
    }

    /// Compresses long bodies, many or long ones on another thread.
    async fn compress(&mut self) -> Result<(), StoreError> {
        let entries = self.entries.iter_mut().map(|(_, row)| &mut row.body);
        let events = self.events.iter_mut().map(|(_, row, _)| &mut row.body);
        let long: Vec<&mut Vec<u8>> = entries
            .chain(events)
            .filter(|body| body.len() > body::COMPRESS_ABOVE && !body::is_packed(body))
            .collect();
        let mut bodies: Vec<Vec<u8>> = Vec::with_capacity(long.len());
        let mut places = Vec::with_capacity(long.len());
        for place in long {
            bodies.push(std::mem::take(place));
            places.push(place);
        }
        let size: usize = bodies.iter().map(Vec::len).sum();
        let pack = move || bodies.into_iter().map(body::pack).collect::<Vec<_>>();
        let packed = if size > COMPRESS_ASIDE {
            let packed = tokio::task::spawn_blocking(pack).await;
            packed.map_err(|_| StoreError::Closed)?
        } else {
            pack()
        };
        for (place, body) in places.into_iter().zip(packed) {
            *place = body;
        }
        Ok(())
    }

    /// Moves the threads on; whether all are still this writer's.
    async fn threads(&self, tx: &Transaction<'_>, writer: &str) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE threads SET last_seq = $1, last_turn = $2, replies = replies + $3, \
             input = input + $4, cache_read = cache_read + $5, cache_write = cache_write + $6, \
             output = output + $7, reasoning = reasoning + $8, latency_ms = latency_ms + $9, \
             cost = COALESCE($10, cost), updated_at_ms = {} \
             WHERE id = $11 AND epoch = $12 AND owner = $13",
            now_ms(tx.backend())
        );
        let changed = self.threads.values().filter(|change| change.has_changed);
        let mut changed: Vec<&ThreadUpdate> = changed.collect();
        // In their order, so that no two processes wait for each other.
        changed.sort_unstable_by(|a, b| a.thread.cmp(&b.thread));
        for change in changed {
            let ReplyUsage {
                replies,
                usage,
                latency_ms,
            } = change.spent;
            let values: [Value; 13] = [
                change.position.last_seq.into(),
                change.position.last_turn.into(),
                replies.into(),
                usage.input.into(),
                usage.cache_read.into(),
                usage.cache_write.into(),
                usage.output.into(),
                usage.reasoning.into(),
                latency_ms.into(),
                change.cost.clone().into(),
                change.thread.as_str().into(),
                change.epoch.into(),
                writer.into(),
            ];
            if tx.execute(&sql, values).await? != 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

pub(super) async fn insert_entries(
    tx: &Transaction<'_>,
    statements: &mut Statements,
    entries: Vec<(ThreadId, EntryRow)>,
) -> Result<(), StoreError> {
    let mut values: Vec<Value> = Vec::with_capacity(entries.len() * ENTRIES.columns.len());
    for (thread, row) in entries {
        values.extend([
            thread.as_str().into(),
            row.seq.into(),
            row.turn.into(),
            row.kind.into(),
            row.at_ms.into(),
            row.body.into(),
        ]);
    }
    statements.insert(tx, &ENTRIES, values).await
}

fn event_values(events: Vec<EventRecord>) -> Vec<Value> {
    let mut values = Vec::with_capacity(events.len() * EVENTS.columns.len() + 1);
    for (thread, row, after_entry) in events {
        values.extend([
            thread.as_str().into(),
            row.epoch.into(),
            row.last.into(),
            row.first.into(),
            after_entry.into(),
            row.body.into(),
        ]);
    }
    values
}

async fn insert_files(
    tx: &Transaction<'_>,
    statements: &mut Statements,
    files: Vec<(ThreadId, FileRow)>,
) -> Result<(), StoreError> {
    let mut values: Vec<Value> = Vec::with_capacity(files.len() * ARTIFACTS.columns.len());
    for (thread, row) in files {
        let blob = row
            .location
            .as_deref()
            .and_then(|place| place.strip_prefix(BLOB_LOCATION_PREFIX))
            .map(clean);
        if let Some(blob) = &blob {
            blob_rows::mark_referenced(tx, blob).await?;
        }
        values.extend([
            thread.as_str().into(),
            row.seq.into(),
            clean(&row.id).into(),
            clean(&row.name).into(),
            clean(&row.media_type).into(),
            row.size.into(),
            clean(&row.source).into(),
            row.call_id.as_deref().map(clean).into(),
            row.location.as_deref().map(clean).into(),
            row.remote.as_deref().map(clean).into(),
            blob.into(),
        ]);
    }
    statements.insert(tx, &ARTIFACTS, values).await
}

/// Keeps the ledger. A call id that comes again names another call: the newest is kept.
pub(super) async fn note_call(
    tx: &Transaction<'_>,
    thread: &ThreadId,
    call: CallRow,
) -> Result<(), StoreError> {
    let id = clean(&call.call_id);
    match call.change {
        CallChange::Began { backend, plugin } => {
            let sql = "INSERT INTO tool_calls (thread_id, call_id, state, backend, plugin, \
                       entry_seq, started_at_ms) VALUES ($1, $2, 'running', $3, $4, $5, $6) \
                       ON CONFLICT (thread_id, call_id) DO UPDATE SET state = 'running', \
                       backend = excluded.backend, plugin = excluded.plugin, \
                       entry_seq = excluded.entry_seq, ended_seq = NULL, \
                       started_at_ms = excluded.started_at_ms, ended_at_ms = NULL, duration_ms = 0";
            let values: [Value; 6] = [
                thread.as_str().into(),
                id.into(),
                clean(&backend).into(),
                plugin.as_deref().map(clean).into(),
                call.seq.into(),
                call.at_ms.into(),
            ];
            tx.execute(sql, values).await?;
        }
        CallChange::Ended { state, duration_ms } => {
            let open = "CASE WHEN tool_calls.ended_seq IS NULL THEN";
            let sql = format!(
                "INSERT INTO tool_calls (thread_id, call_id, state, entry_seq, ended_seq, \
                 ended_at_ms, duration_ms) VALUES ($1, $2, $3, $4, $4, $5, $6) \
                 ON CONFLICT (thread_id, call_id) DO UPDATE SET state = excluded.state, \
                 backend = {open} tool_calls.backend ELSE NULL END, \
                 plugin = {open} tool_calls.plugin ELSE NULL END, \
                 entry_seq = {open} tool_calls.entry_seq ELSE excluded.entry_seq END, \
                 started_at_ms = {open} tool_calls.started_at_ms ELSE NULL END, \
                 ended_seq = excluded.ended_seq, ended_at_ms = excluded.ended_at_ms, \
                 duration_ms = excluded.duration_ms"
            );
            let values: [Value; 6] = [
                thread.as_str().into(),
                id.into(),
                state.into(),
                call.seq.into(),
                call.at_ms.into(),
                duration_ms.into(),
            ];
            tx.execute(&sql, values).await?;
        }
    }
    Ok(())
}

/// Text that both databases take: PostgreSQL's has no NUL.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
