//! Opening threads: all that are asked for at once in one transaction, which goes to the disk once.
//!
//! That is for threads that nobody has. One whose owner is another writer is opened by itself:
//! that writer has to be looked at, and fenced off if it is dead.

use std::collections::HashMap;

use sea_orm::{DbBackend, QueryResult, Value};

use crate::database::{Transaction, now_ms};
use crate::row::{column, number};
use crate::{StoreError, ThreadId};

use super::lease::{Lease, OPENING, Position, taken_meanwhile};
use super::{Opened, Opening, PATIENCE, Writer, within};

/// Threads that one transaction opens.
const AT_ONCE: usize = 64;

/// What is read of a thread that is opened.
const READ: &str = "id, epoch, last_seq, last_turn";

impl Writer {
    /// Opens threads and answers who asked for them.
    pub(super) async fn open_all(&mut self, mut openings: Vec<Opening>) {
        while !openings.is_empty() {
            let rest = openings.split_off(openings.len().min(AT_ONCE));
            self.open_some(openings).await;
            openings = rest;
        }
    }

    async fn open_some(&mut self, openings: Vec<Opening>) {
        let mut free: Vec<ThreadId> = Vec::with_capacity(openings.len());
        for Opening { thread, .. } in &openings {
            if !self.has_open(thread) && !free.contains(thread) {
                free.push(thread.clone());
            }
        }
        free.sort_unstable();
        // There are few sizes of the statements, which are kept.
        if let Some(last) = free.last().cloned() {
            free.resize(free.len().next_power_of_two(), last);
        }
        let mut taken = within(PATIENCE, OPENING, self.open_free(&free)).await;
        for Opening { thread, answer } in openings {
            let opened = match &mut taken {
                Ok(taken) => match taken.remove(&thread) {
                    Some(opened) => Ok(opened),
                    None => within(PATIENCE, OPENING, self.open(&thread)).await,
                },
                Err(error) => Err(error.clone()),
            };
            let lease = opened.as_ref().map(|opened| opened.lease).ok();
            // Whoever asked may have gone.
            if answer.send(opened).is_err()
                && let Some(lease) = lease
            {
                self.release(lease).await;
            }
        }
    }

    fn has_open(&self, thread: &ThreadId) -> bool {
        self.leases.values().any(|lease| lease.thread == *thread)
    }

    /// Opens those of these threads that no other writer has.
    async fn open_free(
        &mut self,
        threads: &[ThreadId],
    ) -> Result<HashMap<ThreadId, Opened>, StoreError> {
        if threads.is_empty() {
            return Ok(HashMap::new());
        }
        self.register().await?;
        // The epochs are on the disk before an event may carry one.
        let tx = self.db.begin_ahead(true, OPENING).await?;
        make(&tx, threads).await?;
        let ids = || threads.iter().map(|thread| Value::from(thread.as_str()));
        if tx.backend() == DbBackend::Postgres && threads.len() > 1 {
            // In their order, as any other process does, so that no two wait for each other.
            let sql = format!(
                "SELECT id FROM threads WHERE id IN ({}) ORDER BY id FOR UPDATE",
                places(1, threads.len())
            );
            tx.all(&sql, ids()).await?;
        }
        let sql = format!(
            "UPDATE threads SET owner = $1, epoch = epoch + 1 WHERE id IN ({}) \
             AND removed = FALSE AND (owner IS NULL OR owner = $1) RETURNING {READ}",
            places(2, threads.len())
        );
        let values = [Value::from(self.id.as_str())].into_iter().chain(ids());
        let found = tx.all(&sql, values).await?;
        let found: Result<Vec<Lease>, StoreError> = found.iter().map(lease).collect();
        let found = found?;
        tx.commit().await?;
        let opened = found.into_iter().map(|lease| {
            let thread = lease.thread.clone();
            (thread, self.keep(lease))
        });
        Ok(opened.collect())
    }

    /// Opens a thread that another writer has or had.
    async fn open(&mut self, thread: &ThreadId) -> Result<Opened, StoreError> {
        if self.has_open(thread) {
            return Err(StoreError::Busy {
                thread: thread.clone(),
                owner: "this process".to_owned(),
            });
        }
        self.register().await?;
        let tx = self.db.begin_ahead(true, OPENING).await?;
        make(&tx, std::slice::from_ref(thread)).await?;
        let owner = self.nobody_else(&tx, thread).await?;
        let sql = format!(
            "UPDATE threads SET owner = $1, epoch = epoch + 1 WHERE id = $2 \
             AND removed = FALSE AND (owner IS NULL OR owner = $3) RETURNING {READ}"
        );
        let values: [Value; 3] = [
            self.id.as_str().into(),
            thread.as_str().into(),
            owner.into(),
        ];
        let row = tx.one(&sql, values).await?;
        let lease = lease(&row.ok_or_else(|| taken_meanwhile(thread))?)?;
        tx.commit().await?;
        Ok(self.keep(lease))
    }

    fn keep(&mut self, lease: Lease) -> Opened {
        let opened = Opened {
            lease: self.next_lease,
            epoch: lease.epoch,
            last_seq: lease.position.last_seq,
        };
        self.leases.insert(self.next_lease, lease);
        self.next_lease += 1;
        opened
    }
}

/// Makes those of these threads that there are not.
async fn make(tx: &Transaction<'_>, threads: &[ThreadId]) -> Result<(), StoreError> {
    let now = now_ms(tx.backend());
    let rows: Vec<String> = (1..=threads.len())
        .map(|at| format!("(${at}, {now}, {now})"))
        .collect();
    let sql = format!(
        "INSERT INTO threads (id, created_at_ms, updated_at_ms) VALUES {} \
         ON CONFLICT (id) DO NOTHING",
        rows.join(", ")
    );
    let ids = threads.iter().map(|thread| thread.as_str().into());
    tx.execute(&sql, ids).await?;
    Ok(())
}

/// So many placeholders from a number on.
fn places(first: usize, count: usize) -> String {
    let places: Vec<String> = (first..first + count).map(|at| format!("${at}")).collect();
    places.join(", ")
}

/// A thread from its row.
fn lease(row: &QueryResult) -> Result<Lease, StoreError> {
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
