//! Copies of a damaged database: what of its rows can still be read.
//!
//! An SQLite file of the newest schema is made, and filled table by table in the order of the rows.
//! Where rows cannot be read, those behind them are looked for. The index of the search is made anew
//! when somebody searches. Mends nothing: a row without the row that it belongs to is kept, and the
//! check of the copy tells of it.

use std::path::Path;

use async_recursion::async_recursion as boxed;
use sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};

use crate::database::{Database, connect_error, one_connection};
use crate::database_copy::sync;
use crate::migrations::{STEPS, migrate};
use crate::row::column;
use crate::sql::{DatabaseRow, Pool, SqlError, Value};
use crate::sqlite_file::{DatabaseAccess, sibling_path};
use crate::{Location, Store, StoreError, files};

const SALVAGING: &str = "save what can be read of the database";
/// Rows that are copied in one transaction.
const BATCH_ROWS: u64 = 256;
/// Behind rows that cannot be read others are looked for in steps of this part of what was skipped: a
/// damaged page has few rows, and the end of a table may be any number away.
const SKIP_DIVISOR: i64 = 64;
/// Tables of the new file that are not filled.
const SKIPPED_TABLES: [&str; 3] = ["seaql_migrations", "searched_threads", "entry_texts"];
/// What the names of the tables begin with that are SQLite's index of words.
const INDEX_TABLE_PREFIX: &str = "entry_words";

/// Rows that a copy of a damaged database does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadRows {
    /// Table of the rows.
    pub table: String,
    /// How many there are at most; nothing where the end of the table cannot be read either.
    pub rows: Option<u64>,
}

impl Store {
    /// Writes what can be read of an SQLite file that is too damaged to be opened to a new file. Which
    /// rows could not be read.
    ///
    /// # Errors
    /// [`StoreError::NothingReadable`], [`StoreError::BadLocation`] when it is no file,
    /// [`StoreError::Io`] when the new file is there already or cannot be written, and what the
    /// database says of the new one. No file is left behind then.
    #[boxed]
    pub async fn salvage(location: &Location, to: &Path) -> Result<Vec<UnreadRows>, StoreError> {
        match location {
            Location::File(from) => salvage(from, to).await,
            Location::Memory | Location::Postgres(_) => Err(StoreError::BadLocation {
                location: location.to_string(),
                reason: "only an SQLite file is copied while it is damaged".to_owned(),
            }),
        }
    }
}

/// Copies what can be read into a new file; none is left behind when that fails.
pub(crate) async fn salvage(from: &Path, to: &Path) -> Result<Vec<UnreadRows>, StoreError> {
    drop(files::create_private(to)?);
    let saved = Box::pin(fill(from, to)).await;
    if saved.is_err() {
        for path in [
            to.to_owned(),
            sibling_path(to, "-wal"),
            sibling_path(to, "-shm"),
        ] {
            let _ = std::fs::remove_file(path);
        }
    }
    saved
}

async fn fill(from: &Path, to: &Path) -> Result<Vec<UnreadRows>, StoreError> {
    make_tables(to).await?;
    copy(from, to).await
}

/// Gives a new file the newest schema.
async fn make_tables(to: &Path) -> Result<(), StoreError> {
    let location = Location::File(to.to_owned());
    let empty = Database::connect(&location).await?;
    let made = migrate(&STEPS, &empty, &location, None).await;
    empty.close().await;
    made
}

/// Copies the rows into a file that has no rows yet.
async fn copy(from: &Path, to: &Path) -> Result<Vec<UnreadRows>, StoreError> {
    let options = DatabaseAccess::ReadWrite
        .options(to)
        .foreign_keys(false)
        .synchronous(SqliteSynchronous::Off)
        // All of it is in the one file when its connection is closed.
        .journal_mode(SqliteJournalMode::Memory)
        .pragma("temp_store", "MEMORY")
        // A file that is shorter than it says is read all the same.
        .pragma("writable_schema", "ON");
    let connected = one_connection().connect_with(options).await;
    let copy = SalvageCopy {
        db: Pool::Sqlite(connected.map_err(connect_error)?),
        target: to,
    };
    let unread = copy.copy_from(from).await;
    copy.db.close().await;
    let unread = unread?;
    sync(to).await.map_err(StoreError::io("write", to))?;
    Ok(unread)
}

/// A connection to the new file that has the damaged one as the schema `damaged`.
struct SalvageCopy<'a> {
    db: Pool,
    /// The new file.
    target: &'a Path,
}

