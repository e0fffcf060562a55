//! Everything out of a database and into another: JSON lines that are the same for SQLite and
//! PostgreSQL.
//!
//! The first line says what it is, each other line is a row, and the last counts them, so that a
//! file that was cut is known. Which tables and columns there are is asked of the database: an
//! older schema is written as it is.

mod export;
mod import;
mod jsonl;
mod sequence;
mod thread_file;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::StoreError;
use crate::row::column;
use crate::sql::{DatabaseKind, SqlTransaction};

pub(crate) use export::{SecretHandling, write_all};
pub(crate) use import::{migration_of, read_all};
pub use jsonl::{ImportedThreads, json_lines};

/// The form of these files.
const FORMAT_VERSION: u32 = 1;

/// Written first, in this order, since others refer to them.
const TABLES_WRITTEN_FIRST: [&str; 4] = ["saved_authentications", "threads", "sessions", "blobs"];
/// Tables that are left out. Who writes and asks at the moment, and what the schema is, is true of
/// one database only. Recent events are written as rows of `events`, and the index of the search is
/// made anew.
const SKIPPED_TABLES: [&str; 6] = [
    "writers",
    "idempotency_keys",
    "seaql_migrations",
    "recent_events",
    "searched_threads",
    "entry_texts",
];
/// What the names of the tables begin with that are SQLite's index of words.
const INDEX_TABLE_PREFIX: &str = "entry_words";

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TransferLine {
    /// The first.
    Conjure {
        version: u32,
        /// The newest step of the schema.
        migration: String,
    },
    /// A row of a table.
    Row {
        table: String,
        columns: Map<String, Json>,
    },
    /// The last.
    End { rows: u64 },
}

/// A table and its columns, as the database describes them.
#[derive(Debug)]
struct ExportTable {
    name: String,
    columns: Vec<(String, ColumnKind)>,
}

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnKind {
    Text,
    Number,
    Float,
    Bool,
    Bytes,
    /// JSON that may be compressed.
    Body,
}

impl ColumnKind {
    fn of(table: &str, column: &str, declared: &str) -> Self {
        if column == "body" && (table == "entries" || table == "events") {
            return Self::Body;
        }
        match declared {
            "bigint" | "integer" => Self::Number,
            "double" | "double precision" => Self::Float,
            "boolean" => Self::Bool,
            "bytea" => Self::Bytes,
            _ if declared.starts_with("blob") => Self::Bytes,
            _ => Self::Text,
        }
    }
}

/// The tables, those that others refer to first.
async fn tables(tx: &SqlTransaction) -> Result<Vec<ExportTable>, StoreError> {
    let sql = match tx.backend() {
        DatabaseKind::Postgres => {
            "SELECT CAST(table_name AS TEXT) AS t, CAST(column_name AS TEXT) AS c, \
             CAST(data_type AS TEXT) AS d FROM information_schema.columns \
             WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position"
        }
        DatabaseKind::Sqlite => {
            "SELECT m.name AS t, p.name AS c, lower(p.type) AS d FROM sqlite_master m \
             JOIN pragma_table_info(m.name) p WHERE m.type = 'table' \
             AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid"
        }
    };
    let mut tables: Vec<ExportTable> = Vec::new();
    let rows = tx.all(sql, Vec::new()).await;
    for row in rows.map_err(StoreError::of("read the schema"))? {
        let (name, of): (String, String) = (column(&row, "t")?, column(&row, "c")?);
        let declared: String = column(&row, "d")?;
        let kind = ColumnKind::of(&name, &of, &declared);
        match tables.last_mut().filter(|table| table.name == name) {
            Some(table) => table.columns.push((of, kind)),
            None => tables.push(ExportTable {
                name,
                columns: vec![(of, kind)],
            }),
        }
    }
    tables.retain(|table| {
        !SKIPPED_TABLES.contains(&table.name.as_str())
            && !table.name.starts_with(INDEX_TABLE_PREFIX)
    });
    let place = |table: &ExportTable| {
        TABLES_WRITTEN_FIRST
            .iter()
            .position(|first| *first == table.name)
    };
    tables.sort_by_key(|table| place(table).unwrap_or(TABLES_WRITTEN_FIRST.len()));
    Ok(tables)
}
