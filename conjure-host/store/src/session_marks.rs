//! The marks of sessions: what a list shows of each that another process may change, which is when its
//! settings were saved and the turns that other processes run in it. One statement reads all of them,
//! for those who look again and again.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;

use crate::row::{column, text};
use crate::{RunState, Store, StoreError, ThreadId};

/// State of a session in a list, beside its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionMark {
    /// When it was last changed, in milliseconds since 1970.
    pub updated_at_ms: i64,
    /// The turn that another process runs in it.
    pub running: Option<ForeignTurn>,
    /// Number of turns that wait in other processes.
    pub queued: usize,
}

/// A turn that another process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTurn {
    /// Id of the turn.
    pub id: String,
    /// The thread that it is in.
    pub thread: ThreadId,
    /// Whether the turn waits for a person.
    pub is_waiting: bool,
}

/// The marks of all sessions, by their ids.
pub type SessionMarks = BTreeMap<String, SessionMark>;

impl Store {
    /// The marks of all sessions.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn session_marks(&self) -> Result<SessionMarks, StoreError> {
        let this = self.known_writer().unwrap_or_default();
        let sql = "SELECT id AS session_id, updated_at_ms, CAST(NULL AS text) AS turn_id, \
                   CAST(NULL AS text) AS thread_id, CAST(NULL AS text) AS state, \
                   CAST(NULL AS bigint) AS waiting_since_ms, 0 AS queued_at_ms FROM sessions \
                   UNION ALL \
                   SELECT session_id, CAST(NULL AS bigint), id, thread_id, state, \
                   waiting_since_ms, queued_at_ms FROM runs \
                   WHERE ended_at_ms IS NULL AND session_id IS NOT NULL AND owner <> $1 \
                   ORDER BY queued_at_ms, turn_id";
        let rows = self.all(sql, [this.into()]).await?;
        let mut marks = SessionMarks::new();
        for row in &rows {
            if let Some(updated_at_ms) = column(row, "updated_at_ms")? {
                let mark = SessionMark {
                    updated_at_ms,
                    running: None,
                    queued: 0,
                };
                marks.insert(column(row, "session_id")?, mark);
            }
        }
        for row in &rows {
            let session: String = column(row, "session_id")?;
            let (Some(id), Some(mark)) = (text(row, "turn_id")?, marks.get_mut(&session)) else {
                continue;
            };
            let state: String = column(row, "state")?;
            if RunState::of_word(&state) == Some(RunState::Queued) {
                mark.queued += 1;
            } else if mark.running.is_none() {
                let since: Option<i64> = column(row, "waiting_since_ms")?;
                mark.running = Some(ForeignTurn {
                    id,
                    thread: ThreadId::stored(column(row, "thread_id")?),
                    is_waiting: since.is_some(),
                });
            }
        }
        Ok(marks)
    }
}
