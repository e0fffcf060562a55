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

pub(crate) use connection::Connection;
pub(crate) use error::SqlError;
pub(crate) use pool::Pool;
pub(crate) use row::{FromColumn, Row};
pub(crate) use transaction::{Mode, SqlTransaction};
pub(crate) use value::Value;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}
