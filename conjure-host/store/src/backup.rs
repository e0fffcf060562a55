//! Copies of a whole database that somebody asks for, also of one that is damaged.

use std::path::Path;

use async_recursion::async_recursion as boxed;

use crate::database_copy::copy;
use crate::salvage::{UnreadRows, salvage};
use crate::{Store, StoreError};

impl Store {
    /// Writes the whole database, sealed secrets included, to a new file: an SQLite file of its
    /// own, or of a PostgreSQL database JSON lines; as it is at one moment, while others go on
    /// writing. Of a damaged SQLite file what can be read, then not at one moment. Which rows could
    /// not be read.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file is there already or cannot be written,
    /// [`StoreError::NothingReadable`], and what the database says. No file is left behind then.
    #[boxed]
    pub async fn backup(&self, path: &Path) -> Result<Vec<UnreadRows>, StoreError> {
        let copied = copy(self.db(), path).await;
        match (copied, self.db().file()) {
            (Err(StoreError::Corrupt { .. } | StoreError::Disk { .. }), Some(from)) => {
                salvage(from, path).await
            }
            (copied, _) => copied.map(|()| Vec::new()),
        }
    }
}
