//! A database as one new file, as it is at one moment.

use std::path::Path;

use crate::database::Database;
use crate::sql::DatabaseKind;
use crate::transfer::{SecretHandling, write_all};
use crate::{StoreError, files};

const COPYING: &str = "back the database up";

/// Writes a database to a new file; none is left behind when that fails.
pub(crate) async fn copy(db: &Database, path: &Path) -> Result<(), StoreError> {
    if db.backend() == DatabaseKind::Postgres {
        return write_all(db, path, SecretHandling::Include).await;
    }
    // An empty file is filled and keeps its mode.
    drop(files::create_private(path)?);
    let copied = match db.vacuum_into(path, COPYING).await {
        Ok(()) => sync(path).await.map_err(StoreError::io("write", path)),
        Err(error) => Err(error),
    };
    if copied.is_err() {
        let _ = std::fs::remove_file(path);
    }
    copied
}

/// Has a file on the disk.
pub(crate) async fn sync(path: &Path) -> std::io::Result<()> {
    tokio::fs::File::open(path).await?.sync_all().await
}
