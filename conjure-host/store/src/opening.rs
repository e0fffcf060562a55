//! Opening a database: it is made where it is not there, and brought to the newest schema.

use std::sync::Arc;

use crate::database::Database;
use crate::migrations::{self, STEPS};
use crate::{Location, Options, Store, StoreError};

impl Store {
    /// Opens a database, makes it when it is not there, and brings it to the newest schema. Must
    /// be called on a tokio runtime.
    ///
    /// # Errors
    /// [`StoreError::Newer`] when a newer Conjure made the database, and what the database or the
    /// file system says.
    pub async fn open(location: &Location, options: &Options) -> Result<Self, StoreError> {
        let db = Arc::new(Database::connect(location).await?);
        migrations::migrate(&STEPS, &db, location, options.backups.as_deref()).await?;
        Self::over(db, options.quotas)
    }
}
