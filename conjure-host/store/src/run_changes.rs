//! Changes of a run: another state, what it spent, and its end. Who begins, lists or takes runs over
//! is elsewhere.

use std::time::Duration;

use async_recursion::async_recursion as boxed;

use crate::database::now_ms;
use crate::runs::{CHANGING, without_nul};
use crate::sql::Value;
use crate::{RunState, RunUsage, Store, StoreError};

/// The counts of what a run spent, and where their values stand behind its id.
const COUNT_COLUMNS: [(&str, &str); 6] = [
    ("input", "$2"),
    ("cache_read", "$3"),
    ("cache_write", "$4"),
    ("output", "$5"),
    ("reasoning", "$6"),
    ("calls", "$7"),
];

/// New values of a run's columns.
struct RunChange<'a> {
    state: RunState,
    spent: Option<RunUsage>,
    error: Option<&'a str>,
    /// Whether the message is in no thread yet, so that the run keeps it.
    is_unwritten: bool,
    /// How long ago that was.
    age: Duration,
}

impl Store {
    /// Puts a run that is not over into a state, with what it spent so far where that is told.
    /// Whether it was not over.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn update_run(
        &self,
        id: &str,
        state: RunState,
        spent: Option<RunUsage>,
    ) -> Result<bool, StoreError> {
        let change = RunChange {
            spent,
            ..RunChange::now(state, None)
        };
        self.change_run(id, change).await
    }

    /// Ends a run that is not over, with what it spent and why it failed. Whether it was this that
    /// ended it: of two that do so at the same time one is told so.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn end_run(
        &self,
        id: &str,
        end: RunState,
        spent: Option<RunUsage>,
        error: Option<&str>,
    ) -> Result<bool, StoreError> {
        self.end_run_late(id, end, spent, error, Duration::ZERO)
            .await
    }

    /// [`Store::end_run`] for a run that ended so long ago, as one whose end could not be written.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn end_run_late(
        &self,
        id: &str,
        end: RunState,
        spent: Option<RunUsage>,
        error: Option<&str>,
        ago: Duration,
    ) -> Result<bool, StoreError> {
        let change = RunChange {
            spent,
            age: ago,
            ..RunChange::now(end, error)
        };
        self.change_run(id, change).await
    }

    /// Ends a run as failed, so long ago, whose message could not be written to its thread, and
    /// keeps that for [`Store::unwritten_runs`]. Whether it was this that ended it.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn fail_unwritten(
        &self,
        id: &str,
        error: &str,
        ago: Duration,
    ) -> Result<bool, StoreError> {
        let change = RunChange {
            is_unwritten: true,
            age: ago,
            ..RunChange::now(RunState::Failed, Some(error))
        };
        self.change_run(id, change).await
    }

    /// Notes what a run spent whose process is gone, and that this was heard of at `seen_ms`, where
    /// that is later than what was last heard. What is known already never becomes less. A run that
    /// came to its own end stays as it is.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn record_abandoned_usage(
        &self,
        id: &str,
        spent: RunUsage,
        seen_ms: i64,
    ) -> Result<(), StoreError> {
        // Clocks of machines differ: nothing was heard of later than now.
        let now = now_ms(self.db().backend());
        let counts = COUNT_COLUMNS.map(|(name, value)| {
            format!("{name} = CASE WHEN {value} > {name} THEN {value} ELSE {name} END")
        });
        let sql = format!(
            "UPDATE runs SET {}, usd = COALESCE($8, usd), \
             beat_ms = CASE WHEN $9 > beat_ms AND $9 <= {now} THEN $9 ELSE beat_ms END \
             WHERE id = $1 AND (ended_at_ms IS NULL OR state = 'interrupted')",
            counts.join(", ")
        );
        let mut values: Vec<Value> = vec![without_nul(id).into()];
        values.extend(usage_values(spent));
        values.push(seen_ms.into());
        self.db().execute(false, &sql, values, CHANGING).await?;
        Ok(())
    }

    async fn change_run(&self, id: &str, change: RunChange<'_>) -> Result<bool, StoreError> {
        let (sql, values) = change.statement(id, now_ms(self.db().backend()));
        let changed = self.db().execute(false, &sql, values, CHANGING).await?;
        if changed > 0 {
            self.notify_sessions().await;
        }
        Ok(changed > 0)
    }
}

impl<'a> RunChange<'a> {
    fn now(state: RunState, error: Option<&'a str>) -> Self {
        Self {
            state,
            spent: None,
            error,
            is_unwritten: false,
            age: Duration::ZERO,
        }
    }

    /// The SQL statement; `now` is the database's clock as SQL.
    fn statement(self, id: &str, now: &str) -> (String, Vec<Value>) {
        let state = self.state;
        let mut values: Vec<Value> = vec![
            without_nul(id).into(),
            state.as_str().into(),
            self.error.map(without_nul).into(),
        ];
        let mut sql = format!("UPDATE runs SET state = $2, error = $3, beat_ms = {now}");
        if state.is_over() {
            let ago = i64::try_from(self.age.as_millis()).unwrap_or_default();
            sql += &format!(", ended_at_ms = {now} - {ago}, waiting_since_ms = NULL");
        }
        // Of a turn that came to an end it is in the thread, or nobody wants it there.
        let is_kept = self.is_unwritten || matches!(state, RunState::Interrupted | RunState::Lost);
        if state.is_over() && !is_kept {
            sql += ", message = NULL";
        }
        if state == RunState::Running {
            sql += &format!(", started_at_ms = COALESCE(started_at_ms, {now})");
        }
        if let Some(spent) = self.spent {
            sql += ", input = $4, cache_read = $5, cache_write = $6, output = $7, \
                    reasoning = $8, calls = $9, usd = $10";
            values.extend(usage_values(spent));
        }
        sql += " WHERE id = $1 AND ended_at_ms IS NULL";
        (sql, values)
    }
}

/// Values in the order of the columns.
fn usage_values(RunUsage { usage, calls, usd }: RunUsage) -> [Value; 7] {
    [
        usage.input.into(),
        usage.cache_read.into(),
        usage.cache_write.into(),
        usage.output.into(),
        usage.reasoning.into(),
        calls.into(),
        usd.into(),
    ]
}
