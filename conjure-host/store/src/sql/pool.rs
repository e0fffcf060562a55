//! Connections that are kept.
//!
//! Futures that execute a statement are large, and are boxed here and in transactions: whoever waits
//! for one stays small.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, Postgres};
use sqlx::sqlite::{Sqlite, SqlitePool};

use super::{
    DatabaseConnection, DatabaseKind, DatabaseRow, SqlError, SqlTransaction, TransactionMode, Value,
};

/// The connections to a database. Clones are the same connections.
#[derive(Clone)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Pool {
    /// A connection, which goes back when it is dropped.
    pub(crate) fn acquire(&self) -> BoxFuture<'_, Result<Pooled, SqlError>> {
        async move {
            let connection = match self {
                Self::Sqlite(pool) => pool.acquire().await.map(Pooled::Sqlite),
                Self::Postgres(pool) => pool.acquire().await.map(Pooled::Postgres),
            };
            connection.map_err(SqlError::acquire)
        }
        .boxed()
    }

    /// Begins a transaction.
    pub(crate) fn begin(
        &self,
        mode: TransactionMode,
    ) -> BoxFuture<'_, Result<SqlTransaction, SqlError>> {
        async move {
            let tx = match self {
                Self::Sqlite(pool) => {
                    let begun = pool.begin_with(mode.statement(DatabaseKind::Sqlite)).await;
                    begun.map(SqlTransaction::sqlite)
                }
                Self::Postgres(pool) => {
                    let begun = pool
                        .begin_with(mode.statement(DatabaseKind::Postgres))
                        .await;
                    begun.map(SqlTransaction::postgres)
                }
            };
            tx.map_err(SqlError::begin)
        }
        .boxed()
    }

    /// Executes a statement; how many rows it changed.
    pub(crate) fn execute<'a>(
        &'a self,
        sql: &'a str,
        values: Vec<Value>,
    ) -> BoxFuture<'a, Result<u64, SqlError>> {
        async move {
            let mut pooled = self.acquire().await?;
            pooled.connection().execute(sql, values).await
        }
        .boxed()
    }

    /// Executes statements without values, and prepares none.
    pub(crate) async fn execute_raw(&self, sql: &str) -> Result<(), SqlError> {
        let mut pooled = self.acquire().await?;
        pooled.connection().execute_raw(sql).await
    }

    /// The first row that a statement gives.
    pub(crate) fn one<'a>(
        &'a self,
        sql: &'a str,
        values: Vec<Value>,
    ) -> BoxFuture<'a, Result<Option<DatabaseRow>, SqlError>> {
        async move {
            let mut pooled = self.acquire().await?;
            pooled.connection().one(sql, values).await
        }
        .boxed()
    }

    /// All rows that a statement gives.
    pub(crate) fn all<'a>(
        &'a self,
        sql: &'a str,
        values: Vec<Value>,
    ) -> BoxFuture<'a, Result<Vec<DatabaseRow>, SqlError>> {
        async move {
            let mut pooled = self.acquire().await?;
            pooled.connection().all(sql, values).await
        }
        .boxed()
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A connection out of a pool.
pub(crate) enum Pooled {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

impl Pooled {
    pub(crate) fn connection(&mut self) -> DatabaseConnection<'_> {
        match self {
            Self::Sqlite(pooled) => DatabaseConnection::Sqlite(pooled),
            Self::Postgres(pooled) => DatabaseConnection::Postgres(pooled),
        }
    }
}
