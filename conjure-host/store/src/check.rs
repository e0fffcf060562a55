//! Whether a database is what it should be.

use std::collections::HashMap;

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
const TOLD: usize = 100;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Check {
    /// What is wrong, a sentence each; the first hundred.
    pub problems: Vec<String>,
    /// How many more there are.
    pub more: usize,
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
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn wrong(&mut self, what: String) {
        if self.problems.len() < TOLD {
            self.problems.push(what);
        } else {
            self.more += 1;
        }
    }
}

impl Store {
    /// Reads everything: the database's own structure, the numbers of every thread, every body, and
    /// every blob's hash. Changes nothing.
    ///
    /// # Errors
    /// What the database says when it cannot even be read; what is found wrong is in the result.
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
        for row in self.rows(tx, "PRAGMA quick_check").await? {
            let said: String = column(&row, "quick_check")?;
            if said != "ok" {
                check.wrong(said);
            }
        }
        for row in self.rows(tx, "PRAGMA foreign_key_check").await? {
            let (table, to): (String, String) = (column(&row, "table")?, column(&row, "parent")?);
            check.wrong(format!("a row of `{table}` refers to nothing in `{to}`"));
        }
        Ok(())
    }

    async fn numbers(&self, tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
        let sql = "SELECT id FROM threads WHERE removed = FALSE ORDER BY id";
        for row in self.rows(tx, sql).await? {
            let thread = ThreadId::stored(column(&row, "id")?);
            check.threads += 1;
            let shown = VisibleEntries::read(tx, &thread).await?;
            let sql = "SELECT COUNT(*) AS n FROM entries \
                       WHERE thread_id = $1 AND seq > $2 AND seq <= $3";
            let counts = shown.rows(tx, sql).await?;
            for (stretch, count) in shown.stretches.iter().rev().zip(&counts) {
                let (there, all) = (number(count, "n")?, stretch.upto - stretch.above);
                if there != all {
                    check.wrong(format!(
                        "thread {thread} shows {there} of the {all} entries behind {} in {}",
                        stretch.above, stretch.thread
                    ));
                }
            }
        }
        let sql = "SELECT t.id AS id FROM threads t JOIN entries e ON e.thread_id = t.id \
                   WHERE e.seq > t.last_seq OR e.seq <= t.fork_from_seq GROUP BY t.id ORDER BY t.id";
        for row in self.rows(tx, sql).await? {
            let thread: String = column(&row, "id")?;
            check.wrong(format!(
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
        for row in self.rows(tx, &sql).await? {
            let thread: String = column(&row, "thread_id")?;
            let (epoch, first) = (number(&row, "epoch")?, number(&row, "first_seq")?);
            check.wrong(format!(
                "thread {thread} has a hole or a double before event {epoch}.{first}"
            ));
        }
        Ok(())
    }

    async fn bodies(&self, tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
        let all_events = all_events(tx.backend());
        let mut tx = tx.lock().await;
        let sql = "SELECT thread_id, seq, body FROM entries";
        let rows = tx.connection().stream(sql, Vec::new());
        let mut rows = rows.map_err(StoreError::of(CHECKING))?;
        while let Some(row) = rows.try_next().await.map_err(StoreError::of(CHECKING))? {
            check.entries += 1;
            let (thread, seq): (String, i64) = (column(&row, "thread_id")?, column(&row, "seq")?);
            let whose = || format!("entry {seq} of thread {thread}");
            if let Err(error) = body::read::<EntryBody>(column(&row, "body")?, whose) {
                check.wrong(error.to_string());
            }
        }
        drop(rows);
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
                        check.wrong(format!("{} are {} events", whose(), events.len()));
                    }
                }
                Err(error) => check.wrong(error.to_string()),
            }
        }
        Ok(())
    }

    async fn hashes(&self, tx: &SqlTransaction, check: &mut Check) -> Result<(), StoreError> {
        let mut blobs = HashMap::new();
        for row in self
            .rows(tx, "SELECT sha256, size, upload FROM blobs")
            .await?
        {
            let (sha256, upload): (String, String) =
                (column(&row, "sha256")?, column(&row, "upload")?);
            blobs.insert(upload, (sha256, number(&row, "size")?));
        }
        for (upload, (sha256, size)) in blobs {
            check.blobs += 1;
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
            if bytes != size || hex(&hash.finalize()) != sha256 {
                check.wrong(format!(
                    "blob {sha256} does not hold the bytes of that hash"
                ));
            }
        }
        Ok(())
    }

    async fn rows(&self, tx: &SqlTransaction, sql: &str) -> Result<Vec<DatabaseRow>, StoreError> {
        let rows = tx.all(sql, Vec::new()).await;
        rows.map_err(StoreError::of(CHECKING))
    }
}
