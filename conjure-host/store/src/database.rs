//! The connections to a database, and transactions for writing.
//!
//! One connection writes, a few read. What SQLite and PostgreSQL say differently is said here.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use conjure_config::SyncBox;
use secrecy::ExposeSecret as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{Mutex, MutexGuard, Semaphore, broadcast};

use crate::checkpoints::{self, CommitCount};
use crate::read_only_file::ReadOnlyFile;
use crate::signals::SharedWatch;
use crate::sql::{
    DatabaseKind, DatabaseRow, Pool, SqlError, SqlTransaction, TransactionMode, Value,
};
use crate::sqlite_file::{BUSY_TIMEOUT, DatabaseAccess, for_reading, sqlite};
use crate::{Location, StoreError, ThreadId, sqlite_file, thread_marks};

/// How long one waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(15);
/// Connections that read.
pub(crate) const READERS: u32 = 4;
/// Transactions that may wait for the connection that writes ahead of the writer of threads, for
/// whom all open threads wait.
const MAX_AHEAD_OF_WRITER: usize = 4;
/// Connections that nobody used for so long are closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// An open database.
pub(crate) struct Database(SyncBox<DatabaseParts>);

/// What [`Database`] consists of.
pub(crate) struct DatabaseParts {
    backend: DatabaseKind,
    /// The file, where it is one.
    file: Option<PathBuf>,
    access: DatabaseAccess,
    /// State of the file, where it can only be read.
    read_only: Option<Arc<ReadOnlyFile>>,
    /// Options for connecting to a PostgreSQL server.
    server: Option<PgConnectOptions>,
    /// Watcher of what other processes write.
    pub(crate) watch: SharedWatch,
    /// Tells of threads that this process names, clears or removes.
    pub(crate) marked_threads: broadcast::Sender<ThreadId>,
    /// Counts what is committed.
    pub(crate) commits: CommitCount,
    /// Held by who moves the write-ahead log into the file: SQLite lets only one, and has nobody wait. Who
    /// holds the connection that writes may wait for this, and nobody the other way round.
    pub(crate) checkpoint_lock: Mutex<()>,
    read: Pool,
    write: Mutex<WritePool>,
    /// Permits of those who may wait ahead of the writer of threads.
    queue_permits: Semaphore,
    /// Number of times that the writer of threads asked for the connection.
    #[cfg(test)]
    pub(crate) asked_ahead: std::sync::atomic::AtomicUsize,
    #[cfg(test)]
    pub(crate) crash: crate::tests::Crash,
    #[cfg(test)]
    pub(crate) is_mute: std::sync::atomic::AtomicBool,
}

struct WritePool {
    db: Pool,
    /// Whether the connection forces commits to the disk; SQLite only.
    is_synchronous: bool,
}

impl Deref for Database {
    type Target = DatabaseParts;

    fn deref(&self) -> &DatabaseParts {
        &self.0
    }
}

