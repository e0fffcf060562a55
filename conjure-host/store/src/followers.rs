//! Threads that somebody follows who can decide about their calls, by process: a turn that another
//! process runs waits for them.
//!
//! Rows of a process count while it lives. They go with its row among the writers.

use std::collections::BTreeSet;

use async_recursion::async_recursion as boxed;

use crate::database::now_ms;
use crate::row::column;
use crate::writer::{LEASE_EXPIRY, is_dead};
use crate::{Store, StoreError, ThreadId};

const TELLING: &str = "tell other processes who follows here";
/// Stands for all threads.
const ALL_THREADS: &str = "";

impl Store {
    /// Says which threads are followed in this process, and no others; `None` are all threads.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn set_followed(
        &self,
        followed: &BTreeSet<Option<ThreadId>>,
    ) -> Result<(), StoreError> {
        let name = |thread: &Option<ThreadId>| match thread {
            Some(thread) => thread.as_str().to_owned(),
            None => ALL_THREADS.to_owned(),
        };
        let now: BTreeSet<String> = followed.iter().map(name).collect();
        let writer = self.writer().await?;
        let sql = "SELECT thread_id FROM followers WHERE writer_id = $1";
        let rows = self.all(sql, [writer.as_str().into()]).await?;
        let before = rows.iter().map(|row| column(row, "thread_id"));
        let before = before.collect::<Result<BTreeSet<String>, _>>()?;
        if before == now {
            return Ok(());
        }
        let tx = self.db().begin(false, TELLING).await?;
        for gone in before.difference(&now) {
            let sql = "DELETE FROM followers WHERE writer_id = $1 AND thread_id = $2";
            tx.execute(sql, [writer.as_str().into(), gone.as_str().into()])
                .await?;
        }
        for new in now.difference(&before) {
            let sql = "INSERT INTO followers (writer_id, thread_id) VALUES ($1, $2)";
            tx.execute(sql, [writer.as_str().into(), new.as_str().into()])
                .await?;
        }
        let changed = before.symmetric_difference(&now);
        let changed: Vec<ThreadId> = changed.map(|id| ThreadId::stored(id.clone())).collect();
        tx.notify_threads(changed.iter()).await?;
        tx.commit().await
    }

    /// Whether somebody in another process that lives follows a thread, or all.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn is_followed(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let this = self.known_writer().unwrap_or_default();
        let silent = i64::try_from(LEASE_EXPIRY.as_millis()).unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT w.* FROM followers f JOIN writers w ON w.id = f.writer_id \
             WHERE (f.thread_id = $1 OR f.thread_id = $2) AND w.id <> $3 AND w.lost = FALSE \
             AND w.beat_ms >= {} - $4",
            now_ms(self.db().backend())
        );
        let values = [
            thread.as_str().into(),
            ALL_THREADS.into(),
            this.into(),
            silent.into(),
        ];
        for row in self.all(&sql, values).await? {
            if !is_dead(&row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
