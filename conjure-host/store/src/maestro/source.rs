//! The other database: a connection that may only read, and its rows as texts.
//!
//! The tables and columns differ with the application's age, so the database is asked which it has;
//! what is not there is empty.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::database::connect_error;
use crate::row::{column, text};
use crate::sql::{Pool, SqlTransaction, TransactionMode};
use crate::{Location, StoreError};

/// Operation that errors name.
pub(super) const READING: &str = "read the-maestro's database";
/// How long one waits for a server that does not answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Without these it is another application's.
const REQUIRED_COLUMNS: [(&str, &str); 3] = [
    ("sessions", "id"),
    ("chat_history", "combined_chat"),
    ("saved_authentications", "credentials"),
];

/// A table and the columns that are read of it.
#[derive(Clone, Copy)]
pub(super) struct SourceTable {
    pub(super) table: &'static str,
    pub(super) columns: &'static [&'static str],
}

/// A row: what is not there or null is missing. It may hold secrets, so nothing prints it.
#[derive(Clone, Default)]
pub(super) struct Fields(BTreeMap<&'static str, String>);

impl Fields {
    pub(super) fn text(&self, column: &str) -> Option<&str> {
        self.0.get(column).map(String::as_str)
    }

    /// A text that says something.
    pub(super) fn nonblank(&self, column: &str) -> Option<&str> {
        self.text(column).filter(|text| !text.trim().is_empty())
    }

    pub(super) fn number(&self, column: &str) -> Option<i64> {
        self.text(column)?.parse().ok()
    }

    pub(super) fn json(&self, column: &str) -> Option<serde_json::Value> {
        serde_json::from_str(self.text(column)?).ok()
    }
}

/// A consistent view of the Maestro database.
pub(super) struct MaestroSource {
    db: Pool,
    tx: SqlTransaction,
    /// The types of columns, by tables.
    columns: BTreeMap<String, BTreeMap<String, String>>,
}

impl MaestroSource {
    pub(super) async fn open(url: &SecretString) -> Result<Self, StoreError> {
        let location = Location::parse(url.expose_secret())?;
        let bad = |reason: &str| StoreError::BadLocation {
            location: location.to_string(),
            reason: reason.to_owned(),
        };
        if !matches!(location, Location::Postgres(_)) {
            return Err(bad(
                "the-maestro keeps its data in PostgreSQL: give its URL",
            ));
        }
        let options = PgConnectOptions::from_str(url.expose_secret())
            .map_err(|error| bad(&error.to_string()))?
            .application_name("conjure")
            .options([("default_transaction_read_only", "on")])
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(RESPONSE_TIMEOUT);
        let pool = Box::pin(pool.connect_with(options)).await;
        let pool = pool.map_err(connect_error)?;
        let db = Pool::Postgres(pool);
        let tx = db.begin(TransactionMode::Read).await;
        let tx = tx.map_err(StoreError::of(READING))?;
        let columns = columns(&tx).await?;
        for (table, column) in REQUIRED_COLUMNS {
            if !columns.get(table).is_some_and(|of| of.contains_key(column)) {
                return Err(bad(&format!(
                    "it is not the database of the-maestro: it has no `{column}` in a table \
                     `{table}`"
                )));
            }
        }
        let chat = columns.get("chat_history");
        let kind = chat.and_then(|of| of.get("combined_chat"));
        if kind.is_none_or(|kind| kind != "jsonb") {
            return Err(bad(
                "`combined_chat` of `chat_history` is not of the type jsonb",
            ));
        }
        Ok(Self { db, tx, columns })
    }

    pub(super) async fn close(self) {
        // Nothing was written, so how it ends does not matter.
        let _ = self.tx.rollback().await;
        self.db.close().await;
    }

    /// All rows of a table, by the first of the columns; none where there is no such table.
    pub(super) async fn table(&self, wanted: SourceTable) -> Result<Vec<Fields>, StoreError> {
        self.table_with(wanted, &[]).await
    }

    /// Reads a table with computed columns: a name, and SQL of a text.
    pub(super) async fn table_with(
        &self,
        wanted: SourceTable,
        computed: &[(&'static str, &str)],
    ) -> Result<Vec<Fields>, StoreError> {
        let Some(there) = self.columns.get(wanted.table) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        let mut selected = Vec::new();
        for name in wanted.columns {
            let Some(kind) = there.get(*name) else {
                continue;
            };
            names.push(*name);
            selected.push(if kind.starts_with("timestamp") {
                // Infinity is no time.
                format!(
                    "CASE WHEN isfinite(\"{name}\") THEN \
                     CAST(CAST(EXTRACT(EPOCH FROM \"{name}\") * 1000 AS BIGINT) AS TEXT) END \
                     AS \"{name}\""
                )
            } else {
                format!("CAST(\"{name}\" AS TEXT) AS \"{name}\"")
            });
        }
        for (name, sql) in computed {
            names.push(*name);
            selected.push(format!("{sql} AS \"{name}\""));
        }
        let sql = format!(
            "SELECT {} FROM \"{}\" ORDER BY 1",
            selected.join(", "),
            wanted.table
        );
        let rows = self.tx.all(&sql, Vec::new()).await;
        let mut fields = Vec::new();
        for row in rows.map_err(StoreError::of(READING))? {
            let mut of_row = Fields::default();
            for name in &names {
                if let Some(text) = text(&row, name)? {
                    of_row.0.insert(name, text);
                }
            }
            fields.push(of_row);
        }
        Ok(fields)
    }

    /// The canonical chat of a row of the history.
    pub(super) async fn chat(&self, id: &str) -> Result<Option<serde_json::Value>, StoreError> {
        let history = self.columns.get("chat_history");
        let kind = history.and_then(|of| of.get("id")).map(String::as_str);
        // By the key, which is an index only in its own type.
        let by_id = match kind {
            Some("uuid") => "id = CAST($1 AS uuid)",
            Some("bigint" | "integer") => "id = CAST($1 AS bigint)",
            _ => "CAST(id AS TEXT) = $1",
        };
        let sql =
            format!("SELECT CAST(combined_chat AS TEXT) AS chat FROM chat_history WHERE {by_id}");
        let row = self.tx.one(&sql, vec![id.into()]).await;
        let row = row.map_err(StoreError::of(READING))?;
        let chat = row.map(|row| text(&row, "chat")).transpose()?.flatten();
        Ok(chat.and_then(|chat| serde_json::from_str(&chat).ok()))
    }
}

async fn columns(
    tx: &SqlTransaction,
) -> Result<BTreeMap<String, BTreeMap<String, String>>, StoreError> {
    let sql = "SELECT CAST(table_name AS TEXT) AS t, CAST(column_name AS TEXT) AS c, \
               CAST(data_type AS TEXT) AS d FROM information_schema.columns \
               WHERE table_schema = current_schema()";
    let rows = tx.all(sql, Vec::new()).await;
    let mut columns: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for row in rows.map_err(StoreError::of(READING))? {
        let (table, name): (String, String) = (column(&row, "t")?, column(&row, "c")?);
        let of_table = columns.entry(table).or_default();
        of_table.insert(name, column(&row, "d")?);
    }
    Ok(columns)
}