impl SalvageCopy<'_> {
    async fn copy_from(&self, from: &Path) -> Result<Vec<UnreadRows>, StoreError> {
        self.attach(from).await?;
        let sql = "SELECT name FROM main.sqlite_master WHERE type = 'table' \
                   AND name NOT LIKE 'sqlite_%' ORDER BY name";
        let mut unread = Vec::new();
        for row in self.db.all(sql, Vec::new()).await.map_err(salvage_error)? {
            let table: String = column(&row, "name")?;
            if SKIPPED_TABLES.contains(&table.as_str()) || table.starts_with(INDEX_TABLE_PREFIX) {
                continue;
            }
            let rows = self.copy_table(&table).await?;
            if rows != Some(0) {
                unread.push(UnreadRows { table, rows });
            }
        }
        Ok(unread)
    }

    async fn attach(&self, from: &Path) -> Result<(), StoreError> {
        let name = from.to_str().ok_or_else(|| StoreError::BadLocation {
            location: from.display().to_string(),
            reason: "its name is not UTF-8".to_owned(),
        })?;
        let nothing = |reason: String| StoreError::NothingReadable {
            path: from.to_owned(),
            reason,
        };
        // What stands in the way of reading is no damage.
        let unread = |error: StoreError| match error {
            StoreError::Corrupt { .. } | StoreError::Disk { .. } | StoreError::Database { .. } => {
                nothing(error.reason())
            }
            other => other,
        };
        let attach = "ATTACH DATABASE $1 AS damaged";
        let named = DatabaseAccess::prepare(from)?.statement_name(from, name);
        let attached = self.db.execute(attach, vec![named.into()]).await;
        attached.map_err(|error| unread(salvage_error(error)))?;
        let sql = "SELECT name FROM damaged.sqlite_master WHERE name = 'threads'";
        match self.db.one(sql, Vec::new()).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(nothing("it has no threads".to_owned())),
            Err(error) => Err(unread(salvage_error(error))),
        }
    }

    /// Copies a table. How many rows of it cannot be read at most; nothing where its end cannot be.
    async fn copy_table(&self, table: &str) -> Result<Option<u64>, StoreError> {
        let columns = self.columns(table).await?;
        // A table of a newer schema.
        if columns.is_empty() {
            return Ok(Some(0));
        }
        let (mut from, mut limit, mut unread) = (1_i64, BATCH_ROWS, 0_u64);
        loop {
            match self.copy_rows(table, &columns, from, limit).await? {
                CopiedRows::Through(last) => match last.checked_add(1) {
                    Some(next) => (from, limit) = (next, BATCH_ROWS),
                    None => return Ok(Some(unread)),
                },
                CopiedRows::NoMore => return Ok(Some(unread)),
                CopiedRows::Unreadable if limit > 1 => limit /= 2,
                CopiedRows::Unreadable => {
                    let Some(next) = self.next_readable(table, from).await? else {
                        return Ok(None);
                    };
                    unread += next.abs_diff(from);
                    (from, limit) = (next, BATCH_ROWS);
                }
            }
        }
    }

    /// The columns that a table has in both files, as a list.
    async fn columns(&self, table: &str) -> Result<String, StoreError> {
        let sql = "SELECT m.name AS name FROM pragma_table_info($1, 'main') m \
                   JOIN pragma_table_info($1, 'damaged') d ON d.name = m.name ORDER BY m.cid";
        let rows = self
            .db
            .all(sql, vec![table.into()])
            .await
            .map_err(salvage_error)?;
        let names = rows
            .iter()
            .map(|row| column::<String>(row, "name").map(|name| format!("\"{name}\"")));
        let names: Vec<String> = names.collect::<Result<_, _>>()?;
        Ok(names.join(", "))
    }

    /// Copies the next rows from a number on, all of them or none.
    async fn copy_rows(
        &self,
        table: &str,
        columns: &str,
        from: i64,
        limit: u64,
    ) -> Result<CopiedRows, StoreError> {
        let sql = format!(
            "SELECT MAX(number) AS last FROM (SELECT rowid AS number FROM damaged.\"{table}\" \
             WHERE rowid >= $1 ORDER BY rowid LIMIT $2)"
        );
        let found = self.db.one(&sql, vec![from.into(), limit.into()]).await;
        let Some(found) = readable(found)? else {
            return Ok(CopiedRows::Unreadable);
        };
        let last = found.map(|row: DatabaseRow| column::<Option<i64>>(&row, "last"));
        let Some(last) = last.transpose()?.flatten() else {
            return Ok(CopiedRows::NoMore);
        };
        let sql = format!(
            "INSERT OR IGNORE INTO main.\"{table}\" ({columns}) SELECT {columns} \
             FROM damaged.\"{table}\" WHERE rowid BETWEEN $1 AND $2 ORDER BY rowid"
        );
        let values: Vec<Value> = vec![from.into(), last.into()];
        let copied = self.db.execute(&sql, values).await;
        match readable(copied)? {
            Some(_) => Ok(CopiedRows::Through(last)),
            None if limit > 1 => Ok(CopiedRows::Unreadable),
            None => self.copy_row(table, columns, last).await,
        }
    }

    /// Copies one row by way of memory, so that reading the damaged file and writing the new one fail
    /// apart.
    async fn copy_row(
        &self,
        table: &str,
        columns: &str,
        number: i64,
    ) -> Result<CopiedRows, StoreError> {
        let sql = "DROP TABLE IF EXISTS temp.salvaged_row";
        self.db
            .execute(sql, Vec::new())
            .await
            .map_err(salvage_error)?;
        // Such a statement takes no values.
        let sql = format!(
            "CREATE TABLE temp.salvaged_row AS SELECT {columns} FROM damaged.\"{table}\" \
             WHERE rowid = {number}"
        );
        let read = self.db.execute(&sql, Vec::new()).await;
        if readable(read)?.is_none() {
            return Ok(CopiedRows::Unreadable);
        }
        let sql = format!(
            "INSERT OR IGNORE INTO main.\"{table}\" ({columns}) \
             SELECT {columns} FROM temp.salvaged_row"
        );
        match self
            .db
            .execute(&sql, Vec::new())
            .await
            .map_err(salvage_error)
        {
            Ok(_) => Ok(CopiedRows::Through(number)),
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Disk { .. })) => {
                let source = std::io::Error::other(error.reason());
                Err(StoreError::io("write", self.target)(source))
            }
            // A value that the new table does not take is damage too.
            Err(StoreError::Database { .. }) => Ok(CopiedRows::Unreadable),
            Err(error) => Err(error),
        }
    }

    /// The first number behind `from`, which cannot be read, from which on something can be; nothing
    /// where the table cannot be read to its end.
    async fn next_readable(&self, table: &str, from: i64) -> Result<Option<i64>, StoreError> {
        let mut before = from;
        let mut behind = loop {
            let step = ((before - from) / SKIP_DIVISOR).max(1);
            let Some(next) = before.checked_add(step) else {
                return Ok(None);
            };
            if self.is_readable(table, next).await? {
                break next;
            }
            before = next;
        };
        while behind - before > 1 {
            let middle = before + (behind - before) / 2;
            if self.is_readable(table, middle).await? {
                behind = middle;
            } else {
                before = middle;
            }
        }
        Ok(Some(behind))
    }

    /// Whether the first row from a number on can be read, or there is none.
    async fn is_readable(&self, table: &str, from: i64) -> Result<bool, StoreError> {
        let sql =
            format!("SELECT * FROM damaged.\"{table}\" WHERE rowid >= $1 ORDER BY rowid LIMIT 1");
        let row = self.db.one(&sql, vec![from.into()]).await;
        readable(row).map(|row| row.is_some())
    }
}

