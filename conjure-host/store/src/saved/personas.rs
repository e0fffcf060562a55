//! Personas: who the model is to be.

use sea_orm::entity::prelude::*;

use crate::{Store, StoreError};

use super::{Kind, after_ms, fresh, now_ms};

/// A persona. Unique by name and version.
#[derive(Debug, Clone, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "personas")]
pub struct Model {
    /// Its id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What the model is told.
    pub persona_text: String,
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
    const NAME: &'static str = "persona";
    const ID: Column = Column::Id;
}

impl Model {
    /// A new persona, not saved yet.
    pub fn new(
        name: impl Into<String>,
        version: impl Into<String>,
        persona_text: impl Into<String>,
    ) -> Self {
        let now = now_ms();
        Self {
            id: fresh(),
            name: name.into(),
            version: version.into(),
            persona_text: persona_text.into(),
            created_at_ms: now,
            updated_at_ms: now,
        }
    }
}

impl Store {
    /// Saves a new persona.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`], and what the database says.
    pub async fn create_persona(&self, persona: Model) -> Result<Model, StoreError> {
        let name = persona.name.clone();
        self.insert::<Entity, _>(persona, &name).await
    }

    /// A persona.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    pub async fn persona(&self, id: &str) -> Result<Model, StoreError> {
        self.get::<Entity>(id).await
    }

    /// At most `limit` personas behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn personas(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<Model>, StoreError> {
        self.list::<Entity>(after, limit).await
    }

    /// Saves a persona over the one with its id, as it was read.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when it was changed since, [`StoreError::NotFound`],
    /// [`StoreError::NameTaken`], and what the database says.
    pub async fn update_persona(&self, persona: Model) -> Result<Model, StoreError> {
        let name = persona.name.clone();
        let seen_ms = persona.updated_at_ms;
        let persona = Model {
            updated_at_ms: after_ms(seen_ms),
            ..persona
        };
        self.update_seen::<Entity, _>(persona, &name, seen_ms).await
    }

    /// Removes a persona. Sessions that chose it have a copy of their own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    pub async fn delete_persona(&self, id: &str) -> Result<(), StoreError> {
        self.delete::<Entity>(id).await
    }
}
