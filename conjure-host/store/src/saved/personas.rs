//! Personas: who the model is to be.

use async_recursion::async_recursion as boxed;

use crate::{Store, StoreError};

use super::{after_ms, new_id, now_ms, table_row};

/// A persona. Unique by name and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persona {
    /// Id of the persona.
    pub id: String,
    /// Name of the persona.
    pub name: String,
    /// Version of the persona.
    pub version: String,
    /// Text that the model is given.
    pub persona_text: String,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last changed, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

table_row!(Persona: "persona", "personas", [
    id,
    name,
    version,
    persona_text,
    created_at_ms,
    updated_at_ms,
]);

impl Persona {
    /// A new persona, not saved yet.
    pub fn new(
        name: impl Into<String>,
        version: impl Into<String>,
        persona_text: impl Into<String>,
    ) -> Self {
        let now = now_ms();
        Self {
            id: new_id(),
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
    #[boxed]
    pub async fn create_persona(&self, persona: Persona) -> Result<Persona, StoreError> {
        let name = persona.name.clone();
        self.insert(persona, &name).await
    }

    /// A persona.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn persona(&self, id: &str) -> Result<Persona, StoreError> {
        self.get(id).await
    }

    /// At most `limit` personas behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn personas(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<Persona>, StoreError> {
        self.list(after, limit).await
    }

    /// Saves a persona over the one with its id, as it was read.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when it was changed since, [`StoreError::NotFound`],
    /// [`StoreError::NameTaken`], and what the database says.
    #[boxed]
    pub async fn update_persona(&self, persona: Persona) -> Result<Persona, StoreError> {
        let name = persona.name.clone();
        let seen_ms = persona.updated_at_ms;
        let persona = Persona {
            updated_at_ms: after_ms(seen_ms),
            ..persona
        };
        self.update_if_unchanged(persona, &name, seen_ms).await
    }

    /// Removes a persona. Sessions that chose it have a copy of their own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn delete_persona(&self, id: &str) -> Result<(), StoreError> {
        self.delete::<Persona>(id).await
    }
}
