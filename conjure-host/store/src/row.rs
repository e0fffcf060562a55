//! Columns out of rows. Numbers are signed in the database and never negative in the domain.

use crate::StoreError;
use crate::sql::{DatabaseRow, FromColumn};

const READING: &str = "read a row";

/// A column of any type.
pub(crate) fn column<T: FromColumn>(row: &DatabaseRow, name: &str) -> Result<T, StoreError> {
    row.get(name).map_err(StoreError::of(READING))
}

/// A column of text, or of nothing.
pub(crate) fn text(row: &DatabaseRow, name: &str) -> Result<Option<String>, StoreError> {
    column(row, name)
}

/// A column of numbers that count something.
pub(crate) fn number(row: &DatabaseRow, name: &str) -> Result<u64, StoreError> {
    let number: i64 = column(row, name)?;
    u64::try_from(number).map_err(|_| StoreError::Corrupt {
        what: READING,
        reason: format!("`{name}` is {number}"),
    })
}