/// Outcome of copying a few rows.
enum CopiedRows {
    /// The rows are copied, up to this number.
    Through(i64),
    /// The table has no more rows.
    NoMore,
    /// One of the rows cannot be read; none is copied.
    Unreadable,
}

/// What was read; nothing where the damaged file cannot be, or what was written with it the new one.
fn readable<T>(read: Result<T, SqlError>) -> Result<Option<T>, StoreError> {
    match read.map_err(salvage_error) {
        Ok(read) => Ok(Some(read)),
        Err(StoreError::Corrupt { .. } | StoreError::Disk { .. } | StoreError::Database { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn salvage_error(error: SqlError) -> StoreError {
    StoreError::of(SALVAGING)(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::row::number;
    use crate::tests::{entry, open, other_program};

    /// The size of a page, in bytes.
    const PAGE_BYTES: usize = 4096;

    /// Makes the first page of a table unreadable.
    async fn damage(path: &Path, table: &str) {
        let db = other_program(&format!("sqlite://{}", path.display())).await;
        let sql = "SELECT rootpage AS page FROM sqlite_master WHERE name = $1";
        let rows = db.all(sql, vec![table.into()]).await.unwrap();
        db.close().await;
        let page = usize::try_from(number(&rows[0], "page").unwrap()).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        bytes[(page - 1) * PAGE_BYTES..page * PAGE_BYTES].fill(0xa5);
        std::fs::write(path, bytes).unwrap();
    }

    #[tokio::test]
    async fn a_new_file_that_fails_is_no_damage_of_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("old.db"), dir.path().join("new.db"));
        let location = Location::File(from.clone());
        let store = Store::open(&location, &Options::default()).await.unwrap();
        let mut log = open(&store, "t").await;
        log.append(&[entry(1), entry(2)], true).await.unwrap();
        drop(log);
        store.close().await;
        make_tables(&to).await.unwrap();
        damage(&to, "entries").await;
        let error = copy(&from, &to).await.unwrap_err();
        let StoreError::Io { path, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(path, &to);
    }
}
