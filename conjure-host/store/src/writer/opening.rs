//! Opening threads: all that are asked for at once in one transaction, which goes to the disk once.
//!
//! Only threads that nobody has are opened together. One whose owner is another writer is opened by
//! itself: that writer has to be looked at, and fenced off if it is dead.

use std::collections::{HashMap, HashSet};

use tokio::sync::mpsc;

use crate::database::{Transaction, now_ms, pad_to_power_of_two, placeholders};
use crate::row::{column, number};
use crate::sql::{DatabaseKind, DatabaseRow, Value};
use crate::{StoreError, ThreadId};

use super::lease::{Lease, OPENING, Position, busy_error};
use super::{
    LeaseGuard, OpenRequest, WRITE_TIMEOUT, WriteGrant, WriterCommand, WriterTask, with_timeout,
};

/// Threads that one transaction opens.
const BATCH_THREADS: usize = 64;

/// Columns that opening a thread reads.
const OPENING_COLUMNS: &str = "id, epoch, last_seq, last_turn";

impl WriterTask {
    /// Opens threads and answers who asked for them.
    pub(super) async fn open_all(&mut self, mut openings: Vec<OpenRequest>) {
        while !openings.is_empty() {
            let rest = openings.split_off(openings.len().min(BATCH_THREADS));
            self.open_some(openings).await;
            openings = rest;
        }
    }

    async fn open_some(&mut self, openings: Vec<OpenRequest>) {
        let mut free: Vec<ThreadId> = Vec::with_capacity(openings.len());
        for OpenRequest { thread, .. } in &openings {
            if !self.has_open(thread) && !free.contains(thread) {
                free.push(thread.clone());
            }
        }
        // In their order, so that no two processes that make threads wait for each other.
        free.sort_unstable();
        let (mut taken, failed) =
            match with_timeout(WRITE_TIMEOUT, OPENING, self.open_free(&free)).await {
                Ok(taken) => (taken, None),
                // One of them may be the reason, and the others are not to blame.
                Err(error) if free.len() > 1 && is_row_error(&error) => (HashMap::new(), None),
                Err(error) => (HashMap::new(), Some(error)),
            };
        let mut left = Vec::new();
        for opening in openings {
            match taken.remove(&opening.thread) {
                Some(lease) => self.send_answer(opening, Ok(lease)),
                None => left.push(opening),
            }
        }
        for opening in left {
            let opened = match &failed {
                Some(error) if !self.has_open(&opening.thread) => Err(error.clone()),
                _ => with_timeout(WRITE_TIMEOUT, OPENING, self.open(&opening.thread)).await,
            };
            self.send_answer(opening, opened);
        }
    }

    fn send_answer(&mut self, opening: OpenRequest, opened: Result<Lease, StoreError>) {
        let opened = opened.map(|lease| self.register_lease(lease, opening.commands));
        // Whoever asked may have gone; then the lease comes back by itself.
        let _ = opening.answer.send(opened);
    }

    fn has_open(&self, thread: &ThreadId) -> bool {
        self.leases.values().any(|lease| lease.thread == *thread)
    }

    /// Opens those of these threads that no other writer has. Waits for nobody's row: what another
    /// writer keeps is left out, too.
    async fn open_free(
        &mut self,
        threads: &[ThreadId],
    ) -> Result<HashMap<ThreadId, Lease>, StoreError> {
        if threads.is_empty() {
            return Ok(HashMap::new());
        }
        self.register().await?;
        // The epochs are on the disk before an event may carry one.
        let tx = self.db.begin_ahead(true, OPENING).await?;
        let free = "removed = FALSE AND (owner IS NULL OR owner = $1)";
        let mut padded = threads.to_vec();
        pad_to_power_of_two(&mut padded);
        let places = placeholders(2, padded.len());
        let skip = match tx.backend() {
            DatabaseKind::Postgres => " ORDER BY id FOR NO KEY UPDATE SKIP LOCKED",
            DatabaseKind::Sqlite => "",
        };
        let sql = format!(
            "UPDATE threads SET owner = $1, epoch = epoch + 1 WHERE id IN \
             (SELECT id FROM threads WHERE id IN ({places}) AND {free}{skip}) AND {free} \
             RETURNING {OPENING_COLUMNS}"
        );
        let ids = padded.iter().map(|thread| Value::from(thread.as_str()));
        let values = [Value::from(self.id.as_str())].into_iter().chain(ids);
        let mut found = tx.all(&sql, values).await?;
        if found.len() < threads.len() {
            found.extend(self.open_new(&tx, padded).await?);
        }
        let mut leases = HashMap::with_capacity(found.len());
        for row in &found {
            let lease = lease(row)?;
            leases.insert(lease.thread.clone(), lease);
        }
        tx.commit().await?;
        Ok(leases)
    }

