//! What a thread shows: its own entries and its ancestors', as stretches of their rows.
//!
//! A fork has no rows of its own below the entry that it was forked at; it reads its ancestors'.
//! What was cleared before the fork is not shown; what is cleared after it is.

use crate::row::{column, number, text};
use crate::sql::{DatabaseRow, SqlTransaction};
use crate::{StoreError, ThreadId};

/// Operation that errors name.
const READING: &str = "read the thread";

/// Entries of one thread, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) thread: String,
    /// The entry before the first.
    pub(crate) after_seq: u64,
    /// The last.
    pub(crate) last_seq: u64,
}

/// The entries that a thread shows, its parents' among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VisibleEntries {
    /// The newest first; none is empty.
    pub(crate) stretches: Vec<Stretch>,
    /// The entry before the first that is shown.
    pub(crate) floor: u64,
    /// The last entry.
    pub(crate) last: u64,
}

const ANCESTORS_SQL: &str = "\
    WITH RECURSIVE chain (id, parent, fork_from, floor, last_seq, depth) AS (\
        SELECT id, parent_thread_id, fork_from_seq, \
               CASE WHEN cleared_upto > fork_floor THEN cleared_upto ELSE fork_floor END, \
               last_seq, 0 \
        FROM threads WHERE id = $1 AND removed = FALSE \
        UNION ALL \
        SELECT t.id, t.parent_thread_id, t.fork_from_seq, c.floor, c.last_seq, c.depth + 1 \
        FROM threads t JOIN chain c ON t.id = c.parent WHERE c.fork_from > c.floor\
    ) SELECT id, parent, fork_from, floor, last_seq FROM chain ORDER BY depth";

impl VisibleEntries {
    pub(crate) async fn read(tx: &SqlTransaction, thread: &ThreadId) -> Result<Self, StoreError> {
        let rows = tx.all(ANCESTORS_SQL, vec![thread.as_str().into()]).await;
        let rows = rows.map_err(StoreError::of(READING))?;
        let Some(first) = rows.first() else {
            return Err(StoreError::NoThread {
                thread: thread.clone(),
            });
        };
        let floor = number(first, "floor")?;
        let last = number(first, "last_seq")?;
        let mut stretches = Vec::new();
        let mut upto = last;
        for row in &rows {
            let is_root = text(row, "parent")?.is_none();
            let from = if is_root {
                0
            } else {
                number(row, "fork_from")?
            };
            let above = from.max(floor);
            if above < upto {
                stretches.push(Stretch {
                    thread: column(row, "id")?,
                    after_seq: above,
                    last_seq: upto,
                });
            }
            upto = upto.min(from);
        }
        Ok(Self {
            stretches,
            floor,
            last,
        })
    }

    /// Rows of all stretches, the oldest stretch first. `sql` takes a thread, the entry before the
    /// first and the last.
    pub(crate) async fn rows(
        &self,
        tx: &SqlTransaction,
        sql: &str,
    ) -> Result<Vec<DatabaseRow>, StoreError> {
        let mut rows = Vec::new();
        for stretch in self.stretches.iter().rev() {
            let values = vec![
                stretch.thread.as_str().into(),
                stretch.after_seq.into(),
                stretch.last_seq.into(),
            ];
            let these = tx.all(sql, values).await;
            rows.extend(these.map_err(StoreError::of(READING))?);
        }
        Ok(rows)
    }

    /// The turn of an entry that is shown.
    pub(crate) async fn turn_of(&self, tx: &SqlTransaction, seq: u64) -> Result<u64, StoreError> {
        let place = self
            .stretches
            .iter()
            .find(|stretch| stretch.after_seq < seq && seq <= stretch.last_seq);
        let Some(place) = place else { return Ok(0) };
        let sql = "SELECT turn_index FROM entries WHERE thread_id = $1 AND seq = $2";
        let values = vec![place.thread.as_str().into(), seq.into()];
        let row = tx.one(sql, values).await;
        row.map_err(StoreError::of(READING))?
            .map_or(Ok(0), |row| number(&row, "turn_index"))
    }
}
