//! What people save: authentications, sessions, personas, MCP servers.
//!
//! Plain rows, made, read, changed and removed one at a time. Ids are in the order of time; lists
//! go by them.

mod auths;
mod mcp_servers;
mod personas;
mod recent;
mod row;
mod sessions;

use std::fmt;
use std::str::FromStr;

use sqlx::error::DatabaseError;

use crate::database::{for_update, placeholders};
use crate::sql::{DatabaseRow, FromColumn, SqlError, Value};
use crate::{Store, StoreError};

pub use auths::{MCP_SECRETS, SavedAuth};
pub use mcp_servers::McpServer;
pub use personas::Persona;
pub use recent::SessionCursor;
use row::{TableRow, table_row};
pub use sessions::SavedSession;
pub(crate) use sessions::free_name;

/// Operation that errors name.
const SAVING: &str = "save it";
const READING: &str = "read what is saved";

/// JSON, stored as text: PostgreSQL's own kinds of JSON do not take every string.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonText(pub serde_json::Value);

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JsonText {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text).map(Self)
    }
}

impl From<JsonText> for Value {
    fn from(json: JsonText) -> Self {
        json.to_string().into()
    }
}

impl FromColumn for JsonText {
    fn from_column(row: &DatabaseRow, name: &str) -> Result<Self, SqlError> {
        let text: String = row.get(name)?;
        text.parse().map_err(SqlError::Json)
    }
}

/// A fresh id, in the order of time.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// The time of a change to what was last changed at another: later than that, whatever the clock
/// says.
fn after_ms(before: i64) -> i64 {
    now_ms().max(before.saturating_add(1))
}

impl Store {
    /// Writes a new row; `name` is what a clash is about.
    async fn insert<S: TableRow>(&self, saved: S, name: &str) -> Result<S, StoreError> {
        let values = without_nul(saved.into_values());
        let sql = format!(
            "INSERT INTO {} ({}) VALUES ({}) RETURNING {1}",
            S::TABLE,
            S::COLUMNS.join(", "),
            placeholders(1, values.len())
        );
        let tx = self.db().begin(true, SAVING).await?;
        let made = tx.inner().one(&sql, values).await;
        let made = made.map_err(|error| constraint_error::<S>(error, name))?;
        let made = made.ok_or_else(|| not_found::<S>(name))?;
        let made = S::from_row(&made).map_err(StoreError::of(SAVING))?;
        tx.commit().await?;
        Ok(made)
    }

    /// Writes a row over the one with its id, if that was last changed at this time: in between
    /// somebody else may have.
    async fn update_if_unchanged<S: TableRow>(
        &self,
        saved: S,
        name: &str,
        seen_ms: i64,
    ) -> Result<S, StoreError> {
        self.update_where(saved, name, Some(seen_ms)).await
    }

    /// Writes a row over the one with its id.
    async fn update<S: TableRow>(&self, saved: S, name: &str) -> Result<S, StoreError> {
        self.update_where(saved, name, None).await
    }

    async fn update_where<S: TableRow>(
        &self,
        saved: S,
        name: &str,
        seen_ms: Option<i64>,
    ) -> Result<S, StoreError> {
        let id = saved.id().replace('\0', "\u{fffd}");
        let values = without_nul(saved.into_values());
        let tx = self.db().begin(true, SAVING).await?;
        if let Some(seen_ms) = seen_ms {
            let sql = format!(
                "SELECT updated_at_ms FROM {} WHERE {} = $1{}",
                S::TABLE,
                S::ID,
                for_update(tx.backend())
            );
            let row = tx.one(&sql, [id.as_str().into()]).await?;
            let row = row.ok_or_else(|| not_found::<S>(&id))?;
            if crate::row::column::<i64>(&row, "updated_at_ms")? != seen_ms {
                return Err(StoreError::Changed {
                    kind: S::NAME,
                    name: name.to_owned(),
                });
            }
        }
        let columns = S::COLUMNS.iter().zip(1..).skip(1);
        let set: Vec<String> = columns
            .map(|(name, at)| format!("{name} = ${at}"))
            .collect();
        let sql = format!(
            "UPDATE {} SET {} WHERE {} = $1 RETURNING {}",
            S::TABLE,
            set.join(", "),
            S::ID,
            S::COLUMNS.join(", ")
        );
        let changed = tx.inner().one(&sql, values).await;
        let changed = changed.map_err(|error| constraint_error::<S>(error, name))?;
        let changed = changed.ok_or_else(|| not_found::<S>(&id))?;
        let changed = S::from_row(&changed).map_err(StoreError::of(SAVING))?;
        tx.commit().await?;
        Ok(changed)
    }

    async fn get<S: TableRow>(&self, id: &str) -> Result<S, StoreError> {
        if id.contains('\0') {
            return Err(not_found::<S>(id));
        }
        let sql = select::<S>(&format!("{} = $1", S::ID));
        let row = self.db().reader().one(&sql, vec![id.into()]).await;
        let row = row.map_err(StoreError::of(READING))?;
        read(&row.ok_or_else(|| not_found::<S>(id))?)
    }

    /// A page of rows behind the id `after`, in the order of their ids.
    async fn list<S: TableRow>(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<S>, StoreError> {
        let sql = select::<S>(&format!("{0} > $1 ORDER BY {0} LIMIT $2", S::ID));
        let after = after.unwrap_or_default().replace('\0', "");
        let rows = self
            .db()
            .reader()
            .all(&sql, vec![after.into(), limit.into()]);
        let rows = rows.await.map_err(StoreError::of(READING))?;
        rows.iter().map(read).collect()
    }

    async fn delete<S: TableRow>(&self, id: &str) -> Result<(), StoreError> {
        if id.contains('\0') {
            return Err(not_found::<S>(id));
        }
        let sql = format!("DELETE FROM {} WHERE {} = $1", S::TABLE, S::ID);
        let tx = self.db().begin(true, "remove it").await?;
        let gone = tx.inner().execute(&sql, vec![id.into()]).await;
        if gone.map_err(StoreError::of("remove it"))? == 0 {
            return Err(not_found::<S>(id));
        }
        tx.commit().await
    }
}

/// A statement that reads rows which fulfil a condition.
fn select<S: TableRow>(condition: &str) -> String {
    let columns = S::COLUMNS.join(", ");
    format!("SELECT {columns} FROM {} WHERE {condition}", S::TABLE)
}

fn read<S: TableRow>(row: &DatabaseRow) -> Result<S, StoreError> {
    S::from_row(row).map_err(StoreError::of(READING))
}

/// With every text such that both databases take it: PostgreSQL's has no NUL.
fn without_nul(mut values: Vec<Value>) -> Vec<Value> {
    for value in &mut values {
        if let Value::Text(Some(text)) = value
            && text.contains('\0')
        {
            *text = text.replace('\0', "\u{fffd}");
        }
    }
    values
}

fn not_found<S: TableRow>(id: &str) -> StoreError {
    StoreError::NotFound {
        kind: S::NAME,
        id: id.to_owned(),
    }
}

fn constraint_error<S: TableRow>(error: SqlError, name: &str) -> StoreError {
    let said = error.database();
    if said.is_some_and(DatabaseError::is_unique_violation) {
        return StoreError::NameTaken {
            kind: S::NAME,
            name: name.to_owned(),
        };
    }
    if said.is_some_and(DatabaseError::is_foreign_key_violation) {
        return StoreError::NotFound {
            kind: "saved auth or thread of the session",
            id: name.to_owned(),
        };
    }
    StoreError::of(SAVING)(error)
}