impl Database {
    pub(crate) async fn connect(location: &Location) -> Result<Self, StoreError> {
        let mut server = None;
        let mut access = DatabaseAccess::ReadWrite;
        let mut read_only = None;
        let (backend, read, write) = match location {
            Location::File(path) => {
                access = DatabaseAccess::prepare(path)?;
                if access == DatabaseAccess::ReadOnly {
                    read_only = Some(Arc::new(ReadOnlyFile::new(path, ACQUIRE_TIMEOUT)));
                }
                // Behind the first look: what changes in between is found by the next one.
                let options = access.options(path);
                let read = match access {
                    DatabaseAccess::ReadWrite => sqlite_file::reader_of(path),
                    DatabaseAccess::ReadOnly => for_reading(options.clone()),
                };
                let readers = with_connection_checks(SqlitePoolOptions::new(), read_only.clone())
                    .max_connections(READERS)
                    .idle_timeout(IDLE_TIMEOUT)
                    .acquire_timeout(ACQUIRE_TIMEOUT)
                    .test_before_acquire(false)
                    .connect_lazy_with(read);
                let options =
                    options.pragma("wal_autocheckpoint", checkpoints::AUTOCHECKPOINT_PAGES);
                // On the heap, as below: the future of a connection is large.
                let write =
                    Box::pin(with_connection_checks(one_connection(), None).connect_with(options));
                let write = write.await.map_err(connect_error)?;
                (
                    DatabaseKind::Sqlite,
                    Pool::Sqlite(readers),
                    Pool::Sqlite(write),
                )
            }
            Location::Memory => {
                let only = Box::pin(one_connection().connect_with(sqlite().in_memory(true)));
                let only = Pool::Sqlite(only.await.map_err(connect_error)?);
                (DatabaseKind::Sqlite, only.clone(), only)
            }
            Location::Postgres(url) => {
                let options = PgConnectOptions::from_str(url.expose_secret())
                    .map_err(|error| StoreError::BadLocation {
                        location: location.to_string(),
                        reason: error.to_string(),
                    })?
                    .application_name("conjure")
                    .options([("lock_timeout", BUSY_TIMEOUT.as_millis())])
                    .disable_statement_logging();
                let pool = |connections| {
                    PgPoolOptions::new()
                        .max_connections(connections)
                        .idle_timeout(IDLE_TIMEOUT)
                        .acquire_timeout(ACQUIRE_TIMEOUT)
                };
                let write = Box::pin(pool(1).connect_with(options.clone())).await;
                server = Some(options.clone());
                let read = pool(READERS).connect_lazy_with(options);
                let write = write.map_err(connect_error)?;
                (
                    DatabaseKind::Postgres,
                    Pool::Postgres(read),
                    Pool::Postgres(write),
                )
            }
        };
        let file = match location {
            Location::File(path) => Some(path.clone()),
            Location::Memory | Location::Postgres(_) => None,
        };
        Ok(Self(SyncBox::new(DatabaseParts {
            backend,
            file,
            access,
            read_only,
            server,
            watch: SharedWatch::default(),
            marked_threads: broadcast::Sender::new(thread_marks::CHANNEL_CAPACITY),
            commits: CommitCount::default(),
            checkpoint_lock: Mutex::default(),
            read,
            write: Mutex::new(WritePool {
                db: write,
                is_synchronous: true,
            }),
            queue_permits: Semaphore::new(MAX_AHEAD_OF_WRITER),
            #[cfg(test)]
            asked_ahead: 0.into(),
            #[cfg(test)]
            crash: crate::tests::Crash::default(),
            #[cfg(test)]
            is_mute: false.into(),
        })))
    }

    pub(crate) fn backend(&self) -> DatabaseKind {
        self.backend
    }

