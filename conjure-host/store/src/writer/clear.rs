//! Clearing and removing threads: what no fork shows is deleted for good.
//!
//! The only way in which something leaves the log. A thread that is cleared keeps its id and its
//! numbers; one that is removed stays without a face while a fork needs its entries.

use crate::database::Transaction;
use crate::row::{column, number, text};
use crate::sql::Value;
use crate::{StoreError, ThreadId};

use super::WriterTask;
use super::lease::busy_error;

impl WriterTask {
    /// Deletes what a thread shows, as far as no fork shows it.
    pub(super) async fn clear(&mut self, thread: &ThreadId) -> Result<(), StoreError> {
        let tx = self.db.begin_ahead(true, "clear the thread").await?;
        let owner = self.require_free(&tx, thread).await?;
        unlink(&tx, thread, owner).await?;
        tx.notify_threads(std::iter::once(thread)).await?;
        tx.commit().await?;
        self.db.shrink().await;
        Ok(())
    }

    /// Clears a thread and takes it away.
    pub(super) async fn remove(&mut self, thread: &ThreadId) -> Result<(), StoreError> {
        if self.leases.values().any(|lease| lease.thread == *thread) {
            return Err(StoreError::Busy {
                thread: thread.clone(),
                owner: "this process".to_owned(),
            });
        }
        let tx = self.db.begin_ahead(true, "remove the thread").await?;
        let owner = self.require_free(&tx, thread).await?;
        let id: Value = thread.as_str().into();
        let sql = "UPDATE sessions SET chat_thread_id = NULL WHERE chat_thread_id = $1";
        tx.execute(sql, [id.clone()]).await?;
        for table in ["thread_labels", "runs"] {
            let sql = format!("DELETE FROM {table} WHERE thread_id = $1");
            tx.execute(&sql, [id.clone()]).await?;
        }
        unlink(&tx, thread, owner).await?;
        let sql = "UPDATE threads SET removed = TRUE, thread_label = '', owner = NULL, \
                   cost = NULL WHERE id = $1";
        tx.execute(sql, [id]).await?;
        reap(&tx, thread.as_str()).await?;
        tx.notify_threads(std::iter::once(thread)).await?;
        tx.commit().await?;
        self.db.shrink().await;
        Ok(())
    }
}

/// Ends what a thread shows at its newest entry, counts its turns and what they cost from zero, and
/// deletes what nobody shows now: of itself, and
/// of ancestors that only it still showed.
async fn unlink(
    tx: &Transaction<'_>,
    thread: &ThreadId,
    owner: Option<String>,
) -> Result<(), StoreError> {
    let id: Value = thread.as_str().into();
    let sql = "UPDATE threads SET cleared_upto = last_seq, last_turn = 0, replies = 0, input = 0, \
               cache_read = 0, cache_write = 0, output = 0, reasoning = 0, latency_ms = 0, \
               cost = NULL \
               WHERE id = $1 AND removed = FALSE AND (owner IS NULL OR owner = $2)";
    if tx.execute(sql, [id.clone(), owner.into()]).await? == 0 {
        return Err(busy_error(thread));
    }
    for table in ["events", "recent_events"] {
        let sql = format!("DELETE FROM {table} WHERE thread_id = $1");
        tx.execute(&sql, [id.clone()]).await?;
    }
    // What turns that are over would still write into it.
    let sql = "UPDATE runs SET message = NULL WHERE thread_id = $1 AND ended_at_ms IS NOT NULL";
    tx.execute(sql, [id]).await?;
    let mut next = Some(thread.as_str().to_owned());
    while let Some(thread) = next {
        prune(tx, &thread).await?;
        next = parent(tx, &thread).await?;
    }
    Ok(())
}

async fn parent(tx: &Transaction<'_>, thread: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT parent_thread_id FROM threads WHERE id = $1";
    let row = tx.one(sql, [thread.into()]).await?;
    row.map_or(Ok(None), |row| text(&row, "parent_thread_id"))
}

/// Deletes a thread's cleared entries that no descendant shows.
async fn prune(tx: &Transaction<'_>, thread: &str) -> Result<(), StoreError> {
    let sql = "SELECT cleared_upto FROM threads WHERE id = $1";
    let Some(row) = tx.one(sql, [thread.into()]).await? else {
        return Ok(());
    };
    let cleared = number(&row, "cleared_upto")?;
    if cleared == 0 {
        return Ok(());
    }
    let mut above = 0;
    for (from, upto) in visible_in_descendants(tx, thread).await? {
        if from > above {
            delete(tx, thread, above, from.min(cleared)).await?;
        }
        above = above.max(upto);
    }
    if above < cleared {
        delete(tx, thread, above, cleared).await?;
    }
    Ok(())
}

/// Takes a removed thread away when nobody descends from it, and ancestors that stayed for it only.
async fn reap(tx: &Transaction<'_>, thread: &str) -> Result<(), StoreError> {
    let mut next = Some(thread.to_owned());
    while let Some(thread) = next {
        next = parent(tx, &thread).await?;
        let sql = "DELETE FROM threads WHERE id = $1 AND removed = TRUE AND NOT EXISTS \
                   (SELECT 1 FROM threads fork WHERE fork.parent_thread_id = $1)";
        if tx.execute(sql, [thread.into()]).await? == 0 {
            break;
        }
    }
    Ok(())
}

const DESCENDANTS_SQL: &str = "\
    WITH RECURSIVE below (id, upto, floor) AS (\
        SELECT id, fork_from_seq, \
               CASE WHEN cleared_upto > fork_floor THEN cleared_upto ELSE fork_floor END \
        FROM threads WHERE parent_thread_id = $1 \
        UNION ALL \
        SELECT t.id, CASE WHEN t.fork_from_seq < b.upto THEN t.fork_from_seq ELSE b.upto END, \
               CASE WHEN t.cleared_upto > t.fork_floor THEN t.cleared_upto ELSE t.fork_floor END \
        FROM threads t JOIN below b ON t.parent_thread_id = b.id\
    ) SELECT floor, upto FROM below WHERE upto > floor ORDER BY floor, upto";

/// The stretches that descendants show, as (entry before the first, last), by their beginning.
async fn visible_in_descendants(
    tx: &Transaction<'_>,
    thread: &str,
) -> Result<Vec<(u64, u64)>, StoreError> {
    let rows = tx.all(DESCENDANTS_SQL, [thread.into()]).await?;
    rows.iter()
        .map(|row| Ok((number(row, "floor")?, number(row, "upto")?)))
        .collect()
}

/// Deletes entries with what hangs on them.
async fn delete(
    tx: &Transaction<'_>,
    thread: &str,
    above: u64,
    upto: u64,
) -> Result<(), StoreError> {
    let these = || -> [Value; 3] { [thread.into(), above.into(), upto.into()] };
    let sql = "SELECT DISTINCT blob_sha256 FROM artifacts WHERE thread_id = $1 \
               AND entry_seq > $2 AND entry_seq <= $3 AND blob_sha256 IS NOT NULL";
    let blobs = tx.all(sql, these()).await?;
    for (table, seq) in [
        ("artifacts", "entry_seq"),
        ("tool_calls", "entry_seq"),
        ("entries", "seq"),
    ] {
        let sql =
            format!("DELETE FROM {table} WHERE thread_id = $1 AND {seq} > $2 AND {seq} <= $3");
        tx.execute(&sql, these()).await?;
    }
    for blob in blobs {
        let sha256: String = column(&blob, "blob_sha256")?;
        crate::blob_rows::drop_unused(tx, &sha256).await?;
    }
    Ok(())
}
