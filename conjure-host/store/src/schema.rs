//! Steps of the schema that a database has.

use crate::StoreError;
use crate::row::column;
use crate::sql::{DatabaseKind, SqlTransaction};

const LOOKING: &str = "look at the schema of the database";

/// The steps that a database has, the oldest first.
pub(crate) async fn applied_steps(tx: &SqlTransaction) -> Result<Vec<String>, StoreError> {
    let all = async |sql| {
        let rows = tx.all(sql, Vec::new()).await;
        rows.map_err(StoreError::of(LOOKING))
    };
    let is_there = match tx.backend() {
        DatabaseKind::Postgres => {
            "SELECT 1 AS one FROM information_schema.tables \
             WHERE table_schema = current_schema() AND table_name = 'seaql_migrations'"
        }
        DatabaseKind::Sqlite => {
            "SELECT 1 AS one FROM sqlite_master WHERE name = 'seaql_migrations'"
        }
    };
    if all(is_there).await?.is_empty() {
        return Ok(Vec::new());
    }
    let rows = all("SELECT version FROM seaql_migrations ORDER BY version").await?;
    rows.iter().map(|row| column(row, "version")).collect()
}
