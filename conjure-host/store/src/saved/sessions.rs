//! Sessions: the saved settings that a conversation runs with.

use sea_orm::entity::prelude::*;

use crate::{Store, StoreError};

use super::{JsonText, Kind, fresh, now_ms};

/// A session. Its provider is not saved: it is its authentication's.
#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "sessions")]
pub struct Model {
    /// Its id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// The saved authentication.
    pub auth_id: String,
    /// The model.
    pub model_id: String,
    /// The working directory.
    pub working_dir: String,
    /// `{name, version, persona_text}`: a copy of the persona that was chosen.
    pub persona: JsonText,
    /// `{name, version, memory_text}`; any JSON object.
    pub memory: JsonText,
    /// Backend instances, skills, options and allowed public names, in the shape of the session
    /// file.
    pub tools: JsonText,
    /// MCP servers by name: copies of those that were chosen.
    pub mcps: JsonText,
    /// The active thread.
    pub chat_thread_id: Option<String>,
    /// The newest entry, as `thread/seq`.
    pub latest_chat_entry_id: Option<String>,
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
    const NAME: &'static str = "session";
    const ID: Column = Column::Id;
}

impl Model {
    /// A new session without persona, memory, tools and thread, not saved yet.
    pub fn new(
        auth_id: impl Into<String>,
        model_id: impl Into<String>,
        working_dir: impl Into<String>,
    ) -> Self {
        let empty = || JsonText(serde_json::Map::new().into());
        let now = now_ms();
        Self {
            id: fresh(),
            auth_id: auth_id.into(),
            model_id: model_id.into(),
            working_dir: working_dir.into(),
            persona: empty(),
            memory: empty(),
            tools: empty(),
            mcps: empty(),
            chat_thread_id: None,
            latest_chat_entry_id: None,
            created_at_ms: now,
            updated_at_ms: now,
        }
    }
}

impl Store {
    /// Saves a new session.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such authentication or thread, and what the
    /// database says.
    pub async fn create_session(&self, session: Model) -> Result<Model, StoreError> {
        let id = session.id.clone();
        self.insert::<Entity, _>(session, &id).await
    }

    /// A session.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    pub async fn session(&self, id: &str) -> Result<Model, StoreError> {
        self.get::<Entity>(id).await
    }

    /// At most `limit` sessions behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn sessions(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<Model>, StoreError> {
        self.list::<Entity>(after, limit).await
    }

    /// Saves a session over the one with its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session, authentication or thread, and what
    /// the database says.
    pub async fn update_session(&self, session: Model) -> Result<Model, StoreError> {
        let id = session.id.clone();
        let updated_at_ms = now_ms();
        let session = Model {
            updated_at_ms,
            ..session
        };
        self.update::<Entity, _>(session, &id).await
    }

    /// Removes a session, and no thread.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    pub async fn delete_session(&self, id: &str) -> Result<(), StoreError> {
        self.delete::<Entity>(id).await
    }
}
