//! Rows into tables, many with one statement.
//!
//! A statement has one of a few numbers of rows, so that there are few different ones and each is
//! prepared once.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::StoreError;
use crate::database::Transaction;
use crate::sql::{DatabaseKind, Value};

/// Rows of one statement at most.
pub(crate) const MAX_ROWS: usize = 64;
/// From here on statements have a multiple of so many rows.
const ROWS_STEP: usize = 16;

/// A table with the columns that are written.
pub(crate) struct InsertTable {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
}

pub(crate) const ENTRIES: InsertTable = InsertTable {
    name: "entries",
    columns: &["thread_id", "seq", "turn_index", "kind", "at_ms", "body"],
};

pub(crate) const EVENT_COLUMNS: &[&str] = &[
    "thread_id",
    "epoch",
    "last_seq",
    "first_seq",
    "after_entry",
    "body",
];

pub(crate) const EVENTS: InsertTable = InsertTable {
    name: "events",
    columns: EVENT_COLUMNS,
};

pub(crate) const RECENT_EVENTS: InsertTable = InsertTable {
    name: "recent_events",
    columns: EVENT_COLUMNS,
};

pub(crate) const ARTIFACTS: InsertTable = InsertTable {
    name: "artifacts",
    columns: &[
        "thread_id",
        "entry_seq",
        "artifact_id",
        "name",
        "media_type",
        "size",
        "source",
        "call_id",
        "place",
        "remote",
        "blob_sha256",
    ],
};

/// The texts of the statements that were made so far.
#[derive(Default)]
pub(crate) struct Statements(HashMap<(&'static str, usize, bool), String>);

impl Statements {
    /// Inserts rows; `values` holds all of them, one after the other.
    pub(crate) async fn insert(
        &mut self,
        tx: &Transaction<'_>,
        table: &InsertTable,
        values: Vec<Value>,
    ) -> Result<(), StoreError> {
        let width = table.columns.len();
        let mut left = values.len() / width;
        let mut values = values.into_iter();
        while left > 0 {
            let rows = match left {
                ..=ROWS_STEP => left,
                MAX_ROWS.. => MAX_ROWS,
                _ => left / ROWS_STEP * ROWS_STEP,
            };
            let sql = self
                .0
                .entry((table.name, rows, false))
                .or_insert_with(|| text(table, rows, tx.backend()));
            let these: Vec<Value> = values.by_ref().take(rows * width).collect();
            tx.execute(sql, these).await?;
            left -= rows;
        }
        Ok(())
    }

    /// One statement that inserts rows if a writer is still one; its id is the last value. Only
    /// where a statement has the whole database to itself, which SQLite gives it.
    pub(crate) fn if_writer(&mut self, table: &InsertTable, rows: usize) -> &str {
        self.0.entry((table.name, rows, true)).or_insert_with(|| {
            let (insert, values) = parts(table, rows, DatabaseKind::Sqlite);
            format!(
                "{insert} SELECT * FROM (VALUES {values}) \
                 WHERE EXISTS (SELECT 1 FROM writers WHERE id = ? AND lost = FALSE)"
            )
        })
    }
}

fn text(table: &InsertTable, rows: usize, backend: DatabaseKind) -> String {
    let (insert, values) = parts(table, rows, backend);
    format!("{insert} VALUES {values}")
}

/// The statement's table and columns, and the placeholders of its values.
fn parts(table: &InsertTable, rows: usize, backend: DatabaseKind) -> (String, String) {
    let insert = format!("INSERT INTO {} ({})", table.name, table.columns.join(", "));
    let width = table.columns.len();
    let mut values = String::new();
    for row in 0..rows {
        values.push_str(if row == 0 { "(" } else { ", (" });
        for column in 1..=width {
            values.push_str(if column == 1 { "" } else { ", " });
            // SQLite looks numbered places up by their names, one after the other.
            let _ = match backend {
                DatabaseKind::Postgres => write!(values, "${}", row * width + column),
                DatabaseKind::Sqlite => write!(values, "?"),
            };
        }
        values.push(')');
    }
    (insert, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_own_place() {
        let table = InsertTable {
            name: "t",
            columns: &["a", "b"],
        };
        assert_eq!(
            text(&table, 2, DatabaseKind::Postgres),
            "INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4)"
        );
        assert_eq!(
            text(&table, 2, DatabaseKind::Sqlite),
            "INSERT INTO t (a, b) VALUES (?, ?), (?, ?)"
        );
    }
}
