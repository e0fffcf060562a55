//! What people save: authentications, sessions, personas, MCP servers; and which plugins were loaded.
//!
//! Plain rows, made, read, changed and removed one at a time. Ids are in the order of time; lists
//! go by them.

mod auths;
mod mcp_servers;
mod personas;
mod plugins;
mod sessions;

use std::fmt;
use std::str::FromStr;

use sea_orm::{
    ActiveModelBehavior, ActiveModelTrait, ColumnTrait, DbErr, DeriveValueType, EntityTrait,
    IntoActiveModel, Iterable as _, ModelTrait, PrimaryKeyTrait, QueryFilter as _, QueryOrder as _,
    QuerySelect as _, SqlErr,
};

use crate::database::for_update;
use crate::{Store, StoreError};

pub use auths::Model as SavedAuth;
pub use mcp_servers::Model as McpServer;
pub use personas::Model as Persona;
pub use plugins::Model as Plugin;
pub use sessions::Model as Session;
pub(crate) use sessions::free_name;

/// What is said of a failure.
const SAVING: &str = "save it";
const READING: &str = "read what is saved";

/// A kind of saved row.
trait Kind: EntityTrait {
    /// What people call it.
    const NAME: &'static str;
    /// The column of ids.
    const ID: Self::Column;
}

/// JSON, stored as text: PostgreSQL's own kinds of JSON do not take every string.
#[derive(Debug, Clone, PartialEq, DeriveValueType)]
#[sea_orm(value_type = "String")]
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

/// A fresh id, in the order of time.
pub(crate) fn fresh() -> String {
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
    async fn insert<E, A>(&self, model: E::Model, name: &str) -> Result<E::Model, StoreError>
    where
        E: Kind,
        E::Model: IntoActiveModel<A>,
        A: ActiveModelTrait<Entity = E> + ActiveModelBehavior + Send,
    {
        let model = without_nul::<E>(model);
        let tx = self.db().begin(true, SAVING).await?;
        let made = model.into_active_model().insert(tx.inner()).await;
        let made = made.map_err(|error| refused::<E>(&error, name))?;
        tx.commit().await?;
        Ok(made)
    }

    /// Writes a row over the one with its id, if that was last changed at this time: in between
    /// somebody else may have.
    async fn update_seen<E, A>(
        &self,
        model: E::Model,
        name: &str,
        seen_ms: i64,
    ) -> Result<E::Model, StoreError>
    where
        E: Kind,
        E::Model: IntoActiveModel<A>,
        A: ActiveModelTrait<Entity = E> + ActiveModelBehavior + Send,
    {
        self.update_where::<E, A>(model, name, Some(seen_ms)).await
    }

    /// Writes a row over the one with its id.
    async fn update<E, A>(&self, model: E::Model, name: &str) -> Result<E::Model, StoreError>
    where
        E: Kind,
        E::Model: IntoActiveModel<A>,
        A: ActiveModelTrait<Entity = E> + ActiveModelBehavior + Send,
    {
        self.update_where::<E, A>(model, name, None).await
    }

    async fn update_where<E, A>(
        &self,
        model: E::Model,
        name: &str,
        seen_ms: Option<i64>,
    ) -> Result<E::Model, StoreError>
    where
        E: Kind,
        E::Model: IntoActiveModel<A>,
        A: ActiveModelTrait<Entity = E> + ActiveModelBehavior + Send,
    {
        let model = without_nul::<E>(model);
        let id: String = column(&model, E::ID);
        let tx = self.db().begin(true, SAVING).await?;
        if let Some(seen_ms) = seen_ms {
            let sql = format!(
                "SELECT updated_at_ms FROM {} WHERE id = $1{}",
                E::default().table_name(),
                for_update(tx.backend())
            );
            let row = tx.one(&sql, [id.as_str().into()]).await?;
            let row = row.ok_or_else(|| not_found::<E>(&id))?;
            if crate::row::column::<i64>(&row, "updated_at_ms")? != seen_ms {
                return Err(StoreError::Changed {
                    kind: E::NAME,
                    name: name.to_owned(),
                });
            }
        }
        let changed = model.into_active_model().reset_all().update(tx.inner());
        let changed = match changed.await {
            Err(DbErr::RecordNotUpdated) => Err(not_found::<E>(&id)),
            changed => changed.map_err(|error| refused::<E>(&error, name)),
        }?;
        tx.commit().await?;
        Ok(changed)
    }

    async fn get<E>(&self, id: &str) -> Result<E::Model, StoreError>
    where
        E: Kind,
        <E::PrimaryKey as PrimaryKeyTrait>::ValueType: From<String>,
    {
        if id.contains('\0') {
            return Err(not_found::<E>(id));
        }
        let row = E::find_by_id(id.to_owned()).one(self.db().reader()).await;
        row.map_err(StoreError::of(READING))?
            .ok_or_else(|| not_found::<E>(id))
    }

    /// A page of rows behind the id `after`, in the order of their ids.
    async fn list<E>(&self, after: Option<&str>, limit: u64) -> Result<Vec<E::Model>, StoreError>
    where
        E: Kind,
    {
        E::find()
            .filter(E::ID.gt(after.unwrap_or_default().replace('\0', "")))
            .order_by_asc(E::ID)
            .limit(limit)
            .all(self.db().reader())
            .await
            .map_err(StoreError::of(READING))
    }

    async fn delete<E>(&self, id: &str) -> Result<(), StoreError>
    where
        E: Kind,
        <E::PrimaryKey as PrimaryKeyTrait>::ValueType: From<String>,
    {
        if id.contains('\0') {
            return Err(not_found::<E>(id));
        }
        let tx = self.db().begin(true, "remove it").await?;
        let gone = E::delete_by_id(id.to_owned()).exec(tx.inner()).await;
        let gone = gone.map_err(StoreError::of("remove it"))?;
        if gone.rows_affected == 0 {
            return Err(not_found::<E>(id));
        }
        tx.commit().await
    }
}

/// With every text such that both databases take it: PostgreSQL's has no NUL.
fn without_nul<E: EntityTrait>(mut model: E::Model) -> E::Model {
    for column in E::Column::iter() {
        if let sea_orm::Value::String(Some(text)) = model.get(column)
            && text.contains('\0')
        {
            model.set(column, text.replace('\0', "\u{fffd}").into());
        }
    }
    model
}

fn column<M: ModelTrait>(model: &M, column: <M::Entity as EntityTrait>::Column) -> String {
    match model.get(column) {
        sea_orm::Value::String(Some(text)) => text,
        _ => String::new(),
    }
}

fn not_found<E: Kind>(id: &str) -> StoreError {
    StoreError::NotFound {
        kind: E::NAME,
        id: id.to_owned(),
    }
}

fn refused<E: Kind>(error: &DbErr, name: &str) -> StoreError {
    match error.sql_err() {
        Some(SqlErr::UniqueConstraintViolation(_)) => StoreError::NameTaken {
            kind: E::NAME,
            name: name.to_owned(),
        },
        Some(SqlErr::ForeignKeyConstraintViolation(_)) => StoreError::NotFound {
            kind: "saved authentication or thread of the session",
            id: name.to_owned(),
        },
        _ => StoreError::of(SAVING)(error.clone()),
    }
}
