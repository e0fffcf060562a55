//! The versions of the schema, and how a database comes to the newest one and back.
//!
//! A database that holds something is backed up first. Going back restores that backup: steps are
//! never undone one by one, since what they dropped would be gone.

pub(crate) mod m0001_first;
pub(crate) mod m0002_said;
pub(crate) mod m0003_requests;
pub(crate) mod m0004_terms;
pub(crate) mod rollback;

use std::path::Path;

use sea_orm::DbBackend;
use sea_orm_migration::{MigrationTrait, MigratorTrait};

use crate::database::Database;
use crate::schema::applied;
use crate::{Location, StoreError, backup};

const MIGRATING: &str = "bring the database to the newest schema";

/// All steps, the oldest first. A released one is never changed.
pub(crate) struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_first::Migration),
            Box::new(m0002_said::Migration),
            Box::new(m0003_requests::Migration),
            Box::new(m0004_terms::Migration),
        ]
    }
}

/// Brings a database to the newest schema, all steps or none. Backups go to `backups`, or beside
/// the database.
pub(crate) async fn migrate<M: MigratorTrait>(
    db: &Database,
    location: &Location,
    backups: Option<&Path>,
) -> Result<(), StoreError> {
    let known = M::migrations();
    let applied = applied(&db.snapshot(MIGRATING).await?).await?;
    let is_known = |name: &String| known.iter().any(|known| known.name() == name);
    if let Some(newer) = applied.iter().find(|name| !is_known(name)) {
        return Err(StoreError::Newer {
            migration: newer.clone(),
        });
    }
    if applied.len() == known.len() {
        return Ok(());
    }
    if let Some(newest) = applied.last() {
        backup::before(db, location, backups, newest).await?;
    }
    let tx = db.begin(true, MIGRATING).await?;
    if tx.backend() == DbBackend::Postgres {
        // Of hosts that start at the same time one does it, and the others find it done.
        tx.execute("SELECT pg_advisory_xact_lock(8101520364)", [])
            .await?;
    }
    M::up(tx.inner(), None)
        .await
        .map_err(StoreError::of(MIGRATING))?;
    tx.commit().await
}