    /// The file, where it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether the database cannot be written, since its file, directory or disk cannot be.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access == DatabaseAccess::ReadOnly
    }

    /// Connection options for listening to notifications of a server.
    pub(crate) fn listen_options(&self) -> Option<PgConnectOptions> {
        self.server.clone()
    }

    /// The pool for single reads.
    pub(crate) fn reader(&self) -> &Pool {
        if let (Some(file), Pool::Sqlite(pool)) = (&self.read_only, &self.read) {
            file.refresh(pool);
        }
        &self.read
    }

    /// For reads that belong together: all of them see the database as it is at the first.
    pub(crate) async fn snapshot(&self, what: &'static str) -> Result<SqlTransaction, StoreError> {
        let tx = self.reader().begin(TransactionMode::Read).await;
        tx.map_err(StoreError::of(what))
    }

    /// A transaction that writes. A durable one is on the disk when it is committed, and all that
    /// was committed before it.
    pub(crate) async fn begin(
        &self,
        durable: bool,
        what: &'static str,
    ) -> Result<Transaction<'_>, StoreError> {
        let writing = self.lock_in_turn().await;
        self.begin_with(writing, durable, what).await
    }

    /// Like [`Self::begin`], ahead of nearly everybody who waits: for the writer of threads.
    pub(crate) async fn begin_ahead(
        &self,
        durable: bool,
        what: &'static str,
    ) -> Result<Transaction<'_>, StoreError> {
        let writing = self.lock_ahead().await;
        self.begin_with(writing, durable, what).await
    }

    async fn begin_with<'a>(
        &'a self,
        mut writing: MutexGuard<'a, WritePool>,
        durable: bool,
        what: &'static str,
    ) -> Result<Transaction<'a>, StoreError> {
        let tx = begin(&mut writing, self.backend, durable)
            .await
            .map_err(StoreError::of(what))?;
        Ok(Transaction {
            tx,
            what,
            commits: &self.commits,
            #[cfg(test)]
            crash: self.crash.clone(),
            _writing: writing,
        })
    }

    /// Executes one statement that writes, as its own transaction; how many rows it changed.
    pub(crate) async fn execute(
        &self,
        durable: bool,
        sql: &str,
        values: Vec<Value>,
        what: &'static str,
    ) -> Result<u64, StoreError> {
        let writing = self.lock_in_turn().await;
        self.execute_with(writing, durable, sql, values, what).await
    }

    /// Like [`Self::execute`], ahead of nearly everybody who waits: for the writer of threads.
    pub(crate) async fn execute_ahead(
        &self,
        durable: bool,
        sql: &str,
        values: Vec<Value>,
        what: &'static str,
    ) -> Result<u64, StoreError> {
        let writing = self.lock_ahead().await;
        self.execute_with(writing, durable, sql, values, what).await
    }

    async fn execute_with(
        &self,
        mut writing: MutexGuard<'_, WritePool>,
        durable: bool,
        sql: &str,
        values: Vec<Value>,
        what: &'static str,
    ) -> Result<u64, StoreError> {
        #[cfg(test)]
        self.crash.step()?;
        let done = async {
            force(&mut writing, self.backend, durable).await?;
            writing.db.execute(sql, values).await
        };
        let changed = done.await.map_err(StoreError::of(what))?;
        self.commits.add();
        Ok(changed)
    }

    async fn lock_in_turn(&self) -> MutexGuard<'_, WritePool> {
        let _turn = self.queue_permits.acquire().await;
        self.write.lock().await
    }

    async fn lock_ahead(&self) -> MutexGuard<'_, WritePool> {
        let writing = self.write.lock();
        #[cfg(test)]
        let writing = async {
            tokio::pin!(writing);
            // Its place in the queue is taken first.
            let first =
                std::future::poll_fn(|cx| std::task::Poll::Ready(writing.as_mut().poll(cx)));
            let first = first.await;
            self.asked_ahead
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            match first {
                std::task::Poll::Ready(writing) => writing,
                std::task::Poll::Pending => writing.await,
            }
        };
        writing.await
    }

    /// The connection that writes, outside of a transaction: for what may not be in one.
    pub(crate) async fn write_connection(&self) -> WriteConnection<'_> {
        WriteConnection(self.write.lock().await)
    }

    /// Gives the space of what was deleted back, and leaves nothing of it in the write-ahead log.
    /// Where a reader or another program is in the way, that is done later by the next.
    pub(crate) async fn shrink(&self) {
        if self.backend != DatabaseKind::Sqlite {
            return;
        }
        let writing = self.write.lock().await;
        let shrunk = writing
            .db
            .all("PRAGMA incremental_vacuum(4096)", Vec::new());
        if let Err(error) = shrunk.await {
            tracing::debug!(%error, "the store could not be shrunk");
        }
        let _moving = self.checkpoint_lock.lock().await;
        match checkpoints::checkpoint(&writing.db, "TRUNCATE").await {
            Ok(Some(log)) if log.remaining == 0 => {}
            Ok(_) => tracing::debug!("what was deleted is in the write-ahead log for a while"),
            Err(error) => tracing::debug!(%error, "the write-ahead log could not be emptied"),
        }
    }

    /// Copies an SQLite database into an empty file.
    pub(crate) async fn vacuum_into(
        &self,
        path: &Path,
        what: &'static str,
    ) -> Result<(), StoreError> {
        let name = path.to_str().ok_or_else(|| StoreError::BadLocation {
            location: path.display().to_string(),
            reason: "its name is not UTF-8".to_owned(),
        })?;
        let (sql, values) = ("VACUUM INTO $1", vec![name.into()]);
        let Some(source) = &self.file else {
            let copied = self.write.lock().await.db.execute(sql, values).await;
            return copied.map(drop).map_err(StoreError::of(what));
        };
        // A connection of its own, so that nobody waits for it.
        let own = one_connection().connect_with(self.access.options(source));
        let own = Pool::Sqlite(own.await.map_err(connect_error)?);
        let copied = own.execute(sql, values).await;
        own.close().await;
        copied.map(drop).map_err(StoreError::of(what))
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        let writing = self.write.lock().await;
        self.read.close().await;
        writing.db.close().await;
    }
}

/// The connection that writes.
pub(crate) struct WriteConnection<'a>(MutexGuard<'a, WritePool>);

impl Deref for WriteConnection<'_> {
    type Target = Pool;

    fn deref(&self) -> &Self::Target {
        &self.0.db
    }
}

/// Says whether the next transaction is forced to the disk, where that is said before it begins:
/// SQLite's pragma cannot change inside of one, PostgreSQL's setting ends with it.
async fn force(
    writing: &mut WritePool,
    backend: DatabaseKind,
    durable: bool,
) -> Result<(), SqlError> {
    if backend != DatabaseKind::Sqlite || writing.is_synchronous == durable {
        return Ok(());
    }
    let mode = if durable { "FULL" } else { "NORMAL" };
    let pragma = format!("PRAGMA synchronous = {mode}");
    writing.db.execute_raw(&pragma).await?;
    writing.is_synchronous = durable;
    Ok(())
}

