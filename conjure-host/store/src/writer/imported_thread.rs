//! A thread that comes whole from elsewhere, in a transaction of whoever brings it.
//!
//! Only for threads that are made in that transaction: nobody can have them open.

use conjure_core::log::Entry;

use crate::body;
use crate::database::Transaction;
use crate::sql::Value;
use crate::{Record, StoreError, ThreadId};

use super::encode::{self, EntryRow};
use super::group::{insert_entries, note_call};
use super::insert::Statements;

/// Entries of one statement's batch, so that their bytes are not all there twice.
const BATCH_ENTRIES: usize = 500;

/// Writes the entries of a thread, which has none yet, and its sums.
pub(crate) async fn write_imported_thread(
    tx: &Transaction<'_>,
    thread: &ThreadId,
    entries: &[Entry],
) -> Result<(), StoreError> {
    let mut statements = Statements::default();
    let mut spent = encode::ReplyUsage::default();
    for entries in entries.chunks(BATCH_ENTRIES) {
        let records: Vec<Record> = entries.iter().cloned().map(Record::Entry).collect();
        let rows = encode::rows(thread, &records)?;
        spent.add(rows.spent);
        let packed = rows.entries.into_iter().map(|row| {
            let body = body::pack(row.body);
            (thread.clone(), EntryRow { body, ..row })
        });
        insert_entries(tx, &mut statements, packed.collect()).await?;
        for call in rows.calls {
            note_call(tx, thread, call).await?;
        }
    }
    let Some(last) = entries.last() else {
        return Ok(());
    };
    let sql = "UPDATE threads SET last_seq = $1, last_turn = $2, replies = $3, input = $4, \
               cache_read = $5, cache_write = $6, output = $7, reasoning = $8, latency_ms = $9 \
               WHERE id = $10";
    let usage = spent.usage;
    let values: [Value; 10] = [
        last.seq.into(),
        last.turn.into(),
        spent.replies.into(),
        usage.input.into(),
        usage.cache_read.into(),
        usage.cache_write.into(),
        usage.output.into(),
        usage.reasoning.into(),
        spent.latency_ms.into(),
        thread.as_str().into(),
    ];
    tx.execute(sql, values).await?;
    Ok(())
}
