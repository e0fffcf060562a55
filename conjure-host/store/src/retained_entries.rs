//! Entries that a fork shows and their own thread does not any more, since it was cleared or removed.

use async_recursion::async_recursion as boxed;

use crate::lineage::VisibleEntries;
use crate::row::number;
use crate::{Store, StoreError, ThreadId};

const READING: &str = "read what a fork keeps";

/// Entries of a thread that only forks of it show, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedEntries {
    /// The thread that had them, which may be there no more.
    pub thread: ThreadId,
    /// The entry before the first.
    pub after_seq: u64,
    /// The last.
    pub last_seq: u64,
}

impl Store {
    /// What a fork shows of its ancestors that these do not show themselves.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn retained_entries(
        &self,
        fork: &ThreadId,
    ) -> Result<Vec<RetainedEntries>, StoreError> {
        let tx = self.db().snapshot(READING).await?;
        let shown = VisibleEntries::read(&tx, fork).await?;
        let mut kept = Vec::new();
        for stretch in shown.stretches {
            if stretch.thread == fork.as_str() {
                continue;
            }
            let sql = "SELECT cleared_upto FROM threads WHERE id = $1";
            let row = tx.one(sql, vec![stretch.thread.as_str().into()]).await;
            let row = row.map_err(StoreError::of(READING))?;
            // A thread that is removed is cleared to its end.
            let cleared = row.map_or(Ok(0), |row| number(&row, "cleared_upto"))?;
            let upto = stretch.last_seq.min(cleared);
            if stretch.after_seq < upto {
                kept.push(RetainedEntries {
                    thread: ThreadId::stored(stretch.thread),
                    after_seq: stretch.after_seq,
                    last_seq: upto,
                });
            }
        }
        Ok(kept)
    }
}
