//! Plugins that were loaded, by the hash of their bytes: what a person is told who asks which code
//! ran here.

use crate::database::placeholders;
use crate::{Store, StoreError};

use super::{SAVING, TableRow, now_ms, table_row};

/// A plugin that was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Kind of the plugin, such as `backend` or `skills`.
    pub kind: String,
    /// Origin from which it was loaded the last time.
    pub origin: String,
    /// Whether somebody vouched for these bytes.
    pub pinned: bool,
    /// When it was first loaded, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last loaded, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

table_row!(Plugin: "plugin", "plugins", [
    sha256,
    name,
    version,
    kind,
    origin,
    pinned,
    created_at_ms,
    updated_at_ms,
]);

impl Plugin {
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
    pub async fn record_plugin(&self, plugin: Plugin) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO plugins ({}) VALUES ({}) ON CONFLICT (sha256) DO UPDATE SET \
             name = excluded.name, version = excluded.version, kind = excluded.kind, \
             origin = excluded.origin, pinned = excluded.pinned, \
             updated_at_ms = excluded.updated_at_ms",
            Plugin::COLUMNS.join(", "),
            placeholders(1, Plugin::COLUMNS.len())
        );
        let tx = self.db().begin(false, SAVING).await?;
        let noted = tx.inner().execute(&sql, plugin.into_values()).await;
        noted.map_err(StoreError::of(SAVING))?;
        tx.commit().await
    }

    /// At most `limit` plugins that were loaded, behind the hash `after`, by their hashes.
    ///
    /// # Errors
    /// What the database says.
    pub async fn plugins(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<Plugin>, StoreError> {
        self.list(after, limit).await
    }
}
