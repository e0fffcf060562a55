//! The versions of the schema, and how a database comes to the newest one and back.
//!
//! A step is a file of SQL. A database that holds something is backed up first. Going back restores
//! that backup: steps are never undone one by one, since what they dropped would be gone. Indexes that
//! only make reads faster need no step.

mod indexes;
pub(crate) mod rollback;
mod statements;

use std::path::Path;

use crate::database::{Database, Transaction};
use crate::schema::applied_steps;
use crate::sql::DatabaseKind;
use crate::{Location, StoreError, migration_backups};

pub(crate) use statements::statements;

const MIGRATING: &str = "bring the database to the newest schema";

/// Notes the steps that a database has. The name and the columns are those that databases have had
/// since the first version.
const CREATE_MIGRATIONS_TABLE: &str = "CREATE TABLE IF NOT EXISTS \"seaql_migrations\" ( \
                     \"version\" varchar NOT NULL PRIMARY KEY, \"applied_at\" bigint NOT NULL );";

/// A step of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Statements, as [`statements`] reads them.
    pub(crate) sql: &'static str,
}

/// All steps, the oldest first. A released one is never changed.
pub(crate) const STEPS: [Step; 8] = [
    Step {
        name: "m0001_first",
        sql: include_str!("m0001_first.sql"),
    },
    Step {
        name: "m0002_said",
        sql: include_str!("m0002_said.sql"),
    },
    Step {
        name: "m0003_requests",
        sql: include_str!("m0003_requests.sql"),
    },
    Step {
        name: "m0004_terms",
        sql: include_str!("m0004_terms.sql"),
    },
    Step {
        name: "m0005_recent_events",
        sql: include_str!("m0005_recent_events.sql"),
    },
    Step {
        name: "m0006_followers",
        sql: include_str!("m0006_followers.sql"),
    },
    Step {
        name: "m0007_search",
        sql: include_str!("m0007_search.sql"),
    },
    Step {
        name: "m0008_waiting",
        sql: include_str!("m0008_waiting.sql"),
    },
];

/// Brings a database to the newest schema, all steps or none. Backups go to `backups`, or beside
/// the database.
pub(crate) async fn migrate(
    steps: &[Step],
    db: &Database,
    location: &Location,
    backups: Option<&Path>,
) -> Result<(), StoreError> {
    let (applied, lacks_indexes) = {
        let tx = db.snapshot(MIGRATING).await?;
        (applied_steps(&tx).await?, indexes::is_missing(&tx).await?)
    };
    if missing_steps(steps, &applied)?.is_empty() {
        if lacks_indexes {
            indexes::create_later(db).await;
        }
        return Ok(());
    }
    if db.is_read_only() {
        return Err(StoreError::ReadOnly {
            what: MIGRATING,
            reason: "it has the form of an earlier version, or none".to_owned(),
        });
    }
    if let Some(newest) = applied.last() {
        migration_backups::back_up_before(db, location, backups, newest).await?;
    }
    let tx = db.begin(true, MIGRATING).await?;
    if tx.backend() == DatabaseKind::Postgres {
        // Of hosts that start at the same time one does it, and the others find it done.
        tx.execute("SELECT pg_advisory_xact_lock(8101520364)", [])
            .await?;
    }
    apply(steps, &tx).await?;
    indexes::create(&tx).await?;
    tx.commit().await
}

/// The steps that a database does not have.
fn missing_steps(steps: &[Step], applied: &[String]) -> Result<Vec<Step>, StoreError> {
    let is_known = |name: &String| steps.iter().any(|step| step.name == name);
    if let Some(newer) = applied.iter().find(|name| !is_known(name)) {
        return Err(StoreError::Newer {
            migration: newer.clone(),
        });
    }
    let is_missing = |step: &&Step| !applied.iter().any(|name| name == step.name);
    Ok(steps.iter().filter(is_missing).copied().collect())
}

/// Takes the steps that a database does not have, and notes them.
async fn apply(steps: &[Step], tx: &Transaction<'_>) -> Result<(), StoreError> {
    for statement in statements(CREATE_MIGRATIONS_TABLE, tx.backend()) {
        tx.execute(&statement, []).await?;
    }
    let applied = applied_steps(tx.inner()).await?;
    for step in missing_steps(steps, &applied)? {
        for statement in statements(step.sql, tx.backend()) {
            tx.execute(&statement, []).await?;
        }
        let sql = "INSERT INTO seaql_migrations (version, applied_at) VALUES ($1, $2)";
        let now = jiff::Timestamp::now().as_second();
        tx.execute(sql, [step.name.into(), now.into()]).await?;
    }
    Ok(())
}
