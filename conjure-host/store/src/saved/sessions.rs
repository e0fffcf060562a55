//! Sessions: the saved settings that a conversation runs with.

use async_recursion::async_recursion as boxed;
use conjure_core::label::numbered;

use crate::database::Transaction;
use crate::{Store, StoreError, ThreadId};

use super::{
    JsonText, READING, SAVING, TableRow, after_ms, new_id, not_found, now_ms, select, table_row,
};

/// A session. Its provider is not saved: it is its authentication's.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedSession {
    /// Id of the session.
    pub id: String,
    /// Name of the session, which no other one has: 1 to 100 characters, none of them a control
    /// character.
    pub name: Option<String>,
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

/// The longest name, in characters.
const MAX_NAME_CHARS: usize = 100;

table_row!(SavedSession: "session", "sessions", [
    id,
    name,
    auth_id,
    model_id,
    working_dir,
    persona,
    memory,
    tools,
    mcps,
    chat_thread_id,
    latest_chat_entry_id,
    created_at_ms,
    updated_at_ms,
]);

impl SavedSession {
    /// A new session without persona, memory, tools and thread, not saved yet.
    pub fn new(
        auth_id: impl Into<String>,
        model_id: impl Into<String>,
        working_dir: impl Into<String>,
    ) -> Self {
        let empty = || JsonText(serde_json::Map::new().into());
        let now = now_ms();
        Self {
            id: new_id(),
            name: None,
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

    fn check_name(&self) -> Result<(), StoreError> {
        let Some(name) = &self.name else {
            return Ok(());
        };
        let length = name.chars().count();
        if (1..=MAX_NAME_CHARS).contains(&length) && !name.contains(char::is_control) {
            return Ok(());
        }
        Err(StoreError::BadName {
            kind: Self::NAME,
            name: name.clone(),
            rule: "1 to 100 characters, none of them a control character",
        })
    }

    /// Name of the session in errors.
    fn display_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.clone())
    }
}

impl Store {
    /// Saves a new session.
    ///
    /// # Errors
    /// [`StoreError::BadName`], [`StoreError::NameTaken`], [`StoreError::NotFound`] when there is
    /// no such authentication or thread, and what the database says.
    #[boxed]
    pub async fn create_session(&self, session: SavedSession) -> Result<SavedSession, StoreError> {
        session.check_name()?;
        let called = session.display_name();
        let created = self.insert(session, &called).await?;
        self.notify_sessions().await;
        Ok(created)
    }

    /// A session.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn session(&self, id: &str) -> Result<SavedSession, StoreError> {
        self.get(id).await
    }

    /// The session of a name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn session_named(&self, name: &str) -> Result<SavedSession, StoreError> {
        // No name holds it, and PostgreSQL refuses to compare with it.
        if name.contains('\0') {
            return Err(not_found::<SavedSession>(name));
        }
        let sql = select::<SavedSession>("name = $1");
        let found = self.db().reader().one(&sql, vec![name.into()]).await;
        let found = found.map_err(StoreError::of(READING))?;
        super::read(&found.ok_or_else(|| not_found::<SavedSession>(name))?)
    }

    /// The sessions whose active thread this is, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn thread_sessions(
        &self,
        thread: &ThreadId,
    ) -> Result<Vec<SavedSession>, StoreError> {
        let sql = select::<SavedSession>("chat_thread_id = $1 ORDER BY id");
        let rows = self.db().reader();
        let rows = rows.all(&sql, vec![thread.as_str().into()]).await;
        let rows = rows.map_err(StoreError::of(READING))?;
        rows.iter().map(super::read).collect()
    }

    /// At most `limit` sessions behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn sessions(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<SavedSession>, StoreError> {
        self.list(after, limit).await
    }

    /// Saves a session over the one with its id, its newest entry included, if nobody changed that
    /// since this one was read.
    ///
    /// # Errors
    /// [`StoreError::Changed`], [`StoreError::BadName`], [`StoreError::NameTaken`],
    /// [`StoreError::NotFound`] when there is no such session, authentication or thread, and what
    /// the database says.
    #[boxed]
    pub async fn update_session(&self, session: SavedSession) -> Result<SavedSession, StoreError> {
        session.check_name()?;
        let called = session.display_name();
        let seen_ms = session.updated_at_ms;
        let session = SavedSession {
            updated_at_ms: after_ms(seen_ms),
            ..session
        };
        let updated = self.update_if_unchanged(session, &called, seen_ms).await?;
        self.notify_sessions().await;
        Ok(updated)
    }

    /// Takes note of the newest entry of a session's thread. Whether it did: a session that has
    /// another thread by now is left as it is. No change of the session otherwise, so its time of
    /// change stays.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn set_latest_entry(
        &self,
        session: &str,
        thread: &ThreadId,
        seq: u64,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE sessions SET latest_chat_entry_id = $1 \
                   WHERE id = $2 AND chat_thread_id = $3";
        let values = vec![
            format!("{thread}/{seq}").into(),
            session.replace('\0', "").into(),
            thread.as_str().into(),
        ];
        let changed = self.db().execute(false, sql, values, SAVING).await?;
        Ok(changed > 0)
    }

    /// Removes a session, and no thread. Its runs stay with their threads.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn delete_session(&self, id: &str) -> Result<(), StoreError> {
        self.delete::<SavedSession>(id).await?;
        self.notify_sessions().await;
        Ok(())
    }
}

/// A name for the session `id`: this one, or with the first number from 2 on where another session
/// has it.
pub(crate) async fn free_name(
    tx: &Transaction<'_>,
    id: &str,
    name: &str,
) -> Result<String, StoreError> {
    let sql = "SELECT id FROM sessions WHERE name = $1 AND id <> $2";
    let mut free = name.to_owned();
    let mut next = 2;
    while tx
        .one(sql, [free.as_str().into(), id.into()])
        .await?
        .is_some()
    {
        free = numbered(name, next);
        next += 1;
    }
    Ok(free)
}
