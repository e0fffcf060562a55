//! Transactions.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::Transaction;
use sqlx::postgres::Postgres;
use sqlx::sqlite::Sqlite;
use tokio::sync::{Mutex, MutexGuard};

use super::{DatabaseConnection, DatabaseKind, DatabaseRow, SqlError, Value};

/// The purpose of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionMode {
    /// Reading: all reads see the database as it is at the first.
    Read,
    /// Writing, and on the disk when it is committed where the connection says so.
    Write,
    /// Writing, and on the disk a little later where that is said inside of a transaction.
    WriteLater,
}

impl TransactionMode {
    pub(super) fn statement(self, backend: DatabaseKind) -> &'static str {
        match (backend, self) {
            (DatabaseKind::Sqlite, Self::Read) => "BEGIN",
            // A transaction that begins by reading could not write once another program has.
            (DatabaseKind::Sqlite, Self::Write | Self::WriteLater) => "BEGIN IMMEDIATE",
            (DatabaseKind::Postgres, Self::Read) => {
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            }
            (DatabaseKind::Postgres, Self::Write) => "BEGIN",
            (DatabaseKind::Postgres, Self::WriteLater) => {
                "BEGIN; SET LOCAL synchronous_commit = off"
            }
        }
    }
}

/// A transaction; dropping it takes everything back. Statements come one after the other.
pub(crate) struct SqlTransaction {
    backend: DatabaseKind,
    inner: Mutex<DatabaseTransaction>,
}

/// A transaction of either database, while nobody else executes a statement in it.
pub(crate) enum DatabaseTransaction {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

impl DatabaseTransaction {
    pub(crate) fn connection(&mut self) -> DatabaseConnection<'_> {
        match self {
            Self::Sqlite(tx) => DatabaseConnection::Sqlite(tx),
            Self::Postgres(tx) => DatabaseConnection::Postgres(tx),
        }
    }
}

impl SqlTransaction {
    pub(super) fn sqlite(tx: Transaction<'static, Sqlite>) -> Self {
        Self {
            backend: DatabaseKind::Sqlite,
            inner: Mutex::new(DatabaseTransaction::Sqlite(tx)),
        }
    }

    pub(super) fn postgres(tx: Transaction<'static, Postgres>) -> Self {
        Self {
            backend: DatabaseKind::Postgres,
            inner: Mutex::new(DatabaseTransaction::Postgres(tx)),
        }
    }

    pub(crate) fn backend(&self) -> DatabaseKind {
        self.backend
    }

    /// For rows that are read one at a time.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, DatabaseTransaction> {
        self.inner.lock().await
    }

    /// Executes a statement; how many rows it changed.
    pub(crate) fn execute<'a>(
        &'a self,
        sql: &'a str,
        values: Vec<Value>,
    ) -> BoxFuture<'a, Result<u64, SqlError>> {
        async move { self.lock().await.connection().execute(sql, values).await }.boxed()
    }

    /// The first row that a statement gives.
    pub(crate) fn one<'a>(
        &'a self,
        sql: &'a str,
        values: Vec<Value>,
    ) -> BoxFuture<'a, Result<Option<DatabaseRow>, SqlError>> {
        async move { self.lock().await.connection().one(sql, values).await }.boxed()
    }

    /// All rows that a statement gives.
    pub(crate) fn all<'a>(
        &'a self,
        sql: &'a str,
        values: Vec<Value>,
    ) -> BoxFuture<'a, Result<Vec<DatabaseRow>, SqlError>> {
        async move { self.lock().await.connection().all(sql, values).await }.boxed()
    }

    pub(crate) async fn commit(self) -> Result<(), SqlError> {
        let done = match self.inner.into_inner() {
            DatabaseTransaction::Sqlite(tx) => tx.commit().await,
            DatabaseTransaction::Postgres(tx) => tx.commit().await,
        };
        done.map_err(SqlError::Query)
    }

    pub(crate) async fn rollback(self) -> Result<(), SqlError> {
        let done = match self.inner.into_inner() {
            DatabaseTransaction::Sqlite(tx) => tx.rollback().await,
            DatabaseTransaction::Postgres(tx) => tx.rollback().await,
        };
        done.map_err(SqlError::Query)
    }
}
