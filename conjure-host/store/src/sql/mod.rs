//! Statements for either database, over sqlx.
//!
//! Two enums where sqlx has a type parameter: which database it is, is a value here, and code above
//! is compiled once. Knows no table; what SQLite and PostgreSQL say differently is said where a
//! statement is written.

mod connection;
mod error;
mod pool;
mod row;
mod transaction;
mod value;

pub(crate) use connection::DatabaseConnection;
pub(crate) use error::SqlError;
pub(crate) use pool::Pool;
pub(crate) use row::{DatabaseRow, FromColumn};
pub(crate) use transaction::{SqlTransaction, TransactionMode};
pub(crate) use value::Value;

/// The kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}
