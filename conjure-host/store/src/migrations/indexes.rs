//! Indexes that are no step of the schema.
//!
//! A step shuts out every program that does not know it. An index holds nothing that is not in its
//! table: an earlier program goes on reading and writing the same rows, and the database keeps the
//! index right meanwhile. So an index that only makes reads faster is made where it is missing when a
//! database is opened, and no backup is made before. Every answer is the same without it.

use std::time::Duration;

use crate::StoreError;
use crate::database::{Database, Transaction, now_ms};
use crate::sql::{DatabaseKind, Pool, SqlError, SqlTransaction};
use crate::sqlite_file::BUSY_TIMEOUT;
use crate::writer::{LEASE_EXPIRY, is_dead};

const MAKING: &str = "make the indexes of the database";

/// Few entries tell settings, and a list of threads looks for the newest of each of them.
const SETTINGS_INDEX: &str =
    "entries_with_settings ON entries (thread_id, seq) WHERE kind = 'settings_changed'";

/// Finds the index on a PostgreSQL server, and whether it was finished.
const SERVER_INDEX_SQL: &str = "SELECT i.indisvalid AS is_valid FROM pg_index i \
     JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = current_schema() AND c.relname = 'entries_with_settings'";

/// Whether the database lacks the index, or has it unfinished.
pub(super) async fn is_missing(tx: &SqlTransaction) -> Result<bool, StoreError> {
    let sql = match tx.backend() {
        DatabaseKind::Postgres => SERVER_INDEX_SQL,
        DatabaseKind::Sqlite => {
            "SELECT TRUE AS is_valid FROM sqlite_master WHERE name = 'entries_with_settings'"
        }
    };
    let row = tx.one(sql, Vec::new()).await;
    match row.map_err(StoreError::of(MAKING))? {
        Some(row) => Ok(!row
            .get::<bool>("is_valid")
            .map_err(StoreError::of(MAKING))?),
        None => Ok(true),
    }
}

/// Creates the index where it is missing.
pub(super) async fn create(tx: &Transaction<'_>) -> Result<(), StoreError> {
    let sql = format!("CREATE INDEX IF NOT EXISTS {SETTINGS_INDEX}");
    tx.execute(&sql, []).await.map(drop)
}

/// Creates the index in a database whose schema is current, without making programs wait that use it.
/// Where it fails, since there is no room or another program writes, the next opening tries again.
pub(super) async fn create_later(db: &Database) {
    if db.is_read_only() {
        return;
    }
    let created = match db.backend() {
        DatabaseKind::Postgres => create_beside_others(db).await,
        DatabaseKind::Sqlite => create_where_alone(db).await,
    };
    if let Err(error) = created {
        tracing::debug!(%error, "an index of the store is still missing");
    }
}

/// Creates the index on a server while others write; of hosts that start at the same time one does it.
async fn create_beside_others(db: &Database) -> Result<(), StoreError> {
    let connection = db.write_connection().await;
    let created = async {
        let sql = "SELECT pg_try_advisory_lock(8101520365) AS is_mine";
        let is_mine = match connection.one(sql, Vec::new()).await? {
            Some(row) => row.get::<bool>("is_mine")?,
            None => false,
        };
        if !is_mine {
            return Ok(());
        }
        let created = create_concurrently(&connection).await;
        let sql = "SELECT pg_advisory_unlock(8101520365)";
        created.and(connection.execute_raw(sql).await)
    };
    created.await.map_err(StoreError::of(MAKING))
}

/// Creates the index outside of a transaction, as is needed for that. What an attempt that failed left is an
/// index that no query uses.
async fn create_concurrently(connection: &Pool) -> Result<(), SqlError> {
    if let Some(row) = connection.one(SERVER_INDEX_SQL, Vec::new()).await? {
        if row.get::<bool>("is_valid")? {
            return Ok(());
        }
        let sql = "DROP INDEX CONCURRENTLY IF EXISTS entries_with_settings";
        connection.execute_raw(sql).await?;
    }
    let sql = format!("CREATE INDEX CONCURRENTLY IF NOT EXISTS {SETTINGS_INDEX}");
    connection.execute_raw(&sql).await
}

/// Creates the index in a file where no other program writes threads: one would wait for all of it. Waits
/// for none either. A program that begins to write meanwhile waits, and fails where it takes longer than
/// [`BUSY_TIMEOUT`].
async fn create_where_alone(db: &Database) -> Result<(), StoreError> {
    set_busy_timeout(db, Duration::ZERO).await?;
    let creating = async {
        let tx = db.begin(false, MAKING).await?;
        if !has_live_writer(&tx).await? {
            create(&tx).await?;
        }
        tx.commit().await
    };
    let created = creating.await;
    set_busy_timeout(db, BUSY_TIMEOUT).await?;
    created
}

/// How long the connection that writes to a file waits for another program's transaction.
async fn set_busy_timeout(db: &Database, timeout: Duration) -> Result<(), StoreError> {
    let pragma = format!("PRAGMA busy_timeout = {}", timeout.as_millis());
    let set = db.write_connection().await.execute_raw(&pragma).await;
    set.map_err(StoreError::of(MAKING))
}

/// Whether the database knows a writer that was heard of lately and is not dead.
async fn has_live_writer(tx: &Transaction<'_>) -> Result<bool, StoreError> {
    let silent = i64::try_from(LEASE_EXPIRY.as_millis()).unwrap_or(i64::MAX);
    let sql = format!(
        "SELECT * FROM writers WHERE lost = FALSE AND beat_ms >= {} - $1",
        now_ms(tx.backend())
    );
    for row in tx.all(&sql, [silent.into()]).await? {
        if !is_dead(&row)? {
            return Ok(true);
        }
    }
    Ok(false)
}
