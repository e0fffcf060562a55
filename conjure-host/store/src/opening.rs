//! Opening a database: it is made where it is not there, and brought to the newest schema.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;

use crate::database::Database;
use crate::migrations::{self, STEPS};
use crate::{Location, Options, Store, StoreError, files};

impl Store {
    /// Opens a database, makes it when it is not there, and brings it to the newest schema. One
    /// that cannot be written is opened for reading; what writes fails with
    /// [`StoreError::ReadOnly`]. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`StoreError::Newer`] when a newer Conjure made the database, and what the database or the
    /// file system says.
    #[boxed]
    pub async fn open(location: &Location, options: &Options) -> Result<Self, StoreError> {
        let opening = async {
            let db = Arc::new(Database::connect(location).await?);
            migrations::migrate(&STEPS, &db, location, options.backups.as_deref())
                .await
                .map_err(|error| unreadable_log_error(error, &db))?;
            Ok::<_, StoreError>(db)
        };
        let db = opening
            .await
            .map_err(|error| disk_full_error(error, location))?;
        Self::from_database(db, options.quotas)
    }
}

/// Opening makes files beside the database, and SQLite calls it an error of the disk when there is no
/// room for these.
fn disk_full_error(error: StoreError, location: &Location) -> StoreError {
    match (error, location) {
        (StoreError::Disk { what, reason }, Location::File(path)) if !files::has_room(path) => {
            StoreError::Full { what, reason }
        }
        (error, _) => error,
    }
}

/// A database that cannot be written is read as it was left. Where a program that was killed left a
/// part of it in the write-ahead log, SQLite would have to write to read that.
fn unreadable_log_error(error: StoreError, db: &Database) -> StoreError {
    match error {
        StoreError::Unreachable { what, reason } if db.is_read_only() => StoreError::ReadOnly {
            what,
            reason: format!("{reason}: a part of it is in the write-ahead log beside it"),
        },
        error => error,
    }
}
