//! Runs: turns from being queued to their end, with an owner, a heartbeat and what they spent.
//!
//! A run is a record beside the log: what was said and done is in the thread. It belongs to the
//! process that began it, by the writer under which that process has its threads; when that writer
//! is gone the run is over, and whoever asks next ends it.

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{Message, Usage};

use crate::database::{Transaction, for_update, now_ms, placeholders};
use crate::row::{column, number, text};
use crate::session_owners::claim_session;
use crate::sql::{DatabaseRow, Value};
use crate::threads::Cursor;
use crate::writer::{expired_among, lock_writer};
use crate::{Store, StoreError, ThreadId};

const BEGINNING: &str = "begin the run";
pub(crate) const CHANGING: &str = "change the run";
const READING: &str = "read the runs";
/// The longest id, in bytes.
const MAX_ID_BYTES: usize = 128;
/// Runs that one statement touches.
const BATCH: usize = 10_000;
/// Condition of the runs that are over when their process is gone.
const INTERRUPTIBLE: &str = "ended_at_ms IS NULL AND (state <> 'queued' OR session_id IS NULL)";
/// Reason of a run whose process is gone.
const GONE_WHILE_RUNNING: &str =
    "the process that ran it is gone; what came so far is kept, and nothing of it is repeated";
/// Reason of a queued run without a session, whose process is gone.
const GONE_BEFORE_START: &str = "the host ended before it began";

/// A turn that runs, waits to, or did.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The turn's id: 1 to 128 characters, none of them a control character.
    pub id: String,
    /// The session whose turn it is; nothing when that is gone, or never was.
    pub session_id: Option<String>,
    /// The thread.
    pub thread: ThreadId,
    /// Id of the writer that runs it. Set by [`Store::begin_run`].
    pub owner: String,
    /// State of the run.
    pub state: RunState,
    /// When its owner last said that it runs, in milliseconds since 1970 by the database's clock,
    /// as all times of a run.
    pub beat_ms: i64,
    /// When it was queued.
    pub queued_at_ms: i64,
    /// When it began to run.
    pub started_at_ms: Option<i64>,
    /// When it was over.
    pub ended_at_ms: Option<i64>,
    /// Usage of the run so far.
    pub spent: RunUsage,
    /// Reason of a failure.
    pub error: Option<String>,
    /// What is said in it, until it is known to be in the thread: see [`Store::unwritten_runs`].
    pub message: Option<Message>,
    /// What holds for it beside its session's settings, as whoever began it wrote it.
    pub terms: Option<String>,
    /// When the run began to wait for a person, in milliseconds since 1970; `None` where it does not.
    pub waiting_since_ms: Option<i64>,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// The run waits in the queue.
    Queued,
    /// The run is running.
    Running,
    /// The run came to its end.
    Completed,
    /// Somebody cancelled it.
    Cancelled,
    /// The run failed.
    Failed,
    /// A limit ended it.
    Limit,
    /// The model's answer was cut short.
    CutShort,
    /// The process that ran it ended.
    Interrupted,
    /// The session that ran it gave no sign of life for too long, or broke.
    Lost,
}

/// The usage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunUsage {
    /// Tokens.
    pub usage: Usage,
    /// Calls of tools.
    pub calls: u64,
    /// Money, in US dollars; nothing where the price is not known.
    pub usd: Option<f64>,
}

