//! Saved authentications. The secret comes sealed and is stored as it comes: what seals it is not
//! known here.

use std::fmt;

use async_recursion::async_recursion as boxed;
use conjure_config::AuthName;
use serde_json::Value;

use crate::database::Transaction;
use crate::{Store, StoreError};

use super::{
    McpServer, READING, SavedSession, TableRow, new_id, not_found, now_ms, select, table_row,
};

/// The provider under which secrets of MCP servers are saved, which settings name by their names.
pub const MCP_SECRETS: &str = "mcp";

/// A saved authentication. Unique by provider, kind and name.
#[derive(Clone, PartialEq, Eq)]
pub struct SavedAuth {
    /// Id of the authentication.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// Kind of the credential, such as `api_key`.
    pub kind: String,
    /// Name of the authentication: 3 to 50 of `A-Z a-z 0-9 _ -`.
    pub name: String,
    /// Base URL of a compatible server.
    pub base_url: Option<String>,
    /// The secret, encrypted; empty where it was left out by an export.
    pub sealed: Vec<u8>,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last changed, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// Without the secret, also in its sealed form.
impl fmt::Debug for SavedAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedAuth")
            .field("id", &self.id)
            .field("provider", &self.provider)
            .field("kind", &self.kind)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

table_row!(SavedAuth: "saved auth", "saved_authentications", [
    id,
    provider,
    kind,
    name,
    base_url,
    sealed,
    created_at_ms,
    updated_at_ms,
]);

impl SavedAuth {
    /// Full name: provider, kind and name.
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
            id: new_id(),
            provider: provider.into(),
            kind: kind.into(),
            name: name.into(),
            base_url: None,
            sealed,
            created_at_ms: now,
            updated_at_ms: now,
        }
    }

    fn check_name(&self) -> Result<(), StoreError> {
        let letters = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if (3..=50).contains(&self.name.len()) && self.name.bytes().all(letters) {
            return Ok(());
        }
        Err(StoreError::BadName {
            kind: Self::NAME,
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
    #[boxed]
    pub async fn create_auth(&self, auth: SavedAuth) -> Result<SavedAuth, StoreError> {
        auth.check_name()?;
        let name = auth.name.clone();
        self.insert(auth, &name).await
    }

    /// A saved authentication.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn auth(&self, id: &str) -> Result<SavedAuth, StoreError> {
        self.get(id).await
    }

    /// At most `limit` saved authentications behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn auths(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<SavedAuth>, StoreError> {
        self.list(after, limit).await
    }

    /// Saves an authentication over the one with its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::BadName`], [`StoreError::NameTaken`], and what the
    /// database says.
    #[boxed]
    pub async fn update_auth(&self, auth: SavedAuth) -> Result<SavedAuth, StoreError> {
        auth.check_name()?;
        let name = auth.name.clone();
        let updated_at_ms = now_ms();
        let auth = SavedAuth {
            updated_at_ms,
            ..auth
        };
        self.update(auth, &name).await
    }

    /// Removes a saved authentication.
    ///
    /// # Errors
    /// [`StoreError::InUse`] names the sessions that use it, and for a secret of MCP servers those
    /// whose settings name it; [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn delete_auth(&self, id: &str) -> Result<(), StoreError> {
        if id.contains('\0') {
            return Err(not_found::<SavedAuth>(id));
        }
        let tx = self.db().begin(true, "remove it").await?;
        check_unused(&tx, id).await?;
        let sql = "DELETE FROM saved_authentications WHERE id = $1";
        let gone = tx.inner().execute(sql, vec![id.into()]).await;
        gone.map_err(StoreError::of("remove it"))?;
        tx.commit().await
    }

    /// Whether [`Store::delete_auth`] would remove a saved authentication now.
    ///
    /// # Errors
    /// What [`Store::delete_auth`] says.
    #[boxed]
    pub async fn check_auth_unused(&self, id: &str) -> Result<(), StoreError> {
        if id.contains('\0') {
            return Err(not_found::<SavedAuth>(id));
        }
        let tx = self.db().begin(false, READING).await?;
        check_unused(&tx, id).await
    }
}

/// Refuses a saved authentication that something uses.
async fn check_unused(tx: &Transaction<'_>, id: &str) -> Result<(), StoreError> {
    let read = async |sql: &str| {
        let rows = tx.inner().all(sql, vec![id.into()]).await;
        rows.map_err(StoreError::of(READING))
    };
    let auths = read(&select::<SavedAuth>("id = $1")).await?;
    let auth = auths.first().ok_or_else(|| not_found::<SavedAuth>(id))?;
    let auth: SavedAuth = super::read(auth)?;
    let used = read(&select::<SavedSession>("auth_id = $1 ORDER BY id")).await?;
    let used: Result<Vec<SavedSession>, StoreError> = used.iter().map(super::read).collect();
    let mut used = used?;
    let mut servers = Vec::new();
    if auth.provider == MCP_SECRETS {
        let mut sessions = rows_naming::<SavedSession>(tx, "tools || mcps", &auth.name).await?;
        sessions.retain(|session| {
            let settings = [&session.tools.0, &session.mcps.0];
            settings.into_iter().any(|it| names_secret(it, &auth.name))
        });
        used.extend(sessions);
        servers = rows_naming::<McpServer>(tx, "settings", &auth.name).await?;
        servers.retain(|server| names_secret(&server.settings.0, &auth.name));
    }
    if used.is_empty() && servers.is_empty() {
        return Ok(());
    }
    let servers = servers.iter().map(|server| format!("`{}`", server.name));
    Err(StoreError::InUse {
        name: auth.name,
        names: used.iter().map(session_label).chain(servers).collect(),
        sessions: used.into_iter().map(|session| session.id).collect(),
    })
}

/// The rows in whose text a name stands, by their ids.
async fn rows_naming<S: TableRow>(
    tx: &Transaction<'_>,
    text: &str,
    name: &str,
) -> Result<Vec<S>, StoreError> {
    // A name has `_`, which stands for any character: what is found is looked at once more.
    let sql = select::<S>(&format!("{text} LIKE $1 ORDER BY id"));
    let rows = tx.inner().all(&sql, vec![format!("%{name}%").into()]).await;
    let rows = rows.map_err(StoreError::of(READING))?;
    rows.iter().map(super::read).collect()
}

/// Whether settings name a secret of MCP servers.
fn names_secret(settings: &Value, name: &str) -> bool {
    match settings {
        Value::Object(object) => {
            object.get("secret").and_then(Value::as_str) == Some(name)
                || object.values().any(|value| names_secret(value, name))
        }
        Value::Array(values) => values.iter().any(|value| names_secret(value, name)),
        _ => false,
    }
}

/// Name of a session, for people.
fn session_label(session: &SavedSession) -> String {
    let name = session.name.as_ref().filter(|name| !name.is_empty());
    name.map_or_else(|| session.id.clone(), |name| format!("`{name}`"))
}
