//! JSON lines into a database.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use async_recursion::async_recursion as boxed;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value as Json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::database::{Transaction, placeholders};
use crate::row::column;
use crate::sql::Value;
use crate::{Store, StoreError, ThreadId, body};

use super::{ColumnKind, ExportTable, FORMAT_VERSION, TransferLine, tables};

impl Store {
    /// Reads what [`Store::export`] wrote, all or nothing. What is here already stays: a saved
    /// authentication, a persona or a server of the same name is taken for the one in the file; a
    /// session of a name that another has gets a number behind it. How many rows are new.
    ///
    /// # Errors
    /// [`StoreError::ThreadExists`] when a thread is here already, [`StoreError::Damaged`] when the
    /// file is not one of these or was cut, [`StoreError::Newer`] when a newer Conjure wrote it,
    /// [`StoreError::Io`], and what the database says.
    #[boxed]
    pub async fn import(&self, path: &Path) -> Result<u64, StoreError> {
        let tx = self.db().begin(true, "import into the database").await?;
        let rows = read_all(&tx, path).await?;
        tx.commit().await?;
        Ok(rows)
    }
}

/// The newest step of the schema that a file was written with.
pub(crate) async fn migration_of(path: &Path) -> Result<String, StoreError> {
    let mut lines = ImportLines::open(path).await?;
    match lines.next().await? {
        Some(TransferLine::Conjure { migration, .. }) => Ok(migration),
        _ => Err(lines.damaged("it does not begin as an export of Conjure does")),
    }
}

/// Reads all lines of a file into the tables. How many rows are new.
pub(crate) async fn read_all(tx: &Transaction<'_>, path: &Path) -> Result<u64, StoreError> {
    let mut lines = ImportLines::open(path).await?;
    match lines.next().await? {
        Some(TransferLine::Conjure { version, migration }) => {
            // A step that this database does not have is one of a newer Conjure.
            let known = crate::schema::applied_steps(tx.inner()).await?;
            if version > FORMAT_VERSION || !known.contains(&migration) {
                return Err(StoreError::Newer { migration });
            }
        }
        _ => return Err(lines.damaged("it does not begin as an export of Conjure does")),
    }
    let mut import = DatabaseImport {
        tx,
        tables: tables(tx.inner()).await?,
        parents: Vec::new(),
        auths: HashMap::new(),
        known_uploads: HashSet::new(),
    };
    let (mut read, mut new) = (0, 0);
    loop {
        match lines.next().await? {
            Some(TransferLine::Row { table, columns }) => {
                read += 1;
                match import.row(&table, columns).await {
                    Ok(rows) => new += rows,
                    Err(ImportRefusal::Row(reason)) => return Err(lines.damaged(&reason)),
                    Err(ImportRefusal::Store(error)) => return Err(error),
                }
            }
            Some(TransferLine::End { rows }) if rows == read => break,
            _ => return Err(lines.damaged("it ends too early: it was cut")),
        }
    }
    import.link().await?;
    Ok(new)
}

struct ImportLines<'a> {
    path: &'a Path,
    lines: tokio::io::Lines<BufReader<tokio::fs::File>>,
    number: usize,
}

impl<'a> ImportLines<'a> {
    async fn open(path: &'a Path) -> Result<Self, StoreError> {
        let file = tokio::fs::File::open(path)
            .await
            .map_err(StoreError::io("open", path))?;
        Ok(Self {
            path,
            lines: BufReader::new(file).lines(),
            number: 0,
        })
    }

    async fn next(&mut self) -> Result<Option<TransferLine>, StoreError> {
        self.number += 1;
        let line = self.lines.next_line().await;
        line.map_err(StoreError::io("read", self.path))?
            .map(|line| serde_json::from_str(&line))
            .transpose()
            .map_err(|error| self.damaged(&error.to_string()))
    }

    fn damaged(&self, reason: &str) -> StoreError {
        StoreError::Damaged {
            path: self.path.to_owned(),
            line: self.number,
            reason: reason.to_owned(),
        }
    }
}

struct DatabaseImport<'a, 'b> {
    tx: &'a Transaction<'b>,
    tables: Vec<ExportTable>,
    /// Forks and their parents: linked when all threads are there.
    parents: Vec<(String, String)>,
    /// Saved authentications of the file that are here already, by another id.
    auths: HashMap<String, String>,
    /// Uploads of blobs that are here already.
    known_uploads: HashSet<String>,
}

enum ImportRefusal {
    Row(String),
    Store(StoreError),
}

