//! Requests that may come twice: the second gets the first one's answer, and nothing is done again.
//!
//! A key belongs to a scope, such as a route and who asks. A request that was begun and not
//! answered holds its key while its process lives, and not for ever.

use async_recursion::async_recursion as boxed;

use crate::database::{for_update, now_ms};
use crate::row::{column, text};
use crate::sql::{DatabaseRow, Value};
use crate::writer::is_expired;
use crate::{Store, StoreError};

const KEEPING: &str = "keep the request's key";
/// A request that was begun so long ago and is not answered was given up, in milliseconds.
const ABANDONED_AFTER_MS: i64 = 15 * 60 * 1000;
/// The longest key, in bytes.
const MAX_KEY_BYTES: usize = 255;

/// The state of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyStatus {
    /// The request is new: run it, then store its answer.
    Fresh,
    /// The request was begun before, and runs at this moment.
    InFlight,
    /// The request ran before, with this answer.
    Replay(StoredResponse),
    /// The key was used for another request.
    Mismatch,
}

/// The stored response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The HTTP status.
    pub status: u16,
    /// Headers that belong to the answer, such as `Location`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Store {
    /// Begins a request, known by its key, whose content has this SHA-256. One that was begun by a
    /// process that is gone, or 15 minutes ago, and was never answered, begins anew.
    ///
    /// # Errors
    /// [`StoreError::BadName`] when the key is empty, longer than 255 bytes or has control
    /// characters, as the scope may not have; what the database says.
    #[boxed]
    pub async fn idempotent_begin(
        &self,
        key: &str,
        scope: &str,
        sha256: &str,
    ) -> Result<KeyStatus, StoreError> {
        let is_bad = key.is_empty() || key.len() > MAX_KEY_BYTES;
        if is_bad
            || [key, scope]
                .iter()
                .any(|text| text.contains(char::is_control))
        {
            return Err(StoreError::BadName {
                kind: "idempotency key",
                name: key.to_owned(),
                rule: "1 to 255 bytes, no control characters",
            });
        }
        let owner = self.writer().await?;
        let tx = self.db().begin(true, KEEPING).await?;
        let now = now_ms(tx.backend());
        let sql = format!(
            "INSERT INTO idempotency_keys (scope, key, request_sha256, owner, state, \
             created_at_ms) VALUES ($1, $2, $3, $4, 'begun', {now}) \
             ON CONFLICT (scope, key) DO NOTHING"
        );
        let values = [scope, key, sha256, &owner].map(Value::from);
        if tx.execute(&sql, values).await? > 0 {
            tx.commit().await?;
            return Ok(KeyStatus::Fresh);
        }
        let sql = "SELECT owner FROM idempotency_keys WHERE scope = $1 AND key = $2";
        let found = tx.one(sql, [scope.into(), key.into()]).await?;
        let of: Option<String> = found.map(|row| column(&row, "owner")).transpose()?;
        let is_gone = match &of {
            Some(of) if *of != owner => is_expired(&tx, of).await?,
            _ => false,
        };
        let sql = format!(
            "SELECT request_sha256, owner, state, status, headers, body, \
             CASE WHEN created_at_ms < {now} - $3 THEN 1 ELSE 0 END AS is_old \
             FROM idempotency_keys WHERE scope = $1 AND key = $2{}",
            for_update(tx.backend())
        );
        let values: [Value; 3] = [scope.into(), key.into(), ABANDONED_AFTER_MS.into()];
        let Some(row) = tx.one(&sql, values).await? else {
            // It was forgotten in between; whoever asks again begins it.
            return Ok(KeyStatus::InFlight);
        };
        if column::<String>(&row, "request_sha256")? != sha256 {
            return Ok(KeyStatus::Mismatch);
        }
        if column::<String>(&row, "state")? == "done" {
            return Ok(KeyStatus::Replay(StoredResponse::of(&row)?));
        }
        let is_old = column::<i32>(&row, "is_old")? != 0;
        let is_orphan = is_gone && of == text(&row, "owner")?;
        if !is_old && !is_orphan {
            return Ok(KeyStatus::InFlight);
        }
        let sql = format!(
            "UPDATE idempotency_keys SET owner = $3, created_at_ms = {now} \
             WHERE scope = $1 AND key = $2"
        );
        let values = [scope, key, &owner].map(Value::from);
        tx.execute(&sql, values).await?;
        tx.commit().await?;
        Ok(KeyStatus::Fresh)
    }

    /// Keeps the answer to a request that was begun. Whether it did: one that has an answer keeps
    /// that.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn idempotent_end(
        &self,
        key: &str,
        scope: &str,
        answer: &StoredResponse,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE idempotency_keys SET state = 'done', status = $3, headers = $4, \
                   body = $5 WHERE scope = $1 AND key = $2 AND state = 'begun'";
        let headers =
            serde_json::to_string(&answer.headers).map_err(|error| StoreError::Database {
                what: KEEPING,
                reason: error.to_string(),
            })?;
        let values = vec![
            scope.into(),
            key.into(),
            i64::from(answer.status).into(),
            headers.into(),
            answer.body.clone().into(),
        ];
        Ok(self.db().execute(true, sql, values, KEEPING).await? > 0)
    }

    /// Takes back that a request was begun, so that the next one with its key begins it anew: for
    /// one that failed and did nothing, or whose asker went before it was done.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn idempotent_abandon(&self, key: &str, scope: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM idempotency_keys WHERE scope = $1 AND key = $2 AND state = 'begun'";
        let values = vec![scope.into(), key.into()];
        self.db().execute(false, sql, values, KEEPING).await?;
        Ok(())
    }

    /// Forgets keys that are older, answered or not. How many.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn idempotent_forget(&self, older_than_ms: i64) -> Result<u64, StoreError> {
        let sql = format!(
            "DELETE FROM idempotency_keys WHERE created_at_ms < {} - $1",
            now_ms(self.db().backend())
        );
        self.db()
            .execute(false, &sql, vec![older_than_ms.into()], KEEPING)
            .await
    }
}

impl StoredResponse {
    fn of(row: &DatabaseRow) -> Result<Self, StoreError> {
        let corrupt = |reason: String| StoreError::Corrupt {
            what: "read a request's answer",
            reason,
        };
        let status: i64 = column(row, "status")?;
        let headers = text(row, "headers")?.unwrap_or_default();
        Ok(Self {
            status: u16::try_from(status)
                .map_err(|_| corrupt(format!("its status is {status}")))?,
            headers: serde_json::from_str(&headers).map_err(|error| corrupt(error.to_string()))?,
            body: column::<Option<Vec<u8>>>(row, "body")?.unwrap_or_default(),
        })
    }
}
