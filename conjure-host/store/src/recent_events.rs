//! Events that came lately, in a table without an index.
//!
//! The index of `events` keeps a thread's rows together. A commit with a delta of each of a hundred
//! threads would write a hundred of its pages, and SQLite writes whole pages. So SQLite's short rows
//! are written here first, those of all threads into the same page or two, and are moved to `events`
//! when there are many.
//!
//! A thread's events are those of both tables. Which of them has a row means nothing, and any process
//! may move all rows. PostgreSQL writes what changes of a page, and needs none of this.

use crate::StoreError;
use crate::database::Transaction;
use crate::sql::DatabaseKind;
use crate::writer::EVENT_COLUMNS;

/// The rows of all events, for a `FROM`.
pub(crate) fn all_events(backend: DatabaseKind) -> String {
    match backend {
        DatabaseKind::Postgres => "events".to_owned(),
        DatabaseKind::Sqlite => {
            let columns = EVENT_COLUMNS.join(", ");
            format!(
                "(SELECT {columns} FROM events UNION ALL SELECT {columns} FROM recent_events) \
                 AS all_events"
            )
        }
    }
}

/// Moves all rows to `events`. In the order of its index, so that each page of it is written once.
pub(crate) async fn settle(tx: &Transaction<'_>) -> Result<(), StoreError> {
    let columns = EVENT_COLUMNS.join(", ");
    let sql = format!(
        "INSERT INTO events ({columns}) SELECT {columns} FROM recent_events \
         ORDER BY thread_id, epoch, last_seq"
    );
    if tx.execute(&sql, []).await? > 0 {
        tx.execute("DELETE FROM recent_events", []).await?;
    }
    Ok(())
}
