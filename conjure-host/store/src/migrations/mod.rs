//! The versions of the schema, and how a database comes to the newest one.

mod m0001_first;

use sea_orm::DbBackend;
use sea_orm_migration::{MigrationTrait, MigratorTrait};

use crate::database::Database;
use crate::{Place, StoreError};

/// All migrations, the oldest first. A released one is never changed.
pub(crate) struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m0001_first::Migration)]
    }
}

/// Brings a database to the newest schema, all steps or none.
///
/// # Errors
/// [`StoreError::Newer`], and what the database says.
pub(crate) async fn migrate(db: &Database, _place: &Place) -> Result<(), StoreError> {
    const MIGRATING: &str = "bring the database to the newest schema";
    let tx = db.begin(true, MIGRATING).await?;
    if db.backend() == DbBackend::Postgres {
        // Of hosts that start at the same time one does it, and the others find it done.
        tx.execute("SELECT pg_advisory_xact_lock(8101520364)", [])
            .await?;
    }
    Migrator::up(tx.inner(), None)
        .await
        .map_err(StoreError::of(MIGRATING))?;
    tx.commit().await
}
