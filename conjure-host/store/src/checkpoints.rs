//! Moves what is in the write-ahead log of an SQLite file into the file, beside those who write.
//!
//! SQLite does so by itself in the commit that makes the log long: whoever writes waits for the disk then,
//! 20 to 40 ms, some times a second where hundreds of replies come at once. Here a connection that reads
//! does it, and others write meanwhile. What they wrote is left, which is little and is moved while nobody
//! writes: only a log of which nothing is left begins anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;

use crate::StoreError;
use crate::database::Database;
use crate::row::column;
use crate::sql::{DatabaseConnection, DatabaseKind, Pool};

/// Commits after which the length of the log is looked at.
const COMMITS_PER_CHECK: u32 = 64;
/// Pages of a log that are moved, 8 MiB.
const LONG_LOG_PAGES: i64 = 2_048;
/// Pages that may be left for when nobody writes.
const MAX_REMAINING_PAGES: i64 = 256;
/// Rounds in which no more than that should be left; where more is, it is left for the next time.
const MAX_ROUNDS: usize = 4;
/// Pages with which a commit moves them by itself, 64 MiB: where many programs write that each commit
/// little, or where this cannot keep up.
pub(crate) const AUTOCHECKPOINT_PAGES: &str = "16384";
/// What a failure is of.
const CHECKPOINTING: &str = "move the write-ahead log";

/// Counts commits.
#[derive(Default)]
pub(crate) struct CommitCount {
    commits: AtomicU32,
    threshold: Notify,
}

impl CommitCount {
    /// One more.
    pub(crate) fn add(&self) {
        if self.commits.fetch_add(1, Ordering::Relaxed) % COMMITS_PER_CHECK == COMMITS_PER_CHECK - 1
        {
            self.threshold.notify_one();
        }
    }

    /// Waits for [`COMMITS_PER_CHECK`] of them. Safe to drop and call again.
    async fn wait_for_threshold(&self) {
        self.threshold.notified().await;
    }
}

/// What is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogPages {
    pub(crate) total: i64,
    /// Pages that the file does not have.
    pub(crate) remaining: i64,
}

/// Keeps the log of a database short for as long as this is polled.
pub(crate) async fn keep_log_short(db: Arc<Database>) {
    if db.backend() != DatabaseKind::Sqlite || db.file().is_none() || db.is_read_only() {
        return;
    }
    loop {
        db.commits.wait_for_threshold().await;
        if let Err(error) = shorten_log(&db).await {
            tracing::debug!(%error, "the write-ahead log stays as it is");
        }
    }
}

async fn shorten_log(db: &Database) -> Result<(), StoreError> {
    let long = checkpoint(db.reader(), "NOOP").await?;
    if long.is_none_or(|log| log.total < LONG_LOG_PAGES) {
        return Ok(());
    }
    for _ in 0..MAX_ROUNDS {
        let Some(log) = checkpoint_beside_writers(db).await? else {
            return Ok(());
        };
        if log.remaining <= MAX_REMAINING_PAGES {
            // No connection is held while this is waited for: who closes the database has it, and waits for
            // those.
            let writing = db.write_connection().await;
            return checkpoint(&writing, "PASSIVE").await.map(drop);
        }
    }
    Ok(())
}

/// Moves the log beside those who write.
async fn checkpoint_beside_writers(db: &Database) -> Result<Option<LogPages>, StoreError> {
    let reader = db.reader().acquire().await;
    let mut reader = reader.map_err(StoreError::of(CHECKPOINTING))?;
    // With the connection: all of them may be in use for long, and who has this is waited for by all.
    let _moving = db.checkpoint_lock.lock().await;
    checkpoint_on(reader.connection(), "PASSIVE").await
}

/// As [`checkpoint_on`], with a connection of these.
pub(crate) async fn checkpoint(db: &Pool, mode: &str) -> Result<Option<LogPages>, StoreError> {
    let connection = db.acquire().await;
    let mut connection = connection.map_err(StoreError::of(CHECKPOINTING))?;
    checkpoint_on(connection.connection(), mode).await
}