    /// Makes and opens those of these threads that there are not.
    async fn open_new(
        &self,
        tx: &Transaction<'_>,
        mut new: Vec<ThreadId>,
    ) -> Result<Vec<DatabaseRow>, StoreError> {
        let sql = format!(
            "SELECT id FROM threads WHERE id IN ({})",
            placeholders(1, new.len())
        );
        let ids = new.iter().map(|thread| thread.as_str().into());
        let known = tx.all(&sql, ids).await?;
        let known: Result<HashSet<String>, StoreError> =
            known.iter().map(|row| column(row, "id")).collect();
        let known = known?;
        new.retain(|thread| !known.contains(thread.as_str()));
        if new.is_empty() {
            return Ok(Vec::new());
        }
        pad_to_power_of_two(&mut new);
        let now = now_ms(tx.backend());
        let rows: Vec<String> = (2..new.len() + 2)
            .map(|at| format!("(${at}, $1, 1, {now}, {now})"))
            .collect();
        let sql = format!(
            "INSERT INTO threads (id, owner, epoch, created_at_ms, updated_at_ms) VALUES {} \
             ON CONFLICT (id) DO NOTHING RETURNING {OPENING_COLUMNS}",
            rows.join(", ")
        );
        let ids = new.iter().map(|thread| Value::from(thread.as_str()));
        let values = [Value::from(self.id.as_str())].into_iter().chain(ids);
        tx.all(&sql, values).await
    }

    /// Opens a thread that another writer has or had.
    async fn open(&mut self, thread: &ThreadId) -> Result<Lease, StoreError> {
        if self.has_open(thread) {
            return Err(StoreError::Busy {
                thread: thread.clone(),
                owner: "this process".to_owned(),
            });
        }
        self.register().await?;
        let tx = self.db.begin_ahead(true, OPENING).await?;
        let now = now_ms(tx.backend());
        let sql = format!(
            "INSERT INTO threads (id, created_at_ms, updated_at_ms) VALUES ($1, {now}, {now}) \
             ON CONFLICT (id) DO NOTHING"
        );
        tx.execute(&sql, [thread.as_str().into()]).await?;
        let owner = self.require_free(&tx, thread).await?;
        let sql = format!(
            "UPDATE threads SET owner = $1, epoch = epoch + 1 WHERE id = $2 \
             AND removed = FALSE AND (owner IS NULL OR owner = $3) RETURNING {OPENING_COLUMNS}"
        );
        let values: [Value; 3] = [
            self.id.as_str().into(),
            thread.as_str().into(),
            owner.into(),
        ];
        let row = tx.one(&sql, values).await?;
        let lease = lease(&row.ok_or_else(|| busy_error(thread))?)?;
        tx.commit().await?;
        Ok(lease)
    }

    fn register_lease(
        &mut self,
        lease: Lease,
        commands: mpsc::UnboundedSender<WriterCommand>,
    ) -> WriteGrant {
        let opened = WriteGrant {
            lease: LeaseGuard {
                lease: self.next_lease,
                commands,
            },
            epoch: lease.epoch,
            last_seq: lease.position.last_seq,
        };
        self.leases.insert(self.next_lease, lease);
        self.next_lease += 1;
        opened
    }
}

/// Whether an error may be about one thread and not about the database.
fn is_row_error(error: &StoreError) -> bool {
    !matches!(
        error,
        StoreError::Full { .. }
            | StoreError::ReadOnly { .. }
            | StoreError::Unreachable { .. }
            | StoreError::Closed
    )
}

/// A thread from its row.
fn lease(row: &DatabaseRow) -> Result<Lease, StoreError> {
    Ok(Lease {
        thread: ThreadId::stored(column(row, "id")?),
        epoch: number(row, "epoch")?,
        position: Position {
            last_seq: number(row, "last_seq")?,
            last_turn: number(row, "last_turn")?,
            last_event: 0,
        },
    })
}
