//! One connection, and statements on it.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, query_with, raw_sql};

use super::{DatabaseKind, DatabaseRow, SqlError, Value, value};

/// A connection to either database, for one statement. Statements with values are prepared, and
/// kept for the next time with the connection; their placeholders are `$1`, `$2`, … with either
/// database.
pub(crate) enum DatabaseConnection<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

impl<'a> DatabaseConnection<'a> {
    pub(crate) fn backend(&self) -> DatabaseKind {
        match self {
            Self::Sqlite(_) => DatabaseKind::Sqlite,
            Self::Postgres(_) => DatabaseKind::Postgres,
        }
    }

    /// Executes a statement; how many rows it changed.
    pub(crate) async fn execute(self, sql: &str, values: Vec<Value>) -> Result<u64, SqlError> {
        let sql = AssertSqlSafe(sql);
        let changed = match self {
            Self::Sqlite(connection) => query_with(sql, value::sqlite(values)?)
                .execute(connection)
                .await
                .map(|done| done.rows_affected()),
            Self::Postgres(connection) => query_with(sql, value::postgres(values)?)
                .execute(connection)
                .await
                .map(|done| done.rows_affected()),
        };
        changed.map_err(SqlError::Execute)
    }

    /// Executes statements without values, and prepares none.
    pub(crate) async fn execute_raw(self, sql: &str) -> Result<(), SqlError> {
        let sql = raw_sql(AssertSqlSafe(sql));
        let done = match self {
            Self::Sqlite(connection) => sql.execute(connection).await.map(drop),
            Self::Postgres(connection) => sql.execute(connection).await.map(drop),
        };
        done.map_err(SqlError::Execute)
    }

    /// The first row that a statement gives.
    pub(crate) async fn one(
        self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Option<DatabaseRow>, SqlError> {
        let sql = AssertSqlSafe(sql);
        let row = match self {
            Self::Sqlite(connection) => query_with(sql, value::sqlite(values)?)
                .fetch_optional(connection)
                .await
                .map(|row| row.map(DatabaseRow::Sqlite)),
            Self::Postgres(connection) => query_with(sql, value::postgres(values)?)
                .fetch_optional(connection)
                .await
                .map(|row| row.map(DatabaseRow::Postgres)),
        };
        row.map_err(SqlError::Query)
    }

    /// All rows that a statement gives.
    pub(crate) async fn all(
        self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<DatabaseRow>, SqlError> {
        let mut all = Vec::new();
        let mut rows = self.stream(sql, values)?;
        while let Some(row) = rows.next().await {
            all.push(row?);
        }
        Ok(all)
    }

    /// The rows that a statement gives, one at a time.
    pub(crate) fn stream(
        self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<BoxStream<'a, Result<DatabaseRow, SqlError>>, SqlError> {
        let sql = AssertSqlSafe(sql);
        Ok(match self {
            Self::Sqlite(connection) => query_with(sql, value::sqlite(values)?)
                .fetch(connection)
                .map(|row| row.map(DatabaseRow::Sqlite).map_err(SqlError::Query))
                .boxed(),
            Self::Postgres(connection) => query_with(sql, value::postgres(values)?)
                .fetch(connection)
                .map(|row| row.map(DatabaseRow::Postgres).map_err(SqlError::Query))
                .boxed(),
        })
    }
}
