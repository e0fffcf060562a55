//! Which steps of the schema a database has.

use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbBackend};

use crate::StoreError;
use crate::database::statement;
use crate::row::column;

const LOOKING: &str = "look at the schema of the database";

/// The steps that a database has, the oldest first.
pub(crate) async fn applied(tx: &DatabaseTransaction) -> Result<Vec<String>, StoreError> {
    let backend = tx.get_database_backend();
    let all = async |sql| {
        let rows = tx.query_all_raw(statement(backend, sql, [])).await;
        rows.map_err(StoreError::of(LOOKING))
    };
    let is_there = match backend {
        DbBackend::Postgres => {
            "SELECT 1 AS one FROM information_schema.tables \
             WHERE table_schema = current_schema() AND table_name = 'seaql_migrations'"
        }
        _ => "SELECT 1 AS one FROM sqlite_master WHERE name = 'seaql_migrations'",
    };
    if all(is_there).await?.is_empty() {
        return Ok(Vec::new());
    }
    let rows = all("SELECT version FROM seaql_migrations ORDER BY version").await?;
    rows.iter().map(|row| column(row, "version")).collect()
}
