//! What processes that share a database ask of each other: a request goes to a writer, which takes
//! it once and answers it.
//!
//! Nothing here knows what is asked. What is asked may be private, so it is deleted as soon as it is
//! taken; one that nobody takes, by whoever made it, else at the next beat of any process. A request and
//! its answer are deleted as soon as the answer is read; those that nobody came back for, when the next
//! one is made.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use tokio::time::Instant;

use crate::database::now_ms;
use crate::row::{column, text};
use crate::signals::REQUESTS_CHANNEL;
use crate::sql::DatabaseRow;
use crate::writer::is_dead;
use crate::{Store, StoreError, ThreadId};

const ASKING: &str = "ask another process";
const ANSWERING: &str = "answer another process";
/// How long a process has to take a request.
const TAKE_TIMEOUT: Duration = Duration::from_millis(900);
/// After how long nobody waits for a request to be taken, in milliseconds: whoever made it has taken it
/// back long since, or is gone. Twice [`TAKE_TIMEOUT`].
const UNTAKEN_EXPIRY_MS: i64 = 1_800;
/// Interval of checks that a process which took a request still lives.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of polling for the answer where no signal arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After how long nobody comes back for a request, in milliseconds.
const EXPIRY_MS: i64 = 600_000;

/// Another process that has something here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The id under which it writes.
    pub writer: String,
    /// Process id of the owner, on its own machine.
    pub pid: i64,
    /// Address at which the process serves the API, if it does.
    pub address: Option<String>,
}

/// A request of another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRequest {
    /// Id of the request.
    pub id: String,
    /// Body of the request.
    pub body: String,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestReply {
    /// The answer.
    Answer(String),
    /// The other process did not take it within a second, and will not any more.
    NotTaken,
    /// The process took the request and did not answer within five minutes.
    NoAnswer,
}

impl Owner {
    fn of(row: &DatabaseRow) -> Result<Self, StoreError> {
        Ok(Self {
            writer: column(row, "id")?,
            pid: column(row, "pid")?,
            address: text(row, "address")?,
        })
    }

    /// The first of these rows of writers whose process lives.
    pub(crate) fn first_alive(rows: &[DatabaseRow]) -> Result<Option<Self>, StoreError> {
        for row in rows {
            if !is_dead(row)? {
                return Self::of(row).map(Some);
            }
        }
        Ok(None)
    }
}

