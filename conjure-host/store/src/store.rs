//! The store: a database that is open.

use std::path::PathBuf;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{Event, EventId};
use conjure_core::log::Entry;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::database::{Database, now_ms};
use crate::sql::{DatabaseRow, Value};
use crate::writer::WriterQueue;
use crate::{Log, Quotas, Record, StoreError, ThreadId, ThreadLog};

/// Operation that errors name.
const READING: &str = "read the database";

/// Options for opening a database.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where backups are made before the schema changes; beside an SQLite file, in `backups`,
    /// unless told otherwise.
    pub backups: Option<PathBuf>,
    /// Limits on the bytes that blobs may take.
    pub quotas: Quotas,
}

/// An open database. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    db: Arc<Database>,
    queue: WriterQueue,
    quotas: Quotas,
}

impl Store {
    /// The store over a database of the newest schema.
    pub(crate) fn from_database(db: Arc<Database>, quotas: Quotas) -> Result<Self, StoreError> {
        let queue = WriterQueue::start(Arc::clone(&db))?;
        Ok(Self { db, queue, quotas })
    }

    /// Writes what waits, gives all threads back and closes the database. What is asked of the
    /// store later fails with [`StoreError::Closed`]. A store that is only dropped does the same
    /// by itself, a little later.
    #[boxed]
    pub async fn close(&self) {
        self.queue.close().await;
    }

    /// Deletes what a thread shows for good, except for what forks of it show, and keeps its id
    /// and its numbers. [`Store::forks_keeping`] says beforehand which these are. A thread that is
    /// open may be cleared by the store that has it open.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], [`StoreError::Busy`] when another process has it open, and what
    /// the database says.
    #[boxed]
    pub async fn clear_thread(&self, thread: &ThreadId) -> Result<(), StoreError> {
        self.queue.clear(thread).await?;
        self.notify_marked(thread);
        Ok(())
    }

    /// Clears a thread and takes it away, its runs included. Sessions that chose it have none then.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], [`StoreError::Busy`] when it is open, and what the database says.
    #[boxed]
    pub async fn remove_thread(&self, thread: &ThreadId) -> Result<(), StoreError> {
        self.queue.remove(thread).await?;
        self.notify_marked(thread);
        Ok(())
    }

    /// Whether the database cannot be written, since its file, directory or the disk cannot be: threads
    /// can be read all the same.
    pub fn is_read_only(&self) -> bool {
        self.db.is_read_only()
    }

    /// Whether the database takes what is written now: writes a sign of life of this process.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn probe(&self) -> Result<(), StoreError> {
        let writer = self.writer().await?;
        let sql = format!(
            "UPDATE writers SET beat_ms = {} WHERE id = $1 AND lost = FALSE",
            now_ms(self.db.backend())
        );
        let values = vec![writer.into()];
        let beaten = self
            .db
            .execute(false, &sql, values, "write to the database");
        beaten.await.map(drop)
    }

    /// Under which id this process owns threads, runs and requests.
    pub(crate) async fn writer(&self) -> Result<String, StoreError> {
        self.queue.writer().await
    }

    /// Id of the writer, where the store has one already.
    pub(crate) fn known_writer(&self) -> Option<String> {
        self.queue.known_writer()
    }

    /// Says where this process serves the API, for others that share the database.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn announce(&self, address: &str) -> Result<(), StoreError> {
        self.queue.set_address(address);
        let writer = self.writer().await?;
        let sql = "UPDATE writers SET address = $1 WHERE id = $2";
        let values = vec![address.into(), writer.into()];
        let what = "say where this process is";
        self.db.execute(false, sql, values, what).await.map(drop)
    }

    pub(crate) fn shared_db(&self) -> Arc<Database> {
        Arc::clone(&self.db)
    }

    pub(crate) fn quotas(&self) -> Quotas {
        self.quotas
    }

    pub(crate) fn db(&self) -> &Database {
        &self.db
    }

    pub(crate) fn one(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> impl Future<Output = Result<Option<DatabaseRow>, StoreError>> {
        self.one_with(sql, values.into_iter().collect())
    }

    async fn one_with(
        &self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Option<DatabaseRow>, StoreError> {
        let row = self.db.reader().one(sql, values).await;
        row.map_err(StoreError::of(READING))
    }

    pub(crate) fn all(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> impl Future<Output = Result<Vec<DatabaseRow>, StoreError>> {
        self.all_with(sql, values.into_iter().collect())
    }

    async fn all_with(
        &self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<DatabaseRow>, StoreError> {
        let rows = self.db.reader().all(sql, values).await;
        rows.map_err(StoreError::of(READING))
    }
}

impl Log for Store {
    fn open<'a>(
        &'a self,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Box<dyn ThreadLog>, StoreError>> {
        let open = self.queue.open(thread);
        async { Ok(Box::new(open.await?) as Box<dyn ThreadLog>) }.boxed()
    }

    fn read<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Record>, StoreError>> {
        self.records(thread).boxed()
    }

    fn read_entries<'a>(
        &'a self,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        self.all_entries(thread).boxed()
    }

    fn read_events<'a>(
        &'a self,
        thread: &'a ThreadId,
        after: Option<EventId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(EventId, Event)>, StoreError>> {
        self.events_after(thread, after, limit).boxed()
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>> {
        async {
            let sql = "SELECT id FROM threads WHERE removed = FALSE ORDER BY created_at_ms, id";
            let rows = self.all(sql, []).await?;
            rows.iter()
                .map(|row| Ok(ThreadId::stored(crate::row::column(row, "id")?)))
                .collect()
        }
        .boxed()
    }

    fn name<'a>(
        &'a self,
        thread: &'a ThreadId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.name_if_nameless(thread, name).boxed()
    }
}
