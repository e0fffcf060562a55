//! Whether a database is what it should be.

use std::collections::HashMap;
use std::fmt::Display;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::Event;
use conjure_core::log::EntryBody;
use futures_util::TryStreamExt as _;
use sha2::{Digest as _, Sha256};

use crate::blobs::hex;
use crate::lineage::VisibleEntries;
use crate::recent_events::all_events;
use crate::row::{column, number};
use crate::sql::{DatabaseKind, DatabaseRow, SqlTransaction};
use crate::{Store, StoreError, ThreadId, body};

const CHECKING: &str = "check the database";
/// More than these are counted and not told.
const MAX_LISTED: usize = 100;

/// Findings of a check of the database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Check {
    /// Faults, a sentence each; the first hundred.
    pub problems: Vec<String>,
    /// Number of findings beyond those listed.
    pub unlisted: usize,
    /// Threads that were looked at.
    pub threads: usize,
    /// Entries that were read.
    pub entries: u64,
    /// Events that were read.
    pub events: u64,
    /// Blobs whose hash was computed.
    pub blobs: u64,
}

impl Check {
    /// Whether the check found no fault.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// The result of a step. A part of the database that is too damaged for the step is what the check
    /// found, and the next step goes on; other failures end the check.
    fn step_result<T>(
        &mut self,
        step: impl Display,
        done: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Disk { .. })) => {
                self.report_fault(format!("{step}: {}", error.reason()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn report_fault(&mut self, what: String) {
        if self.problems.len() < MAX_LISTED {
            self.problems.push(what);
        } else {
            self.unlisted += 1;
        }
    }
}

impl Store {
    /// Reads everything: the database's own structure, the numbers of every thread, every body, and
    /// every blob's hash. Changes nothing.
    ///
    /// # Errors
    /// What the database says when it cannot be asked, such as when another program holds it; what is
    /// found wrong, also what is too damaged to be read, is in the result.
    #[boxed]
    pub async fn check(&self) -> Result<Check, StoreError> {
        let mut check = Check::default();
        let tx = self.db().snapshot(CHECKING).await?;
        self.structure(&tx, &mut check).await?;
        self.numbers(&tx, &mut check).await?;
        self.bodies(&tx, &mut check).await?;
        self.hashes(&tx, &mut check).await?;
        Ok(check)
    }

    async fn structure(&self, tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
        // PostgreSQL checks its references by itself, and offers no such look without an extension.
        if self.db().backend() == DatabaseKind::Postgres {
            return Ok(());
        }
        let looked = pages(tx, check).await;
        check.step_result("the pages cannot all be checked", looked)?;
        let rows = self.rows(tx, "PRAGMA foreign_key_check").await;
        let rows = check.step_result("the references between tables cannot be checked", rows)?;
        for row in rows.into_iter().flatten() {
            let (table, to): (String, String) = (column(&row, "table")?, column(&row, "parent")?);
            check.report_fault(format!("a row of `{table}` refers to nothing in `{to}`"));
        }
        Ok(())
    }

    async fn numbers(&self, tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
        let sql = "SELECT id FROM threads WHERE removed = FALSE ORDER BY id";
        let rows = self.rows(tx, sql).await;
        let rows = check.step_result("the list of threads cannot be read", rows)?;
        for row in rows.into_iter().flatten() {
            let thread = ThreadId::stored(column(&row, "id")?);
            check.threads += 1;
            let counted = count(tx, &thread, check).await;
            let step = format!("the entries of thread {thread} cannot be counted");
            check.step_result(step, counted)?;
        }
        let sql = "SELECT t.id AS id FROM threads t JOIN entries e ON e.thread_id = t.id \
                   WHERE e.seq > t.last_seq OR e.seq <= t.fork_from_seq GROUP BY t.id ORDER BY t.id";
        let rows = self.rows(tx, sql).await;
        let rows = check.step_result("the numbers of entries cannot be checked", rows)?;
        for row in rows.into_iter().flatten() {
            let thread: String = column(&row, "id")?;
            check.report_fault(format!(
                "thread {thread} has entries outside of its numbers"
            ));
        }
        let sql = format!(
            "SELECT thread_id, epoch, first_seq FROM (SELECT thread_id, epoch, first_seq, \
             LAG(last_seq) OVER (PARTITION BY thread_id, epoch ORDER BY last_seq) AS before \
             FROM {}) AS runs WHERE first_seq <> before + 1 \
             ORDER BY thread_id, epoch, first_seq",
            all_events(tx.backend())
        );
        let rows = self.rows(tx, &sql).await;
        let rows = check.step_result("the numbers of events cannot be checked", rows)?;
        for row in rows.into_iter().flatten() {
            let thread: String = column(&row, "thread_id")?;
            let (epoch, first) = (number(&row, "epoch")?, number(&row, "first_seq")?);
            check.report_fault(format!(
                "thread {thread} has a hole or a double before event {epoch}.{first}"
            ));
        }
        Ok(())
    }

    async fn bodies(&self, tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
        let read = entries(tx, check).await;
        let read = check.step_result("the entries cannot all be read", read)?;
        if read.is_none() {
            self.unreadable_threads(tx, check).await?;
        }
        let read = events(tx, check).await;
        check.step_result("the events cannot all be read", read)?;
        Ok(())
    }

    /// Tells in which threads entries cannot be read, where the table cannot be read in one go.
    async fn unreadable_threads(
        &self,
        tx: &SqlTransaction,
        check: &mut Check,
    ) -> Result<(), StoreError> {
        let rows = self.rows(tx, "SELECT id FROM threads ORDER BY id").await;
        let rows = check.step_result("the list of threads cannot be read", rows)?;
        for row in rows.into_iter().flatten() {
            let thread: String = column(&row, "id")?;
            let mut last = 0;
            let read = read_entries(tx, &thread, &mut last).await;
            let step = format!("thread {thread} cannot be read behind its entry {last}");
            check.step_result(step, read)?;
        }
        Ok(())
    }

    async fn hashes(&self, tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
        let rows = self
            .rows(tx, "SELECT sha256, size, upload FROM blobs")
            .await;
        let rows = check.step_result("the list of blobs cannot be read", rows)?;
        let mut blobs = HashMap::new();
        for row in rows.into_iter().flatten() {
            let (sha256, upload): (String, String) =
                (column(&row, "sha256")?, column(&row, "upload")?);
            blobs.insert(upload, (sha256, number(&row, "size")?));
        }
        for (upload, (sha256, size)) in blobs {
            check.blobs += 1;
            let hashed = hash_pieces(tx, upload).await;
            let step = format!("blob {sha256} cannot be read");
            match check.step_result(step, hashed)? {
                Some((hash, bytes)) if bytes != size || hash != sha256 => check.report_fault(
                    format!("blob {sha256} does not hold the bytes of that hash"),
                ),
                _ => {}
            }
        }
        Ok(())
    }

    async fn rows(&self, tx: &SqlTransaction, sql: &str) -> Result<Vec<DatabaseRow>, StoreError> {
        let rows = tx.all(sql, Vec::new()).await;
        rows.map_err(StoreError::of(CHECKING))
    }
}

/// SQLite's own look at the pages, its lists and its indexes.
async fn pages(tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
    let mut tx = tx.lock().await;
    let rows = tx.connection().stream("PRAGMA quick_check", Vec::new());
    let mut rows = rows.map_err(StoreError::of(CHECKING))?;
    while let Some(row) = rows.try_next().await.map_err(StoreError::of(CHECKING))? {
        let said: String = column(&row, "quick_check")?;
        if said != "ok" {
            check.report_fault(said);
        }
    }
    Ok(())
}

/// Counts the entries that a thread shows.
async fn count(
    tx: &SqlTransaction,
    thread: &ThreadId,
    check: &mut Check,
) -> Result<(), StoreError> {
    let shown = VisibleEntries::read(tx, thread).await?;
    let sql = "SELECT COUNT(*) AS n FROM entries \
               WHERE thread_id = $1 AND seq > $2 AND seq <= $3";
    let counts = shown.rows(tx, sql).await?;
    for (stretch, count) in shown.stretches.iter().rev().zip(&counts) {
        let (there, all) = (number(count, "n")?, stretch.last_seq - stretch.after_seq);
        if there != all {
            check.report_fault(format!(
                "thread {thread} shows {there} of the {all} entries behind {} in {}",
                stretch.after_seq, stretch.thread
            ));
        }
    }
    Ok(())
}

/// Reads the bodies of all entries.
async fn entries(tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
    let mut tx = tx.lock().await;
    let sql = "SELECT thread_id, seq, body FROM entries";
    let rows = tx.connection().stream(sql, Vec::new());
    let mut rows = rows.map_err(StoreError::of(CHECKING))?;
    while let Some(row) = rows.try_next().await.map_err(StoreError::of(CHECKING))? {
        check.entries += 1;
        let (thread, seq): (String, i64) = (column(&row, "thread_id")?, column(&row, "seq")?);
        let whose = || format!("entry {seq} of thread {thread}");
        if let Err(error) = body::read::<EntryBody>(column(&row, "body")?, whose) {
            check.report_fault(error.reason());
        }
    }
    Ok(())
}

/// Reads the entries of a thread; `last` is the last of them that could be read.
async fn read_entries(tx: &SqlTransaction, thread: &str, last: &mut i64) -> Result<(), StoreError> {
    let mut tx = tx.lock().await;
    let sql = "SELECT seq, body FROM entries WHERE thread_id = $1 ORDER BY seq";
    let rows = tx.connection().stream(sql, vec![thread.into()]);
    let mut rows = rows.map_err(StoreError::of(CHECKING))?;
    while let Some(row) = rows.try_next().await.map_err(StoreError::of(CHECKING))? {
        *last = column(&row, "seq")?;
    }
    Ok(())
}

/// Reads the bodies of all events.
async fn events(tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
    let all_events = all_events(tx.backend());
    let mut tx = tx.lock().await;
    let sql = format!("SELECT thread_id, epoch, first_seq, last_seq, body FROM {all_events}");
    let rows = tx.connection().stream(&sql, Vec::new());
    let mut rows = rows.map_err(StoreError::of(CHECKING))?;
    while let Some(row) = rows.try_next().await.map_err(StoreError::of(CHECKING))? {
        let thread: String = column(&row, "thread_id")?;
        let first: i64 = column(&row, "first_seq")?;
        let (epoch, last): (i64, i64) = (column(&row, "epoch")?, column(&row, "last_seq")?);
        let whose = || format!("events {epoch}.{first} to {last} of thread {thread}");
        match body::read::<Vec<Event>>(column(&row, "body")?, whose) {
            Ok(events) => {
                check.events += events.len() as u64;
                if i64::try_from(events.len()).ok() != Some(last + 1 - first) {
                    check.report_fault(format!("{} are {} events", whose(), events.len()));
                }
            }
            Err(error) => check.report_fault(error.reason()),
        }
    }
    Ok(())
}

/// The hash of a blob's pieces, and how many bytes they are.
async fn hash_pieces(tx: &SqlTransaction, upload: String) -> Result<(String, u64), StoreError> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut tx = tx.lock().await;
    let sql = "SELECT bytes FROM blob_pieces WHERE upload = $1 ORDER BY number";
    let rows = tx.connection().stream(sql, vec![upload.into()]);
    let mut rows = rows.map_err(StoreError::of(CHECKING))?;
    while let Some(row) = rows.try_next().await.map_err(StoreError::of(CHECKING))? {
        let piece: Vec<u8> = column(&row, "bytes")?;
        bytes += piece.len() as u64;
        hash.update(&piece);
    }
    Ok((hex(&hash.finalize()), bytes))
}
