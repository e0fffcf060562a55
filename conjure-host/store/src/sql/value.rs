//! Values of placeholders.

use sqlx::Arguments;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;

use super::SqlError;

/// A value of a statement. What is nothing has a type, too: PostgreSQL prepares a statement for the
/// types of its first values.
#[derive(Clone)]
pub(crate) enum Value {
    Integer(Option<i64>),
    Real(Option<f64>),
    Bool(bool),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

pub(super) fn sqlite(values: Vec<Value>) -> Result<SqliteArguments, SqlError> {
    let mut arguments = SqliteArguments::default();
    arguments.reserve(values.len(), 0);
    for value in values {
        let added = match value {
            Value::Integer(number) => arguments.add(number),
            Value::Real(number) => arguments.add(number),
            Value::Bool(flag) => arguments.add(flag),
            Value::Text(text) => arguments.add(text),
            Value::Bytes(bytes) => arguments.add(bytes),
        };
        added.map_err(encoding)?;
    }
    Ok(arguments)
}

pub(super) fn postgres(values: Vec<Value>) -> Result<PgArguments, SqlError> {
    let mut arguments = PgArguments::default();
    let bytes = values.iter().map(Value::size).sum();
    arguments.reserve(values.len(), bytes);
    for value in values {
        let added = match value {
            Value::Integer(number) => arguments.add(number),
            Value::Real(number) => arguments.add(number),
            Value::Bool(flag) => arguments.add(flag),
            Value::Text(text) => arguments.add(text),
            Value::Bytes(bytes) => arguments.add(bytes),
        };
        added.map_err(encoding)?;
    }
    Ok(arguments)
}

fn encoding(error: sqlx::error::BoxDynError) -> SqlError {
    SqlError::Query(sqlx::Error::Encode(error))
}

impl Value {
    /// Bytes of the value on the way to a server, the length before them included.
    fn size(&self) -> usize {
        4 + match self {
            Self::Integer(_) | Self::Real(_) => 8,
            Self::Bool(_) => 1,
            Self::Text(text) => text.as_ref().map_or(0, String::len),
            Self::Bytes(bytes) => bytes.as_ref().map_or(0, Vec::len),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(Some(number))
    }
}

/// Neither database has numbers without a sign.
impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(Some(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(Some(number.into()))
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Integer(None), Self::from)
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(Some(number))
    }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Some(bytes.to_vec()))
    }
}
