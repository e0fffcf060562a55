//! Plugins that were loaded, by the hash of their bytes: what a person is told who asks which code
//! ran here.

use sea_orm::IntoActiveModel as _;
use sea_orm::entity::prelude::*;
use sea_orm::sea_query::OnConflict;

use crate::{Store, StoreError};

use super::{Kind, SAVING, now_ms};

/// A plugin that was loaded.
#[derive(Debug, Clone, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "plugins")]
pub struct Model {
    /// The SHA-256 of its bytes, in hexadecimal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub sha256: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is, such as `backend` or `skills`.
    pub kind: String,
    /// Where it was loaded from the last time.
    pub origin: String,
    /// Whether somebody vouched for these bytes.
    pub pinned: bool,
    /// When it was first loaded, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last loaded, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// None is used.
#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

impl Kind for Entity {
    const NAME: &'static str = "plugin";
    const ID: Column = Column::Sha256;
}

impl Model {
    /// A plugin that is loaded now, not saved yet.
    pub fn new(
        sha256: impl Into<String>,
        name: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
        origin: impl Into<String>,
        pinned: bool,
    ) -> Self {
        let now = now_ms();
        Self {
            sha256: sha256.into(),
            name: name.into(),
            version: version.into(),
            kind: kind.into(),
            origin: origin.into(),
            pinned,
            created_at_ms: now,
            updated_at_ms: now,
        }
    }
}

impl Store {
    /// Takes note that a plugin was loaded. One that was loaded before keeps its first time.
    ///
    /// # Errors
    /// What the database says.
    pub async fn record_plugin(&self, plugin: Model) -> Result<(), StoreError> {
        let mut again = OnConflict::column(Column::Sha256);
        again.update_columns([
            Column::Name,
            Column::Version,
            Column::Kind,
            Column::Origin,
            Column::Pinned,
            Column::UpdatedAtMs,
        ]);
        let tx = self.db().begin(false, SAVING).await?;
        Entity::insert(plugin.into_active_model())
            .on_conflict(again)
            .exec_without_returning(tx.inner())
            .await
            .map_err(StoreError::of(SAVING))?;
        tx.commit().await
    }

    /// At most `limit` plugins that were loaded, behind the hash `after`, by their hashes.
    ///
    /// # Errors
    /// What the database says.
    pub async fn plugins(&self, after: Option<&str>, limit: u64) -> Result<Vec<Model>, StoreError> {
        self.list::<Entity>(after, limit).await
    }
}
