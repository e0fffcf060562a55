//! Saved authentications. The secret comes sealed and is stored as it comes: what seals it is not
//! known here.

use std::fmt;

use conjure_config::AuthName;
use sea_orm::QueryOrder as _;
use sea_orm::entity::prelude::*;

use crate::{Store, StoreError};

use super::{Kind, READING, fresh, not_found, now_ms, sessions};

/// A saved authentication. Unique by provider, kind and name.
#[derive(Clone, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "saved_authentications")]
pub struct Model {
    /// Its id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// The provider.
    pub provider: String,
    /// Such as `api_key`.
    pub kind: String,
    /// Its name: 3 to 50 of `A-Z a-z 0-9 _ -`.
    pub name: String,
    /// Where a compatible server is.
    pub base_url: Option<String>,
    /// The secret, encrypted; empty where it was left out by an export.
    pub sealed: Vec<u8>,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last changed, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// Without the secret, also in its sealed form.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedAuth")
            .field("id", &self.id)
            .field("provider", &self.provider)
            .field("kind", &self.kind)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// None is used.
#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

impl Kind for Entity {
    const NAME: &'static str = "saved authentication";
    const ID: Column = Column::Id;
}

impl Model {
    /// Its name in full.
    pub fn full_name(&self) -> AuthName {
        AuthName {
            provider: self.provider.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
        }
    }

    /// A new authentication with a sealed secret, not saved yet.
    pub fn new(
        provider: impl Into<String>,
        kind: impl Into<String>,
        name: impl Into<String>,
        sealed: Vec<u8>,
    ) -> Self {
        let now = now_ms();
        Self {
            id: fresh(),
            provider: provider.into(),
            kind: kind.into(),
            name: name.into(),
            base_url: None,
            sealed,
            created_at_ms: now,
            updated_at_ms: now,
        }
    }

    fn is_named_well(&self) -> Result<(), StoreError> {
        let letters = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if (3..=50).contains(&self.name.len()) && self.name.bytes().all(letters) {
            return Ok(());
        }
        Err(StoreError::BadName {
            kind: Entity::NAME,
            name: self.name.clone(),
            rule: "3 to 50 letters, digits, `_` and `-`",
        })
    }
}

impl Store {
    /// Saves a new authentication.
    ///
    /// # Errors
    /// [`StoreError::BadName`], [`StoreError::NameTaken`], and what the database says.
    pub async fn create_auth(&self, auth: Model) -> Result<Model, StoreError> {
        auth.is_named_well()?;
        let name = auth.name.clone();
        self.insert::<Entity, _>(auth, &name).await
    }

    /// A saved authentication.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    pub async fn auth(&self, id: &str) -> Result<Model, StoreError> {
        self.get::<Entity>(id).await
    }

    /// At most `limit` saved authentications behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn auths(&self, after: Option<&str>, limit: u64) -> Result<Vec<Model>, StoreError> {
        self.list::<Entity>(after, limit).await
    }

    /// Saves an authentication over the one with its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::BadName`], [`StoreError::NameTaken`], and what the
    /// database says.
    pub async fn update_auth(&self, auth: Model) -> Result<Model, StoreError> {
        auth.is_named_well()?;
        let name = auth.name.clone();
        let updated_at_ms = now_ms();
        let auth = Model {
            updated_at_ms,
            ..auth
        };
        self.update::<Entity, _>(auth, &name).await
    }

    /// Removes a saved authentication.
    ///
    /// # Errors
    /// [`StoreError::InUse`] names the sessions that use it; [`StoreError::NotFound`], and what
    /// the database says.
    pub async fn delete_auth(&self, id: &str) -> Result<(), StoreError> {
        if id.contains('\0') {
            return Err(not_found::<Entity>(id));
        }
        let tx = self.db().begin(true, "remove it").await?;
        let auth = Entity::find_by_id(id.to_owned()).one(tx.inner()).await;
        let auth = auth
            .map_err(StoreError::of(READING))?
            .ok_or_else(|| not_found::<Entity>(id))?;
        let used = sessions::Entity::find()
            .filter(sessions::Column::AuthId.eq(id))
            .order_by_asc(sessions::Column::Id)
            .all(tx.inner())
            .await
            .map_err(StoreError::of(READING))?;
        if !used.is_empty() {
            return Err(StoreError::InUse {
                name: auth.name,
                names: used.iter().map(known_as).collect(),
                sessions: used.into_iter().map(|session| session.id).collect(),
            });
        }
        auth.delete(tx.inner())
            .await
            .map_err(StoreError::of("remove it"))?;
        tx.commit().await
    }
}

/// What people call a session.
fn known_as(session: &sessions::Model) -> String {
    let name = session.name.as_ref().filter(|name| !name.is_empty());
    name.map_or_else(|| session.id.clone(), |name| format!("`{name}`"))
}
