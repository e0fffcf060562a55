//! Turns of sessions that waited in a process that is gone: nothing of them was begun, so another
//! process takes them over and runs them.

use std::collections::BTreeSet;

use crate::database::{for_update, now_ms};
use crate::row::column;
use crate::writer::{is_gone, lock_writer};
use crate::{Run, Store, StoreError, ThreadId};

const ADOPTING: &str = "take over what waits";

impl Store {
    /// The sessions that have turns which waited in a process that is gone.
    ///
    /// # Errors
    /// What the database says.
    pub async fn orphaned_sessions(&self) -> Result<Vec<String>, StoreError> {
        let this = self.known_writer().unwrap_or_default();
        let sql = "SELECT DISTINCT session_id, owner FROM runs WHERE state = 'queued' \
                   AND ended_at_ms IS NULL AND session_id IS NOT NULL AND owner <> $1 \
                   ORDER BY session_id";
        let waiting = self.all(sql, [this.into()]).await?;
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let tx = self.db().begin(false, ADOPTING).await?;
        let mut sessions = BTreeSet::new();
        for row in waiting {
            let owner: String = column(&row, "owner")?;
            if is_gone(&tx, &owner).await? {
                sessions.insert(column(&row, "session_id")?);
            }
        }
        tx.commit().await?;
        Ok(sessions.into_iter().collect())
    }

    /// Makes the turns of a session this process's that waited in one that is gone, in the order in
    /// which they were queued.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when this process was silent for so long that another took its threads,
    /// and what the database says.
    pub async fn adopt_runs(&self, session: &str) -> Result<Vec<Run>, StoreError> {
        let session = session.replace('\0', "");
        let this = self.known_writer().unwrap_or_default();
        let sql = "SELECT DISTINCT owner FROM runs WHERE session_id = $1 AND state = 'queued' \
                   AND ended_at_ms IS NULL AND owner <> $2 ORDER BY owner";
        let values = [session.as_str().into(), this.into()];
        let owners = self.all(sql, values).await?;
        if owners.is_empty() {
            return Ok(Vec::new());
        }
        let this = self.writer().await?;
        let tx = self.db().begin(true, ADOPTING).await?;
        if !lock_writer(&tx, &this).await? {
            return Err(StoreError::Lost {
                thread: ThreadId::stored(String::new()),
            });
        }
        let mut adopted = Vec::new();
        for row in owners {
            let owner: String = column(&row, "owner")?;
            if !is_gone(&tx, &owner).await? {
                continue;
            }
            let sql = format!(
                "UPDATE runs SET owner = $1, beat_ms = {} WHERE id IN (SELECT id FROM runs \
                 WHERE session_id = $2 AND owner = $3 AND state = 'queued' \
                 AND ended_at_ms IS NULL ORDER BY id{}) RETURNING *",
                now_ms(tx.backend()),
                for_update(tx.backend())
            );
            let values = [this.as_str().into(), session.as_str().into(), owner.into()];
            for row in tx.all(&sql, values).await? {
                adopted.push(Run::of(&row)?);
            }
        }
        tx.commit().await?;
        adopted.sort_by(|a, b| (a.queued_at_ms, &a.id).cmp(&(b.queued_at_ms, &b.id)));
        Ok(adopted)
    }
}
