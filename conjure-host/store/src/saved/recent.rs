//! Sessions in the order of their last use, for a person who looks for one.

use async_recursion::async_recursion as boxed;

use super::{SavedSession, TableRow as _};
use crate::row::{column, text};
use crate::sql::DatabaseRow;
use crate::{Store, StoreError};

/// Position in a list of sessions in the order of their last use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionCursor {
    /// When the last session on the page before was used, in milliseconds since 1970.
    pub used_at_ms: i64,
    /// Id of that session.
    pub id: String,
}

impl Store {
    /// At most `limit` sessions that have all of these words in their name, model, working directory
    /// or the label of their thread, in upper or lower case; what was used last comes first. Used is
    /// what was changed, or whose thread grew.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn recent_sessions(
        &self,
        words: &str,
        behind: Option<&SessionCursor>,
        limit: u64,
    ) -> Result<Vec<(SavedSession, SessionCursor)>, StoreError> {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() {
            return self.latest_sessions(behind, limit).await;
        }
        // Without the settings, which are most of a row. The letters of databases are not all of those
        // that there are, so words are looked for here.
        let sql = "SELECT s.id, s.name, s.model_id, s.working_dir, s.updated_at_ms, t.thread_label, \
                   COALESCE(t.updated_at_ms, 0) AS grew_at_ms \
                   FROM sessions s LEFT JOIN threads t ON t.id = s.chat_thread_id";
        let rows = self.all(sql, []).await?;
        let mut places = Vec::new();
        for row in &rows {
            if has_all(row, &words)? {
                let place = session_cursor(row)?;
                if behind.is_none_or(|behind| place < *behind) {
                    places.push(place);
                }
            }
        }
        places.sort_unstable_by(|one, other| other.cmp(one));
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for place in places {
            if found.len() >= most {
                break;
            }
            match self.session(&place.id).await {
                Ok(session) => found.push((session, place)),
                // It was removed meanwhile.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// When a session was used, of the tables of [`Store::latest_sessions`].
const LAST_USED_SQL: &str = "CASE WHEN t.updated_at_ms > s.updated_at_ms THEN t.updated_at_ms \
                    ELSE s.updated_at_ms END";

impl Store {
    async fn latest_sessions(
        &self,
        behind: Option<&SessionCursor>,
        limit: u64,
    ) -> Result<Vec<(SavedSession, SessionCursor)>, StoreError> {
        let columns = SavedSession::COLUMNS.iter().map(|name| format!("s.{name}"));
        let sql = format!(
            "SELECT {}, {LAST_USED_SQL} AS used_at_ms \
             FROM sessions s LEFT JOIN threads t ON t.id = s.chat_thread_id \
             WHERE {LAST_USED_SQL} < $1 OR ({LAST_USED_SQL} = $1 AND s.id < $2) \
             ORDER BY used_at_ms DESC, s.id DESC LIMIT $3",
            columns.collect::<Vec<_>>().join(", ")
        );
        let (used_at_ms, id) = behind.map_or((i64::MAX, ""), |it| (it.used_at_ms, &it.id));
        let values = [used_at_ms.into(), id.replace('\0', "").into(), limit.into()];
        let rows = self.all(&sql, values).await?;
        let read = |row: &DatabaseRow| {
            let session: SavedSession = super::read(row)?;
            let place = SessionCursor {
                used_at_ms: column(row, "used_at_ms")?,
                id: session.id.clone(),
            };
            Ok((session, place))
        };
        rows.iter().map(read).collect()
    }
}

fn session_cursor(row: &DatabaseRow) -> Result<SessionCursor, StoreError> {
    let changed: i64 = column(row, "updated_at_ms")?;
    let grew: i64 = column(row, "grew_at_ms")?;
    Ok(SessionCursor {
        used_at_ms: changed.max(grew),
        id: column(row, "id")?,
    })
}

fn has_all(row: &DatabaseRow, words: &[String]) -> Result<bool, StoreError> {
    if words.is_empty() {
        return Ok(true);
    }
    let mut searched = String::new();
    for name in ["name", "model_id", "working_dir", "thread_label"] {
        searched.push_str(&text(row, name)?.unwrap_or_default());
        searched.push('\n');
    }
    let searched = searched.to_lowercase();
    Ok(words.iter().all(|word| searched.contains(word)))
}
