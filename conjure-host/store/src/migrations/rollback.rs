//! Back to the database as it was before the newest step of the schema.

use std::path::{Path, PathBuf};

use async_recursion::async_recursion as boxed;

use crate::database::Database;
use crate::row::column;
use crate::sql::DatabaseKind;
use crate::{Location, Options, Store, StoreError, migration_backups, transfer};

use super::{STEPS, Step, apply};

const RESTORING: &str = "restore the backup";

impl Store {
    /// Restores the backup that was made before the newest change of the schema: for those who go
    /// back to the Conjure from before it. What was written since is lost. Which file it was; it
    /// stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no backup, [`StoreError::Locked`] when some program
    /// has the database open, [`StoreError::Io`], and what the database says. The database is as
    /// it was then.
    #[boxed]
    pub async fn roll_back(location: &Location, options: &Options) -> Result<PathBuf, StoreError> {
        restore_newest(&STEPS, location, options.backups.as_deref()).await
    }

    /// The backup that [`Store::roll_back`] would restore.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub fn newest_backup(location: &Location, options: &Options) -> Result<PathBuf, StoreError> {
        migration_backups::newest(location, options.backups.as_deref())
    }
}

/// Restores the newest backup. Which file it was.
pub(crate) async fn restore_newest(
    steps: &[Step],
    location: &Location,
    backups: Option<&Path>,
) -> Result<PathBuf, StoreError> {
    let from = migration_backups::newest(location, backups)?;
    match location {
        Location::File(path) => restore_file(location, path, &from).await?,
        Location::Memory => {}
        Location::Postgres(_) => restore_rows(steps, location, &from).await?,
    }
    Ok(from)
}

async fn restore_file(location: &Location, path: &Path, from: &Path) -> Result<(), StoreError> {
    // The write-ahead log ends only where nobody else has the file open.
    let db = Database::connect(location).await?;
    if db.is_read_only() {
        return Err(StoreError::ReadOnly {
            what: RESTORING,
            reason: "its file or directory cannot be written".to_owned(),
        });
    }
    let mode = db
        .write_connection()
        .await
        .one("PRAGMA journal_mode = DELETE", Vec::new())
        .await
        .map_err(StoreError::of(RESTORING));
    db.close().await;
    let mode: Option<String> = mode?.map(|row| column(&row, "journal_mode")).transpose()?;
    if mode.as_deref() != Some("delete") {
        return Err(StoreError::Locked {
            what: RESTORING,
            reason: "it is open elsewhere".to_owned(),
        });
    }
    let copy = path.with_extension("restoring");
    let io = |what| StoreError::io(what, path);
    let copied = async {
        let _ = tokio::fs::remove_file(&copy).await;
        tokio::fs::copy(from, &copy).await?;
        tokio::fs::File::open(&copy).await?.sync_all().await?;
        tokio::fs::rename(&copy, path).await
    };
    copied.await.map_err(io("restore"))
}

/// Drops all tables, makes those of the backup's schema, and fills them, in one transaction.
async fn restore_rows(steps: &[Step], location: &Location, from: &Path) -> Result<(), StoreError> {
    let migration = transfer::migration_of(from).await?;
    let newest = steps.iter().position(|step| step.name == migration);
    let steps = newest.and_then(|newest| steps.get(..=newest));
    let steps = steps.ok_or(StoreError::Newer { migration })?;
    let db = Database::connect(location).await?;
    let tx = db.begin(true, RESTORING).await?;
    if tx.backend() == DatabaseKind::Postgres {
        let sql = "SELECT CAST(table_name AS TEXT) AS t FROM information_schema.tables \
                   WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'";
        for row in tx.all(sql, []).await? {
            let table: String = column(&row, "t")?;
            tx.execute(&format!("DROP TABLE \"{table}\" CASCADE"), [])
                .await?;
        }
    }
    apply(steps, &tx).await?;
    transfer::read_all(&tx, from).await?;
    tx.commit().await?;
    db.close().await;
    Ok(())
}