/// What is in the log after it was moved in this mode; nothing where another program moves it just now.
async fn checkpoint_on(
    connection: DatabaseConnection<'_>,
    mode: &str,
) -> Result<Option<LogPages>, StoreError> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let rows = connection.all(&sql, Vec::new()).await;
    let rows = rows.map_err(StoreError::of(CHECKPOINTING))?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let (all, moved): (i64, i64) = (column(row, "log")?, column(row, "checkpointed")?);
    Ok((all >= 0).then_some(LogPages {
        total: all,
        remaining: all - moved,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Location;
    use crate::database::READERS;
    use crate::sql::Value;

    /// How long anything may take.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A database in a file, with a table of large rows.
    async fn database(dir: &std::path::Path) -> Arc<Database> {
        let location = Location::File(dir.join("test.db"));
        let db = Database::connect(&location).await.unwrap();
        let table = "CREATE TABLE rows (text TEXT)";
        db.execute(true, table, Vec::new(), "test").await.unwrap();
        Arc::new(db)
    }

    /// Writes a row of so many pages, about.
    async fn write(db: &Database, pages: usize) {
        let text = "a".repeat(pages * 4096);
        let sql = "INSERT INTO rows VALUES ($1)";
        let written = db.execute(false, sql, vec![Value::from(text.as_str())], "test");
        written.await.unwrap();
    }

    async fn log(db: &Database) -> LogPages {
        checkpoint(db.reader(), "NOOP").await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_log_that_was_moved_begins_anew_with_the_next_commit() {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path()).await;
        for _ in 0..3 {
            write(&db, 1_000).await;
        }
        let before = log(&db).await;
        assert!(
            before.total > 3_000 && before.remaining > 3_000,
            "{before:?}"
        );
        shorten_log(&db).await.unwrap();
        assert_eq!(log(&db).await.remaining, 0);
        write(&db, 1).await;
        assert!(log(&db).await.total < 100);
        db.close().await;
    }

    #[tokio::test]
    async fn a_short_log_stays() {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path()).await;
        write(&db, 1_500).await;
        let before = log(&db).await;
        assert!(before.remaining > 1_500, "{before:?}");
        shorten_log(&db).await.unwrap();
        assert_eq!(log(&db).await, before);
        db.close().await;
    }

    #[tokio::test]
    async fn who_reads_keeps_what_it_reads_and_the_log_is_moved_when_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path()).await;
        let reading = db.snapshot("test").await.unwrap();
        let sql = "SELECT count(*) AS rows FROM rows";
        assert!(reading.one(sql, Vec::new()).await.unwrap().is_some());
        for _ in 0..3 {
            write(&db, 1_000).await;
        }
        shorten_log(&db).await.unwrap();
        assert!(log(&db).await.remaining > 0);
        let row = reading.one(sql, Vec::new()).await.unwrap().unwrap();
        assert_eq!(column::<i64>(&row, "rows").unwrap(), 0);
        reading.rollback().await.unwrap();
        shorten_log(&db).await.unwrap();
        assert_eq!(log(&db).await.remaining, 0);
        db.close().await;
    }

    #[tokio::test]
    async fn after_many_commits_the_log_is_short_and_the_database_can_be_closed() {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path()).await;
        let keeping = tokio::spawn(keep_log_short(Arc::clone(&db)));
        for _ in 0..3 * COMMITS_PER_CHECK {
            write(&db, 64).await;
        }
        let is_short = async {
            while log(&db).await.remaining >= LONG_LOG_PAGES {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, is_short).await.unwrap();
        tokio::time::timeout(PATIENCE, db.close()).await.unwrap();
        keeping.abort();
    }

    #[tokio::test]
    async fn what_is_deleted_waits_for_who_moves_the_log_and_leaves_nothing_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path()).await;
        write(&db, 10).await;
        let moving = db.checkpoint_lock.lock().await;
        let shrinking = db.shrink();
        tokio::pin!(shrinking);
        let looked = async {
            for _ in 0..500 {
                assert!(log(&db).await.total > 0);
            }
        };
        tokio::select! {
            biased;
            () = &mut shrinking => panic!("it did not wait"),
            () = looked => {}
        }
        drop(moving);
        shrinking.await;
        let log = std::fs::metadata(dir.path().join("test.db-wal")).unwrap();
        assert_eq!(log.len(), 0);
        db.close().await;
    }

    #[tokio::test]
    async fn where_all_readers_are_in_use_a_deletion_waits_for_none_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path()).await;
        let mut reading = Vec::new();
        for _ in 0..READERS {
            reading.push(db.reader().acquire().await.unwrap());
        }
        let moving = checkpoint_beside_writers(&db);
        tokio::pin!(moving);
        assert!(futures_util::poll!(&mut moving).is_pending());
        tokio::time::timeout(PATIENCE, db.shrink()).await.unwrap();
        drop(reading);
        assert_eq!(moving.await.unwrap().unwrap().remaining, 0);
        db.close().await;
    }
}
