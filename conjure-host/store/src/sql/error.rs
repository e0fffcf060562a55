//! What a database says, and at which step.

/// Errors of a statement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqlError {
    /// No connection was free in time.
    #[error("Failed to acquire connection from pool: Connection pool timed out")]
    PoolTimedOut,
    /// The pool was closed.
    #[error("Failed to acquire connection from pool: Connection closed")]
    PoolClosed,
    /// At making a connection.
    #[error("Connection Error: {0}")]
    Connect(#[source] sqlx::Error),
    /// At a statement that gives no rows.
    #[error("Execution Error: {0}")]
    Execute(#[source] sqlx::Error),
    /// At a statement that gives rows, at a row, and at the ends of a transaction.
    #[error("Query Error: {0}")]
    Query(#[source] sqlx::Error),
    /// A column that always holds something holds nothing.
    #[error("Type Error: A null value was encountered while decoding {0:?}")]
    Null(String),
    /// A text is not the JSON that it should be.
    #[error("Error converting `String` into `JsonText`: {0}")]
    Json(#[source] serde_json::Error),
}

impl SqlError {
    /// The error for a connection that was not given.
    pub(crate) fn acquire(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolTimedOut => Self::PoolTimedOut,
            sqlx::Error::PoolClosed => Self::PoolClosed,
            error => Self::Connect(error),
        }
    }

    /// Why no transaction was begun. That a connection ends between being given and being used is
    /// not told from one that cannot be made.
    pub(crate) fn begin(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(_)
            | sqlx::Error::BeginFailed
            | sqlx::Error::InvalidSavePointStatement => Self::Query(error),
            error => Self::acquire(error),
        }
    }

    /// sqlx's error, where it is one.
    pub(crate) fn inner(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Connect(inner) | Self::Execute(inner) | Self::Query(inner) => Some(inner),
            Self::PoolTimedOut | Self::PoolClosed | Self::Null(_) | Self::Json(_) => None,
        }
    }

    /// The database's error, where it is one.
    pub(crate) fn database(&self) -> Option<&dyn sqlx::error::DatabaseError> {
        self.inner()?.as_database_error()
    }
}