/// Selection of runs.
#[derive(Debug, Clone, Copy)]
pub enum RunFilter<'a> {
    /// All runs.
    All,
    /// A thread's.
    Thread(&'a ThreadId),
    /// A thread's that began to run.
    Started(&'a ThreadId),
    /// A session's.
    Session(&'a str),
}

/// Sums over the runs of a session, those that are not over included.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SessionTotals {
    /// Number of runs.
    pub runs: u64,
    /// What they spent: the money is the sum of what is known, and nothing when none is.
    pub spent: RunUsage,
    /// Number of runs that used tokens without a known price.
    pub unpriced: u64,
    /// Time of the runs from start to end, in milliseconds; of one that runs, up to now.
    pub wall_ms: u64,
}

impl RunState {
    const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Completed,
        Self::Cancelled,
        Self::Failed,
        Self::Limit,
        Self::CutShort,
        Self::Interrupted,
        Self::Lost,
    ];

    /// The state of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// A word for programs, such as `cut_short`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Limit => "limit",
            Self::CutShort => "cut_short",
            Self::Interrupted => "interrupted",
            Self::Lost => "lost",
        }
    }

    /// Whether the state is final.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl Run {
    /// A run that waits for its turn, not saved yet. The database gives it its owner and its times.
    pub fn new(id: impl Into<String>, session_id: Option<String>, thread: ThreadId) -> Self {
        Self {
            id: id.into(),
            session_id,
            thread,
            owner: String::new(),
            state: RunState::Queued,
            beat_ms: 0,
            queued_at_ms: 0,
            started_at_ms: None,
            ended_at_ms: None,
            spent: RunUsage::default(),
            error: None,
            message: None,
            terms: None,
            waiting_since_ms: None,
        }
    }

    /// Sets the message of the run.
    #[must_use]
    pub fn with_message(self, message: Option<Message>) -> Self {
        Self { message, ..self }
    }

    /// Sets the terms of the run.
    #[must_use]
    pub fn with_terms(self, terms: Option<String>) -> Self {
        Self { terms, ..self }
    }

    /// Cursor of a list that goes on behind this run.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            created_at_ms: self.queued_at_ms,
            id: self.id.clone(),
        }
    }

    pub(crate) fn of(row: &DatabaseRow) -> Result<Self, StoreError> {
        let id: String = column(row, "id")?;
        let state: String = column(row, "state")?;
        let known = RunState::of_word(&state);
        Ok(Self {
            state: known.ok_or_else(|| StoreError::Corrupt {
                what: READING,
                reason: format!("the state of run {id} is `{state}`"),
            })?,
            id,
            session_id: text(row, "session_id")?,
            thread: ThreadId::stored(column(row, "thread_id")?),
            owner: column(row, "owner")?,
            beat_ms: column(row, "beat_ms")?,
            queued_at_ms: column(row, "queued_at_ms")?,
            started_at_ms: column(row, "started_at_ms")?,
            ended_at_ms: column(row, "ended_at_ms")?,
            spent: RunUsage::of(row)?,
            error: text(row, "error")?,
            // One that this version cannot read holds up nothing else.
            message: column::<Option<String>>(row, "message")?
                .and_then(|message| serde_json::from_str(&message).ok()),
            terms: text(row, "terms")?,
            waiting_since_ms: column(row, "waiting_since_ms")?,
        })
    }
}

impl RunUsage {
    fn of(row: &DatabaseRow) -> Result<Self, StoreError> {
        Ok(Self {
            usage: Usage {
                input: number(row, "input")?,
                cache_read: number(row, "cache_read")?,
                cache_write: number(row, "cache_write")?,
                output: number(row, "output")?,
                reasoning: number(row, "reasoning")?,
            },
            calls: number(row, "calls")?,
            usd: column(row, "usd")?,
        })
    }
}

impl Store {
    /// Saves a run as one of this process, queued or running, with the time of now. As saved.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`] when there is a run of that id, [`StoreError::BadName`],
    /// [`StoreError::NoThread`], [`StoreError::NotFound`] when there is no such session,
    /// [`StoreError::SessionBusy`] when another process has turns of it,
    /// [`StoreError::Lost`] when this process was silent for so long that another took its threads,
    /// and what the database says.
    #[boxed]
    pub async fn begin_run(&self, run: Run) -> Result<Run, StoreError> {
        let length = 1..=MAX_ID_BYTES;
        if !length.contains(&run.id.len()) || run.id.contains(char::is_control) {
            return Err(StoreError::BadName {
                kind: "turn",
                name: run.id,
                rule: "1 to 128 bytes, no control characters",
            });
        }
        let owner = self.writer().await?;
        let tx = self.db().begin(false, BEGINNING).await?;
        if !lock_writer(&tx, &owner).await? {
            return Err(StoreError::Lost { thread: run.thread });
        }
        let sql = "SELECT id FROM threads WHERE id = $1 AND removed = FALSE";
        if tx.one(sql, [run.thread.as_str().into()]).await?.is_none() {
            return Err(StoreError::NoThread { thread: run.thread });
        }
        if let Some(session) = &run.session_id {
            claim_session(&tx, session, &owner).await?;
        }
        let now = now_ms(tx.backend());
        let started = match run.state {
            RunState::Queued => "NULL",
            _ => now,
        };
        let sql = format!(
            "INSERT INTO runs (id, session_id, thread_id, owner, state, beat_ms, queued_at_ms, \
             started_at_ms, message, terms) \
             VALUES ($1, $2, $3, $4, $5, {now}, {now}, {started}, $6, $7) \
             ON CONFLICT (id) DO NOTHING RETURNING *"
        );
        let state = match run.state {
            RunState::Queued => RunState::Queued,
            _ => RunState::Running,
        };
        let message = run.message.as_ref().map(serde_json::to_string);
        let message = message.transpose().map_err(|error| StoreError::Corrupt {
            what: BEGINNING,
            reason: format!("what is said in it cannot be written: {error}"),
        })?;
        let values: [Value; 7] = [
            run.id.as_str().into(),
            run.session_id.into(),
            run.thread.as_str().into(),
            owner.into(),
            state.as_str().into(),
            message.into(),
            run.terms.into(),
        ];
        let Some(row) = tx.one(&sql, values).await? else {
            return Err(StoreError::NameTaken {
                kind: "turn",
                name: run.id,
            });
        };
        let run = Run::of(&row)?;
        tx.commit().await?;
        self.notify_sessions().await;
        Ok(run)
    }

