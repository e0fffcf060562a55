//! Rows, and what their columns hold.

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

use super::SqlError;

/// A row of either database.
pub(crate) enum DatabaseRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl DatabaseRow {
    /// Value of a column, by its name.
    pub(crate) fn get<T: FromColumn>(&self, name: &str) -> Result<T, SqlError> {
        T::from_column(self, name)
    }
}

/// Types that a column may hold.
pub(crate) trait FromColumn: Sized {
    fn from_column(row: &DatabaseRow, name: &str) -> Result<Self, SqlError>;
}

/// Types that both databases have, and each of them where a column may hold nothing.
macro_rules! columns {
    ($($kind:ty)*) => { $(
        impl FromColumn for Option<$kind> {
            fn from_column(row: &DatabaseRow, name: &str) -> Result<Self, SqlError> {
                match row {
                    DatabaseRow::Sqlite(row) => row.try_get(name),
                    DatabaseRow::Postgres(row) => row.try_get(name),
                }
                .map_err(SqlError::Query)
            }
        }

        impl FromColumn for $kind {
            fn from_column(row: &DatabaseRow, name: &str) -> Result<Self, SqlError> {
                let held: Option<Self> = row.get(name)?;
                held.ok_or_else(|| SqlError::Null(name.to_owned()))
            }
        }
    )* };
}

columns! { i64 i32 f64 bool String Vec<u8> }
