//! Leases of threads: one writer writes a thread, from opening it to closing it.
//!
//! A thread names its writer, a writer has a row with a heartbeat, and every transaction touches
//! that row. A thread of a writer that is dead or was silent for too long may be taken: its
//! writer's row goes first, and with it every transaction that the silent one may still try. So
//! one row fences all threads of a process, and a group of appends to hundreds of threads costs
//! one look.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use crate::database::{Transaction, for_update, now_ms};
use crate::platform::{LiveWriter, ProcessIdentity};
use crate::row::text;
use crate::sql::{DatabaseKind, DatabaseRow, SqlError};
use crate::{StoreError, ThreadId};

use super::WriterTask;

/// A writer that was silent for so long may be taken for dead.
pub(crate) const LEASE_EXPIRY: Duration = Duration::from_secs(15);
/// Operation that errors name.
pub(super) const OPENING: &str = "open the thread";

/// A thread that this writer has open: what comes next in it.
pub(super) struct Lease {
    pub(super) thread: ThreadId,
    pub(super) epoch: u64,
    pub(super) position: Position,
}

/// Last position of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) last_seq: u64,
    pub(super) last_turn: u64,
    pub(super) last_event: u64,
}

impl WriterTask {
    /// The owner of the thread, which is this writer, nobody, or one that is dead and was fenced off:
    /// what is done next is done on the condition that it is still so. Rows of writers are locked
    /// before those of threads, as groups do, so that no two wait for each other.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when it is another that lives, [`StoreError::NoThread`].
    pub(super) async fn require_free(
        &self,
        tx: &Transaction<'_>,
        thread: &ThreadId,
    ) -> Result<Option<String>, StoreError> {
        let sql = "SELECT owner FROM threads WHERE id = $1 AND removed = FALSE";
        let row = tx.one(sql, [thread.as_str().into()]).await?;
        let owner = text(&row.ok_or_else(|| no_thread(thread))?, "owner")?;
        if let Some(owner) = &owner
            && *owner != self.id
            && let Some(owner) = live_owner(tx, owner).await?
        {
            return Err(StoreError::Busy {
                thread: thread.clone(),
                owner,
            });
        }
        Ok(owner)
    }

    /// Gives a thread back.
    pub(super) async fn release(&mut self, lease: u64) {
        let Some(lease) = self.leases.remove(&lease) else {
            return;
        };
        // When that fails, the thread is free once this writer is silent or gone.
        if let Ok(tx) = self.db.begin_ahead(false, "close the thread").await {
            let values = [lease.thread.as_str().into(), self.id.as_str().into()];
            let sql = "UPDATE threads SET owner = NULL WHERE id = $1 AND owner = $2";
            if tx.execute(sql, values).await.is_ok() {
                let _ = tx.commit().await;
            }
        }
    }

    /// Writes the heartbeat of this writer.
    pub(super) async fn beat(&mut self) {
        #[cfg(test)]
        if self.db.is_mute.load(std::sync::atomic::Ordering::SeqCst) {
            return;
        }
        let sql = format!(
            "UPDATE writers SET beat_ms = {} WHERE id = $1 AND lost = FALSE",
            now_ms(self.db.backend())
        );
        let beat = async {
            let tx = self
                .db
                .begin_ahead(false, "say that this process lives")
                .await?;
            let beaten = tx.execute(&sql, [self.id.as_str().into()]).await?;
            tx.commit().await?;
            Ok::<_, StoreError>(beaten)
        };
        match beat.await {
            Ok(0) => self.forfeit_leases(),
            Ok(_) => self.settle().await,
            Err(error) => tracing::warn!(%error, "the store's heartbeat failed"),
        }
    }

    /// Takes note that this writer was taken for dead: it has no thread any more.
    pub(super) fn forfeit_leases(&mut self) {
        self.leases.clear();
        self.id.clear();
        self.publish_id();
        self.live_writer = None;
    }

    /// Gives all threads back.
    pub(super) async fn end(&mut self) {
        if self.id.is_empty() {
            return;
        }
        self.settle().await;
        if let Ok(tx) = self.db.begin_ahead(false, "close the store").await
            && remove_writer(&tx, &self.id).await.is_ok()
        {
            let _ = tx.commit().await;
        }
        self.forfeit_leases();
    }

    /// Makes this writer known, and takes the opportunity to forget the dead.
    pub(super) async fn register(&mut self) -> Result<(), StoreError> {
        if !self.id.is_empty() {
            return Ok(());
        }
        let id = uuid::Uuid::now_v7().to_string();
        let alive = LiveWriter::new(&id);
        let this = ProcessIdentity::current();
        let tx = self.db.begin_ahead(false, OPENING).await?;
        let sql = format!(
            "SELECT * FROM writers ORDER BY id{}",
            for_update(tx.backend())
        );
        for row in tx.all(&sql, []).await? {
            let writer = WriterRecord::of(&row)?;
            if writer.is_lost || writer.is_dead() {
                remove_writer(&tx, &writer.id).await?;
            }
        }
        let sql = format!(
            "INSERT INTO writers (id, machine, pid, started, beat_ms, groups, lost, address) \
             VALUES ($1, $2, $3, $4, {}, 0, FALSE, $5)",
            now_ms(tx.backend())
        );
        let address = self.address.read();
        let address = address.unwrap_or_else(PoisonError::into_inner).clone();
        let values = [
            id.as_str().into(),
            this.machine.into(),
            this.pid.into(),
            this.started.into(),
            address.into(),
        ];
        tx.execute(&sql, values).await?;
        tx.commit().await?;
        self.id = id;
        self.publish_id();
        self.live_writer = Some(alive);
        self.groups = 0;
        Ok(())
    }