impl Store {
    /// The other process that has a thread open.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn thread_owner(&self, thread: &ThreadId) -> Result<Option<Owner>, StoreError> {
        let sql = "SELECT w.* FROM threads t JOIN writers w ON w.id = t.owner \
                   WHERE t.id = $1 AND w.lost = FALSE AND w.id <> $2";
        let this = self.known_writer().unwrap_or_default();
        let values = [thread.as_str().into(), this.into()];
        Owner::first_alive(&self.all(sql, values).await?)
    }

    /// Asks another process, and waits for its answer: once it took the request, for so long, or
    /// until it is gone.
    ///
    /// # Errors
    /// What the database says; whether it was done is not known then.
    #[boxed]
    pub async fn request(
        &self,
        to: &Owner,
        body: &str,
        patience: Duration,
    ) -> Result<RequestReply, StoreError> {
        let mut signals = self.signals();
        let id = uuid::Uuid::now_v7().to_string();
        self.make_request(&id, to, body).await?;
        let begun = Instant::now();
        let mut looked = begun;
        loop {
            let sql = "SELECT taken, answer FROM requests WHERE id = $1";
            let Some(row) = self.one(sql, [id.as_str().into()]).await? else {
                return Ok(RequestReply::NoAnswer);
            };
            if let Some(answer) = text(&row, "answer")? {
                self.forget_request(&id, true).await?;
                return Ok(RequestReply::Answer(answer));
            }
            let is_taken: bool = column(&row, "taken")?;
            if !is_taken
                && begun.elapsed() > TAKE_TIMEOUT
                && self.forget_request(&id, false).await?
            {
                return Ok(RequestReply::NotTaken);
            }
            if is_taken && begun.elapsed() > patience {
                return Ok(RequestReply::NoAnswer);
            }
            if is_taken && looked.elapsed() > LIVENESS_INTERVAL {
                looked = Instant::now();
                if self.is_owner_dead(to).await? {
                    return Ok(RequestReply::NoAnswer);
                }
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, signals.next()).await;
        }
    }

    /// Whether a process that something was asked of has ended.
    async fn is_owner_dead(&self, owner: &Owner) -> Result<bool, StoreError> {
        let sql = "SELECT * FROM writers WHERE id = $1 AND lost = FALSE";
        let row = self.one(sql, [owner.writer.as_str().into()]).await?;
        row.map_or(Ok(true), |row| is_dead(&row))
    }

    async fn make_request(&self, id: &str, to: &Owner, body: &str) -> Result<(), StoreError> {
        let tx = self.db().begin(false, ASKING).await?;
        let now = now_ms(tx.backend());
        let sql = format!("DELETE FROM requests WHERE at_ms < {now} - $1");
        tx.execute(&sql, [EXPIRY_MS.into()]).await?;
        let sql = format!(
            "INSERT INTO requests (id, writer_id, body, taken, at_ms) \
             VALUES ($1, $2, $3, FALSE, {now})"
        );
        let values = [id.into(), to.writer.as_str().into(), body.into()];
        tx.execute(&sql, values).await?;
        tx.notify(REQUESTS_CHANNEL, &to.writer).await?;
        tx.commit().await
    }

    /// Deletes a request, if it is in this state; whether it was.
    async fn forget_request(&self, id: &str, taken: bool) -> Result<bool, StoreError> {
        let sql = "DELETE FROM requests WHERE id = $1 AND taken = $2";
        let values = vec![id.into(), taken.into()];
        Ok(self.db().execute(false, sql, values, ASKING).await? > 0)
    }

    /// Takes what others ask of this process, in the order in which they did. Each is given to one
    /// taker, once, and its words are in the database no more.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn take_requests(&self) -> Result<Vec<ProcessRequest>, StoreError> {
        let Some(this) = self.known_writer() else {
            return Ok(Vec::new());
        };
        // Whoever made an older one has taken it back, or is no more.
        let now = now_ms(self.db().backend());
        let sql = format!(
            "SELECT id, body FROM requests WHERE writer_id = $1 AND taken = FALSE \
             AND at_ms >= {now} - $2 ORDER BY at_ms, id"
        );
        let mut taken = Vec::new();
        for row in self
            .all(&sql, [this.into(), UNTAKEN_EXPIRY_MS.into()])
            .await?
        {
            let request = ProcessRequest {
                id: column(&row, "id")?,
                body: column(&row, "body")?,
            };
            let sql = "UPDATE requests SET taken = TRUE, body = '' \
                       WHERE id = $1 AND taken = FALSE";
            let values = vec![request.id.as_str().into()];
            if self.db().execute(false, sql, values, ANSWERING).await? > 0 {
                taken.push(request);
            }
        }
        Ok(taken)
    }

    /// Deletes requests, of whichever process, that nobody took in time: whoever makes one takes it back
    /// then, unless it was killed meanwhile.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn drop_untaken_requests(&self) -> Result<(), StoreError> {
        let now = now_ms(self.db().backend());
        let sql = format!("SELECT id FROM requests WHERE taken = FALSE AND at_ms < {now} - $1");
        if self.one(&sql, [UNTAKEN_EXPIRY_MS.into()]).await?.is_none() {
            return Ok(());
        }
        let sql = format!("DELETE FROM requests WHERE taken = FALSE AND at_ms < {now} - $1");
        let values = vec![UNTAKEN_EXPIRY_MS.into()];
        self.db().execute(false, &sql, values, ASKING).await?;
        Ok(())
    }

    /// Answers a request that was taken.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn answer_request(&self, id: &str, answer: &str) -> Result<(), StoreError> {
        let tx = self.db().begin(false, ANSWERING).await?;
        let sql = "UPDATE requests SET answer = $2 WHERE id = $1";
        tx.execute(sql, [id.into(), answer.into()]).await?;
        tx.notify(REQUESTS_CHANNEL, id).await?;
        tx.commit().await
    }
}