async fn begin(
    writing: &mut WritePool,
    backend: DatabaseKind,
    durable: bool,
) -> Result<SqlTransaction, SqlError> {
    force(writing, backend, durable).await?;
    let mode = if durable {
        TransactionMode::Write
    } else {
        TransactionMode::WriteLater
    };
    writing.db.begin(mode).await
}

/// A transaction that writes; dropping it takes everything back.
pub(crate) struct Transaction<'a> {
    tx: SqlTransaction,
    what: &'static str,
    commits: &'a CommitCount,
    #[cfg(test)]
    crash: crate::tests::Crash,
    // Behind the transaction, so that its end comes first.
    _writing: MutexGuard<'a, WritePool>,
}

impl Transaction<'_> {
    pub(crate) fn backend(&self) -> DatabaseKind {
        self.tx.backend()
    }

    /// Executes a statement; how many rows it changed.
    pub(crate) fn execute(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> impl Future<Output = Result<u64, StoreError>> {
        self.execute_with(sql, values.into_iter().collect())
    }

    /// The first row that a statement gives.
    pub(crate) fn one(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> impl Future<Output = Result<Option<DatabaseRow>, StoreError>> {
        self.one_with(sql, values.into_iter().collect())
    }

    /// All rows that a statement gives.
    pub(crate) fn all(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> impl Future<Output = Result<Vec<DatabaseRow>, StoreError>> {
        self.all_with(sql, values.into_iter().collect())
    }

    async fn execute_with(&self, sql: &str, values: Vec<Value>) -> Result<u64, StoreError> {
        #[cfg(test)]
        self.crash.step()?;
        let done = self.tx.execute(sql, values).await;
        done.map_err(StoreError::of(self.what))
    }

    async fn one_with(
        &self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Option<DatabaseRow>, StoreError> {
        let row = self.tx.one(sql, values).await;
        row.map_err(StoreError::of(self.what))
    }

    async fn all_with(
        &self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<DatabaseRow>, StoreError> {
        let rows = self.tx.all(sql, values).await;
        rows.map_err(StoreError::of(self.what))
    }

    /// For reads of others, and for statements whose failures are told apart first.
    pub(crate) fn inner(&self) -> &SqlTransaction {
        &self.tx
    }

    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        #[cfg(test)]
        self.crash.step()?;
        self.tx.commit().await.map_err(StoreError::of(self.what))?;
        self.commits.add();
        #[cfg(test)]
        self.crash.step()?;
        Ok(())
    }
}

/// `count` placeholders, numbered from `first`: `$2, $3, $4`.
pub(crate) fn placeholders(first: usize, count: usize) -> String {
    let places: Vec<String> = (first..first + count).map(|at| format!("${at}")).collect();
    places.join(", ")
}

/// Repeats the last value until their number is a power of two: each number has a statement of its own,
/// which is prepared and kept.
pub(crate) fn pad_to_power_of_two<T: Clone>(values: &mut Vec<T>) {
    if let Some(last) = values.last().cloned() {
        values.resize(values.len().next_power_of_two(), last);
    }
}

/// The database's clock, in milliseconds since 1970, as SQL: hosts that share a server share it.
pub(crate) fn now_ms(backend: DatabaseKind) -> &'static str {
    match backend {
        DatabaseKind::Postgres => "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
        DatabaseKind::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    }
}

/// Keeps a row until the transaction ends, where a writer does not keep the whole database.
pub(crate) fn for_update(backend: DatabaseKind) -> &'static str {
    match backend {
        DatabaseKind::Postgres => " FOR UPDATE",
        DatabaseKind::Sqlite => "",
    }
}

/// One connection, which is kept.
pub(crate) fn one_connection() -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(1)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
}

/// Gives nobody a connection that is still in a transaction.
///
/// A full disk makes SQLite end a transaction by itself. sqlx then goes on counting it, would nest
/// the next ones in it, and what these commit would never be on the disk.
///
/// Nor one that may have been made when `file` was to be read in another way.
fn with_connection_checks(
    pool: SqlitePoolOptions,
    file: Option<Arc<ReadOnlyFile>>,
) -> SqlitePoolOptions {
    pool.before_acquire(move |connection, about| {
        let is_current = file.as_ref().is_none_or(|file| file.is_current(about.age));
        Box::pin(async move {
            if !is_current {
                return Ok(false);
            }
            if connection.is_in_transaction() {
                // A rollback may be on its way; this comes behind it.
                connection.ping().await?;
            }
            Ok(!connection.is_in_transaction())
        })
    })
}

pub(crate) fn connect_error(error: sqlx::Error) -> StoreError {
    StoreError::of("open the database")(SqlError::Connect(error))
}