    /// A run.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn run(&self, id: &str) -> Result<Run, StoreError> {
        let found = if id.contains('\0') {
            None
        } else {
            let sql = "SELECT * FROM runs WHERE id = $1";
            self.one(sql, [id.into()]).await?
        };
        let run = found.as_ref().map(Run::of).transpose()?;
        run.ok_or_else(|| StoreError::NotFound {
            kind: "turn",
            id: id.to_owned(),
        })
    }

    /// A page of runs, the newest first, at most `limit` of them.
    ///
    /// # Errors
    /// What the database says.
    pub async fn runs(
        &self,
        of: RunFilter<'_>,
        after: Option<&Cursor>,
        limit: u64,
    ) -> Result<Vec<Run>, StoreError> {
        let (at_ms, id) = after.map_or((i64::MAX, ""), |after| (after.created_at_ms, &after.id));
        let (condition, whose) = match of {
            RunFilter::All => ("$1 = ''", String::new()),
            RunFilter::Thread(thread) => ("thread_id = $1", thread.to_string()),
            RunFilter::Started(thread) => (
                "thread_id = $1 AND started_at_ms IS NOT NULL",
                thread.to_string(),
            ),
            RunFilter::Session(session) => ("session_id = $1", without_nul(session)),
        };
        let sql = format!(
            "SELECT * FROM runs WHERE {condition} AND (queued_at_ms, id) < ($2, $3) \
             ORDER BY queued_at_ms DESC, id DESC LIMIT $4"
        );
        let values = [
            whose.into(),
            at_ms.into(),
            without_nul(id).into(),
            limit.into(),
        ];
        let rows = self.all(&sql, values).await?;
        rows.iter().map(Run::of).collect()
    }

    /// Says of runs that they run. How many of them are not over.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn beat_runs(&self, ids: &[&str]) -> Result<u64, StoreError> {
        let backend = self.db().backend();
        let mut beaten = 0;
        for ids in ids.chunks(BATCH) {
            // Locked in one order, so that two that touch the same runs do not wait for each other.
            let sql = format!(
                "UPDATE runs SET beat_ms = {} WHERE id IN (SELECT id FROM runs WHERE id IN ({}) \
                 AND ended_at_ms IS NULL ORDER BY id{})",
                now_ms(backend),
                placeholders(1, ids.len()),
                for_update(backend)
            );
            let values = ids.iter().map(|id| without_nul(id).into()).collect();
            beaten += self.db().execute(false, &sql, values, CHANGING).await?;
        }
        Ok(beaten)
    }

    /// The runs that [`Store::take_over_runs`] would end now, as they are.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn abandoned_runs(&self) -> Result<Vec<Run>, StoreError> {
        let tx = self.db().begin(true, CHANGING).await?;
        let sql = format!("SELECT * FROM runs WHERE owner = $1 AND {INTERRUPTIBLE} ORDER BY id");
        let mut abandoned = Vec::new();
        for owner in expired_owners(&tx).await? {
            for row in tx.all(&sql, [owner.into()]).await? {
                abandoned.push(Run::of(&row)?);
            }
        }
        tx.commit().await?;
        Ok(abandoned)
    }

    /// Ends every run as interrupted that was begun and is not over, or waits and is no session's,
    /// and whose process is gone: dead, or silent for so long that its threads may be taken. The
    /// time of its end is when it was last heard of, and its error says why. The runs that this
    /// ended, by their ids; what waits in sessions is for [`Store::adopt_runs`].
    ///
    /// # Errors
    /// What the database says; no run is ended then.
    #[boxed]
    pub async fn take_over_runs(&self) -> Result<Vec<Run>, StoreError> {
        let tx = self.db().begin(true, CHANGING).await?;
        let sql = format!(
            "UPDATE runs SET state = 'interrupted', ended_at_ms = beat_ms, \
             waiting_since_ms = NULL, \
             error = CASE WHEN state = 'queued' THEN $3 ELSE $2 END WHERE id IN \
             (SELECT id FROM runs WHERE owner = $1 AND {INTERRUPTIBLE} ORDER BY id{}) RETURNING *",
            for_update(tx.backend())
        );
        let mut ended = Vec::new();
        for owner in expired_owners(&tx).await? {
            let values = [
                owner.into(),
                GONE_WHILE_RUNNING.into(),
                GONE_BEFORE_START.into(),
            ];
            for row in tx.all(&sql, values).await? {
                ended.push(Run::of(&row)?);
            }
        }
        tx.commit().await?;
        if !ended.is_empty() {
            self.notify_sessions().await;
        }
        ended.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(ended)
    }

    /// The runs of a session that are not over, in the order in which they were queued.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn open_runs(&self, session: &str) -> Result<Vec<Run>, StoreError> {
        let sql = "SELECT * FROM runs WHERE session_id = $1 AND ended_at_ms IS NULL \
                   ORDER BY queued_at_ms, id";
        let rows = self.all(sql, [without_nul(session).into()]).await?;
        rows.iter().map(Run::of).collect()
    }

    /// The runs in a thread that are not over, whichever session's they are, in the order in which
    /// they were queued.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn open_runs_in(&self, thread: &ThreadId) -> Result<Vec<Run>, StoreError> {
        let sql = "SELECT * FROM runs WHERE thread_id = $1 AND ended_at_ms IS NULL \
                   ORDER BY queued_at_ms, id";
        let rows = self.all(sql, [thread.as_str().into()]).await?;
        rows.iter().map(Run::of).collect()
    }

    /// Runs that are over and may have said something that is not in their thread: they waited,
    /// could not begin, or had only begun. In the order in which they were queued, behind `after`,
    /// at most `limit`.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn unwritten_runs(
        &self,
        after: Option<&Cursor>,
        limit: u64,
    ) -> Result<Vec<Run>, StoreError> {
        let (at_ms, id) = after.map_or((i64::MIN, ""), |after| (after.created_at_ms, &after.id));
        let sql = "SELECT * FROM runs WHERE message IS NOT NULL AND ended_at_ms IS NOT NULL \
                   AND (queued_at_ms, id) > ($1, $2) ORDER BY queued_at_ms, id LIMIT $3";
        let values = [at_ms.into(), without_nul(id).into(), limit.into()];
        let rows = self.all(sql, values).await?;
        rows.iter().map(Run::of).collect()
    }

    /// Takes note that what a run says is in its thread.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn mark_run_written(&self, id: &str) -> Result<(), StoreError> {
        let sql = "UPDATE runs SET message = NULL WHERE id = $1";
        let values = vec![without_nul(id).into()];
        self.db().execute(false, sql, values, CHANGING).await?;
        Ok(())
    }

    /// Runs that are not over and were not heard of for so long, whoever owns them; those that
    /// were silent longest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn silent_runs(&self, older_than_ms: i64) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT * FROM runs WHERE ended_at_ms IS NULL AND beat_ms < {} - $1 \
             ORDER BY beat_ms, id",
            now_ms(self.db().backend())
        );
        let rows = self.all(&sql, [older_than_ms.into()]).await?;
        rows.iter().map(Run::of).collect()
    }

    /// Sums over the runs of a session; all of them 0 where it has none.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn session_totals(&self, session: &str) -> Result<SessionTotals, StoreError> {
        let sum =
            |of: &str, name: &str| format!("CAST(COALESCE(SUM({of}), 0) AS BIGINT) AS {name}");
        let now = now_ms(self.db().backend());
        let sums = [
            sum("1", "runs"),
            sum("input", "input"),
            sum("cache_read", "cache_read"),
            sum("cache_write", "cache_write"),
            sum("output", "output"),
            sum("reasoning", "reasoning"),
            sum("calls", "calls"),
            sum(
                "CASE WHEN usd IS NULL AND input + cache_read + cache_write + output > 0 \
                 THEN 1 ELSE 0 END",
                "unpriced",
            ),
            // The clock may have been set back.
            sum(
                &format!(
                    "CASE WHEN COALESCE(ended_at_ms, {now}) > started_at_ms \
                     THEN COALESCE(ended_at_ms, {now}) - started_at_ms ELSE 0 END"
                ),
                "wall_ms",
            ),
        ];
        let sql = format!(
            "SELECT {}, SUM(usd) AS usd FROM runs WHERE session_id = $1",
            sums.join(", ")
        );
        let row = self.one(&sql, [without_nul(session).into()]).await?;
        let Some(row) = row else {
            return Ok(SessionTotals::default());
        };
        Ok(SessionTotals {
            runs: number(&row, "runs")?,
            spent: RunUsage::of(&row)?,
            unpriced: number(&row, "unpriced")?,
            wall_ms: number(&row, "wall_ms")?,
        })
    }
}

/// The processes that are gone and whose runs are not all over.
async fn expired_owners(tx: &Transaction<'_>) -> Result<Vec<String>, StoreError> {
    let sql = format!("SELECT DISTINCT owner FROM runs WHERE {INTERRUPTIBLE}");
    let rows = tx.all(&sql, []).await?;
    let owners = rows.iter().map(|row| column(row, "owner"));
    expired_among(tx, owners.collect::<Result<_, StoreError>>()?).await
}

/// Text that both databases take: PostgreSQL's has no NUL, and no id here has.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}
