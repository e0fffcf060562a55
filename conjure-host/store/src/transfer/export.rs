//! A database as JSON lines.

use std::path::Path;

use async_recursion::async_recursion as boxed;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::TryStreamExt as _;
use serde_json::{Map, Value as Json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, BufWriter};

use crate::database::Database;
use crate::recent_events::all_events;
use crate::row::column;
use crate::sql::{DatabaseRow, SqlTransaction};
use crate::{Store, StoreError, body};

use super::{ColumnKind, ExportTable, FORMAT_VERSION, TransferLine, tables};

const EXPORTING: &str = "export the database";

/// Whether sealed secrets are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretHandling {
    Include,
    Omit,
}

impl Store {
    /// Writes everything but secrets to a new file of JSON lines, which [`Store::import`] reads
    /// into either kind of database: all of it as it is at one moment, while others go on writing.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file is there already or cannot be written, and what the
    /// database says. No file is left behind then.
    #[boxed]
    pub async fn export(&self, path: &Path) -> Result<(), StoreError> {
        write_all(self.db(), path, SecretHandling::Omit).await
    }
}

/// Writes all tables to a new file; none is left behind when that fails.
pub(crate) async fn write_all(
    db: &Database,
    path: &Path,
    secrets: SecretHandling,
) -> Result<(), StoreError> {
    let tx = db.snapshot(EXPORTING).await?;
    let migration = crate::schema::applied_steps(&tx).await?.pop();
    let file = crate::files::create_private(path)?;
    let mut to = BufWriter::new(tokio::fs::File::from_std(file));
    let migration = migration.unwrap_or_default();
    let written = write(&tx, &mut to, path, &migration, secrets).await;
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

async fn write(
    tx: &SqlTransaction,
    to: &mut BufWriter<tokio::fs::File>,
    path: &Path,
    migration: &str,
    secrets: SecretHandling,
) -> Result<(), StoreError> {
    let first = TransferLine::Conjure {
        version: FORMAT_VERSION,
        migration: migration.to_owned(),
    };
    line(to, path, &first).await?;
    let mut written = 0;
    for table in tables(tx).await? {
        let from = match table.name.as_str() {
            "events" => all_events(tx.backend()),
            other => other.to_owned(),
        };
        let sql = format!("SELECT * FROM {from} ORDER BY 1, 2");
        let mut tx = tx.lock().await;
        let rows = tx.connection().stream(&sql, Vec::new());
        let mut rows = rows.map_err(StoreError::of(EXPORTING))?;
        while let Some(row) = rows.try_next().await.map_err(StoreError::of(EXPORTING))? {
            let row = TransferLine::Row {
                table: table.name.clone(),
                columns: columns(&table, &row, secrets)?,
            };
            line(to, path, &row).await?;
            written += 1;
        }
    }
    line(to, path, &TransferLine::End { rows: written }).await?;
    let synced = async {
        to.flush().await?;
        to.get_ref().sync_all().await
    };
    synced.await.map_err(StoreError::io("write", path))
}

fn columns(
    table: &ExportTable,
    row: &DatabaseRow,
    secrets: SecretHandling,
) -> Result<Map<String, Json>, StoreError> {
    let mut columns = Map::new();
    for (name, kind) in &table.columns {
        let is_secret = table.name == "saved_authentications" && name == "sealed";
        let value = if is_secret && secrets == SecretHandling::Omit {
            Some(Json::from(""))
        } else if table.name == "threads" && name == "owner" {
            None
        } else {
            match kind {
                ColumnKind::Text => column::<Option<String>>(row, name)?.map(Json::from),
                ColumnKind::Number => column::<Option<i64>>(row, name)?.map(Json::from),
                ColumnKind::Float => column::<Option<f64>>(row, name)?.map(Json::from),
                ColumnKind::Bool => column::<Option<bool>>(row, name)?.map(Json::from),
                ColumnKind::Bytes => column::<Option<Vec<u8>>>(row, name)?
                    .map(|bytes| Json::from(BASE64_STANDARD.encode(bytes))),
                ColumnKind::Body => Some(body::read(column(row, name)?, || {
                    format!("a row of `{}`", table.name)
                })?),
            }
        };
        columns.insert(name.clone(), value.unwrap_or(Json::Null));
    }
    Ok(columns)
}

async fn line(
    to: &mut (impl AsyncWrite + Unpin),
    path: &Path,
    line: &TransferLine,
) -> Result<(), StoreError> {
    let json = serde_json::to_vec(line).map_err(std::io::Error::from);
    let written = async {
        let mut json = json?;
        json.push(b'\n');
        to.write_all(&json).await
    };
    written.await.map_err(StoreError::io("write", path))
}