    fn publish_id(&self) {
        let shared = self.shared_id.write();
        shared
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&self.id);
    }
}

pub(super) fn no_thread(thread: &ThreadId) -> StoreError {
    StoreError::NoThread {
        thread: thread.clone(),
    }
}

/// Somebody was quicker.
pub(super) fn busy_error(thread: &ThreadId) -> StoreError {
    StoreError::Busy {
        thread: thread.clone(),
        owner: "another process".to_owned(),
    }
}

/// A writer, as the database knows it.
struct WriterRecord {
    id: String,
    process: ProcessIdentity,
    is_lost: bool,
}

impl WriterRecord {
    fn of(row: &DatabaseRow) -> Result<Self, StoreError> {
        let read = StoreError::of(OPENING);
        let known = || -> Result<Self, SqlError> {
            Ok(Self {
                id: row.get("id")?,
                process: ProcessIdentity {
                    machine: row.get("machine")?,
                    pid: row.get("pid")?,
                    started: row.get("started")?,
                },
                is_lost: row.get("lost")?,
            })
        };
        known().map_err(read)
    }

    fn is_dead(&self) -> bool {
        self.process.is_dead() || (self.process.is_this() && !LiveWriter::is_live(&self.id))
    }
}

/// Whether the writer of a row is a process of this machine that is there no more.
pub(crate) fn is_dead(row: &DatabaseRow) -> Result<bool, StoreError> {
    Ok(WriterRecord::of(row)?.is_dead())
}

/// Whether a writer is gone: dead, or silent for too long. What it may still try to write to its
/// threads fails then.
pub(crate) async fn is_expired(tx: &Transaction<'_>, id: &str) -> Result<bool, StoreError> {
    Ok(live_owner(tx, id).await?.is_none())
}

/// The writers among these that are gone. The rows of all are kept until the transaction ends,
/// and locked in the order of their ids, as by whoever else keeps several: so no two transactions wait
/// for each other.
pub(crate) async fn expired_among(
    tx: &Transaction<'_>,
    ids: BTreeSet<String>,
) -> Result<Vec<String>, StoreError> {
    let mut gone = Vec::new();
    for id in ids {
        if is_expired(tx, &id).await? {
            gone.push(id);
        }
    }
    Ok(gone)
}

/// Like [`expired_among`], for a writer whose own row is kept beside the others', in the same order.
/// `None` where that writer was taken for dead.
pub(crate) async fn expired_beside(
    tx: &Transaction<'_>,
    own: &str,
    mut others: BTreeSet<String>,
) -> Result<Option<Vec<String>>, StoreError> {
    others.remove(own);
    let behind = others.split_off(own);
    let mut gone = expired_among(tx, others).await?;
    if !lock_writer(tx, own).await? {
        return Ok(None);
    }
    gone.extend(expired_among(tx, behind).await?);
    Ok(Some(gone))
}

/// Keeps a writer's row until the transaction ends; whether it was there, and not taken for dead.
pub(crate) async fn lock_writer(tx: &Transaction<'_>, id: &str) -> Result<bool, StoreError> {
    let sql = format!(
        "SELECT id FROM writers WHERE id = $1 AND lost = FALSE{}",
        for_update(tx.backend())
    );
    Ok(tx.one(&sql, [id.into()]).await?.is_some())
}

/// Whether a writer lives, and who it is. One that does not is fenced off: what it may still try
/// to write fails.
async fn live_owner(tx: &Transaction<'_>, id: &str) -> Result<Option<String>, StoreError> {
    let sql = format!(
        "SELECT * FROM writers WHERE id = $1{}",
        for_update(tx.backend())
    );
    let Some(row) = tx.one(&sql, [id.into()]).await? else {
        return Ok(None);
    };
    let writer = WriterRecord::of(&row)?;
    let silent_since = i64::try_from(LEASE_EXPIRY.as_millis()).unwrap_or(i64::MAX);
    let sql = format!(
        "UPDATE writers SET lost = TRUE WHERE id = $1 AND (lost = TRUE OR beat_ms < {} - $2)",
        now_ms(tx.backend())
    );
    let limit = if writer.is_dead() {
        i64::MIN / 4
    } else {
        silent_since
    };
    if tx.execute(&sql, [id.into(), limit.into()]).await? > 0 {
        return Ok(None);
    }
    let this = ProcessIdentity::current();
    let owner = if writer.process == this {
        "this process".to_owned()
    } else if writer.process.machine == this.machine && tx.backend() == DatabaseKind::Sqlite {
        format!("process {}", writer.process.pid)
    } else {
        format!("process {} of its machine", writer.process.pid)
    };
    Ok(Some(owner))
}

/// Takes a writer's row away, the threads from it, and who follows in it.
async fn remove_writer(tx: &Transaction<'_>, id: &str) -> Result<(), StoreError> {
    // Before those of its threads, as by whoever takes one of them.
    let sql = format!(
        "SELECT id FROM writers WHERE id = $1{}",
        for_update(tx.backend())
    );
    tx.one(&sql, [id.into()]).await?;
    tx.execute("DELETE FROM followers WHERE writer_id = $1", [id.into()])
        .await?;
    tx.execute(
        "UPDATE threads SET owner = NULL WHERE owner = $1",
        [id.into()],
    )
    .await?;
    tx.execute("DELETE FROM writers WHERE id = $1", [id.into()])
        .await?;
    Ok(())
}