impl From<StoreError> for ImportRefusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl DatabaseImport<'_, '_> {
    async fn row(&mut self, name: &str, mut row: Map<String, Json>) -> Result<u64, ImportRefusal> {
        let field = |row: &Map<String, Json>, name: &str| {
            let value = row.get(name).and_then(Json::as_str);
            value.unwrap_or_default().to_owned()
        };
        match name {
            "threads" => self.thread(&mut row).await?,
            "sessions" => {
                if let Some(id) = self.auths.get(&field(&row, "auth_id")) {
                    row.insert("auth_id".to_owned(), id.as_str().into());
                }
                self.free_name(&mut row).await?;
            }
            "blob_pieces" if self.known_uploads.contains(&field(&row, "upload")) => return Ok(0),
            _ => {}
        }
        let rows = self.insert(name, &row).await?;
        match name {
            "blobs" if rows == 0 => {
                self.known_uploads.insert(field(&row, "upload"));
            }
            "saved_authentications" if rows == 0 => {
                let sql = "SELECT id FROM saved_authentications \
                           WHERE provider = $1 AND kind = $2 AND name = $3";
                let named = ["provider", "kind", "name"].map(|name| field(&row, name).into());
                if let Some(known) = self.tx.one(sql, named).await? {
                    let known = column(&known, "id")?;
                    self.auths.insert(field(&row, "id"), known);
                }
            }
            _ => {}
        }
        Ok(rows)
    }

    async fn thread(&mut self, row: &mut Map<String, Json>) -> Result<(), ImportRefusal> {
        let id = row.get("id").and_then(Json::as_str).unwrap_or_default();
        let thread = ThreadId::parse(id)?;
        let sql = "SELECT 1 AS one FROM threads WHERE id = $1";
        if self.tx.one(sql, [id.into()]).await?.is_some() {
            return Err(StoreError::ThreadExists { thread }.into());
        }
        if let Some(Json::String(parent)) = row.insert("parent_thread_id".to_owned(), Json::Null) {
            self.parents.push((thread.to_string(), parent));
        }
        Ok(())
    }

    /// Gives a session another name where one that is here already, and is another, has it.
    async fn free_name(&self, row: &mut Map<String, Json>) -> Result<(), ImportRefusal> {
        let field = |name: &str| row.get(name).and_then(Json::as_str).map(str::to_owned);
        let (Some(id), Some(name)) = (field("id"), field("name")) else {
            return Ok(());
        };
        let free = crate::saved::free_name(self.tx, &id, &name).await?;
        row.insert("name".to_owned(), free.into());
        Ok(())
    }

    async fn insert(&self, name: &str, row: &Map<String, Json>) -> Result<u64, ImportRefusal> {
        let table = self.tables.iter().find(|table| table.name == name);
        let table =
            table.ok_or_else(|| ImportRefusal::Row(format!("there is no table `{name}`")))?;
        let mut names = Vec::with_capacity(row.len());
        let mut values = Vec::with_capacity(row.len());
        for (name, value) in row {
            let kind = table.columns.iter().find(|(column, _)| column == name);
            let value = kind.and_then(|(_, kind)| of_json(*kind, value));
            values.push(value.ok_or_else(|| {
                ImportRefusal::Row(format!("`{name}` of `{}` cannot be that", table.name))
            })?);
            names.push(name.as_str());
        }
        let sql = format!(
            "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING",
            table.name,
            names.join(", "),
            placeholders(1, values.len())
        );
        Ok(self.tx.execute(&sql, values).await?)
    }

    async fn link(&self) -> Result<(), StoreError> {
        let sql = "UPDATE threads SET parent_thread_id = $1 WHERE id = $2";
        for (fork, parent) in &self.parents {
            let values = [parent.as_str().into(), fork.as_str().into()];
            self.tx.execute(sql, values).await?;
        }
        Ok(())
    }
}

/// A column's value, if it can be one.
fn of_json(kind: ColumnKind, value: &Json) -> Option<Value> {
    let text = || value.as_str().map(str::to_owned);
    let bytes = |text: String| BASE64_STANDARD.decode(text).ok();
    Some(match (kind, value) {
        (ColumnKind::Text, Json::Null) => Value::Text(None),
        (ColumnKind::Text, _) => text()?.into(),
        (ColumnKind::Number, Json::Null) => Value::Integer(None),
        (ColumnKind::Number, _) => value.as_i64()?.into(),
        (ColumnKind::Float, Json::Null) => Value::Real(None),
        (ColumnKind::Float, _) => value.as_f64()?.into(),
        (ColumnKind::Bool, _) => value.as_bool()?.into(),
        (ColumnKind::Bytes, _) => bytes(text()?)?.into(),
        (ColumnKind::Body, _) => body::pack(serde_json::to_vec(value).ok()?).into(),
    })
}
