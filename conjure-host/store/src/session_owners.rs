//! Owners of a session's turns: one process at a time, from when one of them runs or waits there
//! until all of them are over. A process that begins a turn claims the session in the same transaction,
//! so that of two that begin at the same moment one learns of the other.

use async_recursion::async_recursion as boxed;

use crate::database::{Transaction, for_update};
use crate::requests::Owner;
use crate::runs::without_nul;
use crate::{Store, StoreError};

/// The writers, other than one, that have turns of a session; the one whose turn was queued first is
/// the first.
const OWNERS: &str = "SELECT w.* FROM writers w JOIN (SELECT owner, MIN(queued_at_ms) AS since \
                      FROM runs WHERE session_id = $1 AND ended_at_ms IS NULL GROUP BY owner) r \
                      ON r.owner = w.id WHERE w.lost = FALSE AND w.id <> $2 \
                      ORDER BY r.since, w.id";

impl Store {
    /// The other process that runs a turn of a session, or has one that waits.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn session_owner(&self, session: &str) -> Result<Option<Owner>, StoreError> {
        let this = self.known_writer().unwrap_or_default();
        let values = [without_nul(session).into(), this.into()];
        Owner::first_alive(&self.all(OWNERS, values).await?)
    }

    /// The other process that runs a turn which is not over, or has it waiting.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn run_owner(&self, id: &str) -> Result<Option<Owner>, StoreError> {
        let this = self.known_writer().unwrap_or_default();
        let sql = "SELECT w.* FROM runs r JOIN writers w ON w.id = r.owner \
                   WHERE r.id = $1 AND r.ended_at_ms IS NULL AND w.lost = FALSE AND w.id <> $2";
        let values = [without_nul(id).into(), this.into()];
        Owner::first_alive(&self.all(sql, values).await?)
    }
}

/// Claims a session for a writer until the transaction ends, which adds a turn to it.
///
/// # Errors
/// [`StoreError::NotFound`] when there is no such session, [`StoreError::SessionBusy`] when another
/// process has turns of it, and what the database says.
pub(crate) async fn claim_session(
    tx: &Transaction<'_>,
    session: &str,
    writer: &str,
) -> Result<(), StoreError> {
    if !lock_session(tx, session).await? {
        return Err(StoreError::NotFound {
            kind: "session",
            id: session.to_owned(),
        });
    }
    match other_owner(tx, session, writer).await? {
        Some(owner) => Err(StoreError::SessionBusy {
            session: session.to_owned(),
            pid: owner.pid,
        }),
        None => Ok(()),
    }
}

/// Keeps a session's row until the transaction ends; whether it is there. The rows of all writers that
/// a transaction keeps are locked before it, in the order of their ids
/// ([`expired_among`](crate::writer::gone_among)), so that no two transactions wait for each other.
pub(crate) async fn lock_session(tx: &Transaction<'_>, session: &str) -> Result<bool, StoreError> {
    let sql = format!(
        "SELECT id FROM sessions WHERE id = $1{}",
        for_update(tx.backend())
    );
    let row = tx.one(&sql, [without_nul(session).into()]).await?;
    Ok(row.is_some())
}

/// The process other than this writer's that lives and has turns of a session.
pub(crate) async fn other_owner(
    tx: &Transaction<'_>,
    session: &str,
    writer: &str,
) -> Result<Option<Owner>, StoreError> {
    let values = [without_nul(session).into(), writer.into()];
    Owner::first_alive(&tx.all(OWNERS, values).await?)
}
