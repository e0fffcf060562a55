//! The newest settings that threads tell, of many threads in one query.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use conjure_core::log::Entry;

use crate::database::{pad_to_power_of_two, placeholders};
use crate::pages::entry;
use crate::row::{column, number};
use crate::sql::Value;
use crate::{Store, StoreError, ThreadId};

/// Threads that one query looks at.
const BATCH_THREADS: usize = 1024;

impl Store {
    /// The newest entry of what each of these threads shows that tells the settings of its session,
    /// however long ago that was. A thread that tells none is left out, and so is one that is not there.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn newest_settings(
        &self,
        threads: &[ThreadId],
    ) -> Result<BTreeMap<ThreadId, Entry>, StoreError> {
        let mut newest: BTreeMap<ThreadId, Entry> = BTreeMap::new();
        for batch in threads.chunks(BATCH_THREADS) {
            let mut batch = batch.to_vec();
            pad_to_power_of_two(&mut batch);
            let ids = batch.iter().map(|thread| Value::from(thread.as_str()));
            for row in self.all(&newest_settings_sql(batch.len()), ids).await? {
                let thread = ThreadId::stored(column(&row, "shown_by")?);
                // A row for each ancestor that tells some, and the last of them counts.
                let seq = number(&row, "seq")?;
                if newest.get(&thread).is_none_or(|known| known.seq < seq) {
                    let holder: String = column(&row, "thread_id")?;
                    let (entry, _) = entry(&row, &holder)?;
                    newest.insert(thread, entry);
                }
            }
        }
        Ok(newest)
    }
}

/// The newest entry with settings in each stretch of what so many threads show, as
/// [`VisibleEntries`](crate::lineage::VisibleEntries) describes stretches.
pub(crate) fn newest_settings_sql(threads: usize) -> String {
    let places = placeholders(1, threads);
    format!(
        "WITH RECURSIVE chain (shown_by, id, parent, fork_from, floor, upto) AS (\
             SELECT id, id, parent_thread_id, fork_from_seq, \
                 CASE WHEN cleared_upto > fork_floor THEN cleared_upto ELSE fork_floor END, \
                 last_seq \
             FROM threads WHERE id IN ({places}) AND removed = FALSE \
             UNION ALL \
             SELECT c.shown_by, t.id, t.parent_thread_id, t.fork_from_seq, c.floor, \
                 CASE WHEN c.fork_from < c.upto THEN c.fork_from ELSE c.upto END \
             FROM threads t JOIN chain c ON t.id = c.parent WHERE c.fork_from > c.floor\
         ), newest (shown_by, id, seq) AS MATERIALIZED (\
             SELECT c.shown_by, c.id, (\
                 SELECT s.seq FROM entries s \
                 WHERE s.thread_id = c.id AND s.seq > c.floor AND s.seq <= c.upto \
                 AND (c.parent IS NULL OR s.seq > c.fork_from) AND s.kind = 'settings_changed' \
                 ORDER BY s.seq DESC LIMIT 1\
             ) FROM chain c\
         ) SELECT n.shown_by, e.thread_id, e.seq, e.turn_index, e.at_ms, e.body \
         FROM newest n JOIN entries e ON e.thread_id = n.id AND e.seq = n.seq"
    )
}
