//! Turns of sessions that waited in a process that is gone: nothing of them was begun, so another
//! process takes them over and runs them. A process that goes down can let go of such turns before it
//! is gone.

use std::collections::{BTreeMap, BTreeSet};

use async_recursion::async_recursion as boxed;

use crate::database::{for_update, now_ms, placeholders};
use crate::row::column;
use crate::runs::without_nul;
use crate::session_owners::{lock_session, other_owner};
use crate::sql::Value;
use crate::writer::{expired_among, expired_beside, is_expired};
use crate::{Run, RunState, Store, StoreError, ThreadId};

const ADOPTING: &str = "take over what waits";
const RELEASING: &str = "let go of what waits";
const CANCELLING: &str = "cancel what waits";
/// The owner of turns that their process has let go of: no writer has this id. It is not empty, as the
/// id of a process that writes nothing yet.
const NOBODY: &str = "nobody";

impl Store {
    /// The sessions that have turns which waited in a process that is gone, and none in another one
    /// that lives.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn orphaned_sessions(&self) -> Result<Vec<String>, StoreError> {
        let this = self.known_writer().unwrap_or_default();
        let sql = "SELECT DISTINCT session_id, owner FROM runs WHERE state = 'queued' \
                   AND ended_at_ms IS NULL AND session_id IS NOT NULL AND owner <> $1";
        let waiting = self.all(sql, [this.as_str().into()]).await?;
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let mut sessions_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in waiting {
            let of_owner = sessions_of.entry(column(&row, "owner")?).or_default();
            of_owner.push(column(&row, "session_id")?);
        }
        let tx = self.db().begin(false, ADOPTING).await?;
        let mut sessions = BTreeSet::new();
        let owners = sessions_of.keys().cloned().collect();
        for owner in expired_among(&tx, owners).await? {
            for session in sessions_of.remove(&owner).unwrap_or_default() {
                if other_owner(&tx, &session, &this).await?.is_none() {
                    sessions.insert(session);
                }
            }
        }
        tx.commit().await?;
        Ok(sessions.into_iter().collect())
    }

    /// Whether a session has turns which waited in a process that is known to be gone, and none in
    /// another one that lives. It only reads, so one may ask it often.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn has_orphans(&self, session: &str) -> Result<bool, StoreError> {
        if self.session_owner(session).await?.is_some() {
            return Ok(false);
        }
        let this = self.known_writer().unwrap_or_default();
        let sql = "SELECT id FROM runs WHERE session_id = $1 AND state = 'queued' \
                   AND ended_at_ms IS NULL AND owner <> $2 LIMIT 1";
        let values = [without_nul(session).into(), this.into()];
        Ok(self.one(sql, values).await?.is_some())
    }

    /// Whether a turn waits in a process that is known to be gone, or that has let go of it, and this
    /// process has not taken it over. It only reads.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn is_orphan(&self, id: &str) -> Result<bool, StoreError> {
        let run = self.run(id).await?;
        if !self.is_queued_elsewhere(&run) {
            return Ok(false);
        }
        Ok(self.run_owner(id).await?.is_none())
    }

    /// Whether a turn waits and is not this process's.
    fn is_queued_elsewhere(&self, run: &Run) -> bool {
        let is_own = self.known_writer().as_deref() == Some(run.owner.as_str());
        run.state == RunState::Queued && !is_own
    }

    /// Makes the turns of a session this process's that waited in one that is gone, in the order in
    /// which they were queued. None where another process that lives has turns of the session: it is
    /// that one's to take them over.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when this process was silent for so long that another took its threads,
    /// and what the database says.
    #[boxed]
    pub async fn adopt_runs(&self, session: &str) -> Result<Vec<Run>, StoreError> {
        let session = without_nul(session);
        let this = self.known_writer().unwrap_or_default();
        let sql = "SELECT DISTINCT owner FROM runs WHERE session_id = $1 AND state = 'queued' \
                   AND ended_at_ms IS NULL AND owner <> $2";
        let values = [session.as_str().into(), this.into()];
        let owners = self.all(sql, values).await?;
        // Before rows are locked, which one that lives needs.
        if owners.is_empty() || self.session_owner(&session).await?.is_some() {
            return Ok(Vec::new());
        }
        let this = self.writer().await?;
        let tx = self.db().begin(true, ADOPTING).await?;
        let owners = owners.iter().map(|row| column(row, "owner"));
        let owners = owners.collect::<Result<BTreeSet<String>, StoreError>>()?;
        let Some(mut gone) = expired_beside(&tx, &this, owners).await? else {
            return Err(StoreError::Lost {
                thread: ThreadId::stored(String::new()),
            });
        };
        let is_there = lock_session(&tx, &session).await?;
        if !is_there || other_owner(&tx, &session, &this).await?.is_some() {
            gone.clear();
        }
        let mut adopted = Vec::new();
        for owner in gone {
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
        if !adopted.is_empty() {
            self.notify_sessions().await;
        }
        adopted.sort_by(|a, b| (a.queued_at_ms, &a.id).cmp(&(b.queued_at_ms, &b.id)));
        Ok(adopted)
    }

    /// Lets go of turns of this process that wait: whoever takes over what waited in processes that are
    /// gone finds them from now on.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn release_runs(&self, ids: &[String]) -> Result<(), StoreError> {
        let this = self.known_writer().unwrap_or_default();
        let tx = self.db().begin(true, RELEASING).await?;
        let sql = format!(
            "UPDATE runs SET owner = $1 WHERE owner = $2 AND state = 'queued' \
             AND ended_at_ms IS NULL AND id IN ({}) RETURNING thread_id",
            placeholders(3, ids.len())
        );
        let ids = ids.iter().map(|id| Value::from(without_nul(id)));
        let values = [Value::from(NOBODY), Value::from(this)];
        let values = values.into_iter().chain(ids);
        let mut threads = BTreeSet::new();
        for row in tx.all(&sql, values).await? {
            threads.insert(ThreadId::stored(column(&row, "thread_id")?));
        }
        tx.notify_threads(threads.iter()).await?;
        tx.commit().await?;
        self.notify_sessions().await;
        Ok(())
    }

    /// Ends a turn as cancelled that waits in a process that is gone. The turn as it waited; nothing
    /// where it does not.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn cancel_orphan(&self, id: &str, why: &str) -> Result<Option<Run>, StoreError> {
        let run = match self.run(id).await {
            Ok(run) => run,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !self.is_queued_elsewhere(&run) {
            return Ok(None);
        }
        let tx = self.db().begin(false, CANCELLING).await?;
        let mut ended = 0;
        if is_expired(&tx, &run.owner).await? {
            let now = now_ms(tx.backend());
            let sql = format!(
                "UPDATE runs SET state = 'cancelled', error = $3, ended_at_ms = {now}, \
                 beat_ms = {now}, message = NULL WHERE id = $1 AND owner = $2 \
                 AND state = 'queued' AND ended_at_ms IS NULL"
            );
            let values = [
                run.id.as_str().into(),
                run.owner.as_str().into(),
                why.into(),
            ];
            ended = tx.execute(&sql, values).await?;
        }
        tx.commit().await?;
        if ended > 0 {
            self.notify_sessions().await;
        }
        Ok((ended > 0).then_some(run))
    }
}
