//! The ledger of tool calls: what became of each, kept in the transactions that write the entries.

use async_recursion::async_recursion as boxed;

use crate::lineage::VisibleEntries;
use crate::row::{column, number, text};
use crate::sql::DatabaseRow;
use crate::{Store, StoreError, ThreadId};

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Id of the call in the thread. Where a model gave an id twice, the newest call has it.
    pub call_id: String,
    /// State of the call.
    pub state: CallState,
    /// The backend instance that runs it; nothing when it never ran.
    pub backend: Option<String>,
    /// The plugin and its version.
    pub plugin: Option<String>,
    /// The entry that began it, or ended what never began.
    pub entry_seq: u64,
    /// The entry that ended it.
    pub ended_seq: Option<u64>,
    /// When it began, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// When it ended, in milliseconds since 1970.
    pub ended_at_ms: Option<i64>,
    /// From start to result, in milliseconds.
    pub duration_ms: u64,
}

/// State of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallState {
    /// The call began; no result is known.
    Running,
    /// The call ran and gave a result.
    Done,
    /// The call failed.
    Failed,
    /// The call never ran.
    Refused,
    /// The call was cancelled.
    Cancelled,
    /// The call exceeded its time limit and was ended.
    TimedOut,
    /// The call began and its result was never seen.
    Indeterminate,
}

impl CallState {
    const ALL: [Self; 7] = [
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Refused,
        Self::Cancelled,
        Self::TimedOut,
        Self::Indeterminate,
    ];

    /// A word for programs, such as `timed_out`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Indeterminate => "indeterminate",
        }
    }
}

impl Store {
    /// The calls of what a thread shows, in the order in which they began.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn tool_calls(&self, thread: &ThreadId) -> Result<Vec<ToolCall>, StoreError> {
        let tx = self.db().snapshot("read the ledger").await?;
        let shown = VisibleEntries::read(&tx, thread).await?;
        let sql = "SELECT * FROM tool_calls WHERE thread_id = $1 AND entry_seq > $2 \
                   AND entry_seq <= $3 ORDER BY entry_seq";
        let rows = shown.rows(&tx, sql).await?;
        rows.iter().map(ToolCall::of).collect()
    }
}

impl ToolCall {
    fn of(row: &DatabaseRow) -> Result<Self, StoreError> {
        let call_id: String = column(row, "call_id")?;
        let state: String = column(row, "state")?;
        let known = CallState::ALL.into_iter().find(|s| s.as_str() == state);
        let ended: Option<i64> = column(row, "ended_seq")?;
        Ok(Self {
            state: known.ok_or_else(|| StoreError::Corrupt {
                what: "read the ledger",
                reason: format!("the state of call {call_id} is `{state}`"),
            })?,
            call_id,
            backend: text(row, "backend")?,
            plugin: text(row, "plugin")?,
            entry_seq: number(row, "entry_seq")?,
            ended_seq: ended.and_then(|seq| u64::try_from(seq).ok()),
            started_at_ms: column(row, "started_at_ms")?,
            ended_at_ms: column(row, "ended_at_ms")?,
            duration_ms: number(row, "duration_ms")?,
        })
    }
}
