//! Entries that a fork shows and their own thread does not any more, since it was cleared or removed.

use async_recursion::async_recursion as boxed;

use crate::lineage::VisibleEntries;
use crate::row::number;
use crate::{Store, StoreError, ThreadId};

const READING: &str = "read what a fork keeps";

/// Entries of a thread that only forks of it show, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEntries {
    /// The thread that had them, which may be there no more.
    pub thread: ThreadId,
    /// The entry before the first.
    pub above: u64,
    /// The last.
    pub upto: u64,
}

impl Store {
    /// What a fork shows of its ancestors that these do not show themselves.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn kept_entries(&self, fork: &ThreadId) -> Result<Vec<KeptEntries>, StoreError> {
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
            let upto = stretch.upto.min(cleared);
            if stretch.above < upto {
                kept.push(KeptEntries {
                    thread: ThreadId::stored(stretch.thread),
                    above: stretch.above,
                    upto,
                });
            }
        }
        Ok(kept)
    }
}
