//! MCP servers: settings that sessions choose from.

use sea_orm::entity::prelude::*;

use crate::{Store, StoreError};

use super::{JsonText, Kind, after_ms, fresh, now_ms};

/// An MCP server. Unique by name.
#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "mcp_servers")]
pub struct Model {
    /// Its id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Its name.
    pub name: String,
    /// How it is reached, in the shape of the session file; a JSON object.
    pub settings: JsonText,
    /// Whether sessions may choose it.
    pub enabled: bool,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last changed, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// None is used.
#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

impl Kind for Entity {
    const NAME: &'static str = "MCP server";
    const ID: Column = Column::Id;
}

impl Model {
    /// A new MCP server, not saved yet.
    pub fn new(name: impl Into<String>, settings: serde_json::Value, enabled: bool) -> Self {
        let now = now_ms();
        Self {
            id: fresh(),
            name: name.into(),
            settings: JsonText(settings),
            enabled,
            created_at_ms: now,
            updated_at_ms: now,
        }
    }
}

impl Store {
    /// Saves a new MCP server.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`], and what the database says.
    pub async fn create_mcp_server(&self, server: Model) -> Result<Model, StoreError> {
        let name = server.name.clone();
        self.insert::<Entity, _>(server, &name).await
    }

    /// An MCP server.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    pub async fn mcp_server(&self, id: &str) -> Result<Model, StoreError> {
        self.get::<Entity>(id).await
    }

    /// At most `limit` MCP servers behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn mcp_servers(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<Model>, StoreError> {
        self.list::<Entity>(after, limit).await
    }

    /// Saves an MCP server over the one with its id, as it was read.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when it was changed since, [`StoreError::NotFound`],
    /// [`StoreError::NameTaken`], and what the database says.
    pub async fn update_mcp_server(&self, server: Model) -> Result<Model, StoreError> {
        let name = server.name.clone();
        let seen_ms = server.updated_at_ms;
        let server = Model {
            updated_at_ms: after_ms(seen_ms),
            ..server
        };
        self.update_seen::<Entity, _>(server, &name, seen_ms).await
    }

    /// Removes an MCP server. Sessions that chose it have a copy of their own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    pub async fn delete_mcp_server(&self, id: &str) -> Result<(), StoreError> {
        self.delete::<Entity>(id).await
    }
}
