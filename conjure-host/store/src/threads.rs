//! Threads: making, forking, naming and listing them.

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{EventId, Usage};

use crate::database::{for_update, now_ms};
use crate::labels::name;
use crate::lineage::VisibleEntries;
use crate::row::{column, number, text};
use crate::sql::{DatabaseRow, Value};
use crate::{Store, StoreError, ThreadId};

/// A thread, as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// Id of the thread.
    pub id: ThreadId,
    /// The thread that it was forked from.
    pub parent: Option<ThreadId>,
    /// The entry behind which it was forked; 0 on a thread that is no fork.
    pub fork_from_seq: u64,
    /// Newest label of the thread; empty where it has none.
    pub label: String,
    /// Entries up to this one were cleared; 0 where none were.
    pub cleared_upto: u64,
    /// Number of times that the thread was opened.
    pub epoch: u64,
    /// The newest entry, its ancestors' included; 0 before the first.
    pub last_seq: u64,
    /// The newest turn, counted from 1; 0 before the first.
    pub last_turn: u64,
    /// Whether some process has it open, as far as the database knows.
    pub is_open: bool,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it last grew, in milliseconds since 1970.
    pub updated_at_ms: i64,
    /// What the replies among its own entries came to, those that were cleared included.
    pub totals: Totals,
    /// What the newest cost event says of all that it shows; JSON of `TurnCost`.
    pub cost: Option<String>,
}

/// Sums over the replies of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Number of replies.
    pub replies: u64,
    /// Tokens of the replies.
    pub usage: Usage,
    /// Time of the replies from request to end, in milliseconds.
    pub latency_ms: u64,
}

/// Position at which a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// When the last thread on the page before was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Id of that thread.
    pub id: String,
}

/// Threads that are looked through at once.
const PAGE_THREADS: u64 = 200;

pub(crate) const COLUMNS: &str = "id, parent_thread_id, fork_from_seq, thread_label, cleared_upto, epoch, \
                       last_seq, last_turn, owner, created_at_ms, updated_at_ms, replies, input, \
                       cache_read, cache_write, output, reasoning, latency_ms, cost";

impl Store {
    /// A thread.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn thread(&self, thread: &ThreadId) -> Result<Thread, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM threads WHERE id = $1 AND removed = FALSE");
        let row = self.one(&sql, [thread.as_str().into()]).await?;
        row.as_ref()
            .map(Thread::of)
            .transpose()?
            .ok_or_else(|| StoreError::NoThread {
                thread: thread.clone(),
            })
    }

    /// A page of all threads, the newest first, at most `limit` of them.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn thread_page(
        &self,
        after: Option<&Cursor>,
        limit: u64,
    ) -> Result<Vec<Thread>, StoreError> {
        let (at_ms, id) = after.map_or((i64::MAX, ""), |after| (after.created_at_ms, &after.id));
        let sql = format!(
            "SELECT {COLUMNS} FROM threads WHERE (created_at_ms, id) < ($1, $2) \
             AND removed = FALSE ORDER BY created_at_ms DESC, id DESC LIMIT $3"
        );
        let rows = self
            .all(
                &sql,
                [at_ms.into(), id.replace('\0', "").into(), limit.into()],
            )
            .await?;
        rows.iter().map(Thread::of).collect()
    }

    /// At most `limit` threads in which something was said, the one that grew last first, whenever it
    /// was made. One that only tells the settings with which it was opened is none of them.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn latest_threads(&self, limit: u64) -> Result<Vec<Thread>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM threads WHERE removed = FALSE AND last_turn > 0 \
             ORDER BY updated_at_ms DESC, id DESC LIMIT $1"
        );
        let rows = self.all(&sql, [limit.into()]).await?;
        rows.iter().map(Thread::of).collect()
    }

    /// A page of the threads whose label contains a text, in upper or lower case; the newest first,
    /// at most `limit` of them.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn threads_named(
        &self,
        text: &str,
        after: Option<&Cursor>,
        limit: u64,
    ) -> Result<Vec<Thread>, StoreError> {
        let wanted = text.to_lowercase();
        let sql = format!(
            "SELECT {COLUMNS} FROM threads WHERE (created_at_ms, id) < ($1, $2) \
             AND removed = FALSE AND LOWER(thread_label) LIKE $3 ESCAPE '!' \
             ORDER BY created_at_ms DESC, id DESC LIMIT $4"
        );
        let mut after = after.cloned();
        let mut found = Vec::new();
        loop {
            let (at_ms, id) = match &after {
                Some(after) => (after.created_at_ms, after.id.replace('\0', "")),
                None => (i64::MAX, String::new()),
            };
            // A pattern may fit far more than the text.
            let page = limit.max(PAGE_THREADS);
            let values = [
                at_ms.into(),
                id.into(),
                pattern(&wanted).into(),
                page.into(),
            ];
            let rows = self.all(&sql, values).await?;
            for row in &rows {
                let thread = Thread::of(row)?;
                after = Some(thread.cursor());
                // The database's own small letters may be those of ASCII only.
                if thread.label.to_lowercase().contains(&wanted) {
                    found.push(thread);
                    if found.len() as u64 >= limit {
                        return Ok(found);
                    }
                }
            }
            if (rows.len() as u64) < page {
                return Ok(found);
            }
        }
    }

    /// The forks of a thread, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn forks(&self, thread: &ThreadId) -> Result<Vec<Thread>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM threads WHERE parent_thread_id = $1 \
             AND removed = FALSE ORDER BY created_at_ms, id"
        );
        let rows = self.all(&sql, [thread.as_str().into()]).await?;
        rows.iter().map(Thread::of).collect()
    }

    /// The forks, and their forks, that go on showing text of a thread when it is cleared.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn forks_keeping(&self, thread: &ThreadId) -> Result<Vec<Thread>, StoreError> {
        let sql = format!(
            "WITH RECURSIVE below (fork, upto) AS (\
                 SELECT id, fork_from_seq FROM threads WHERE parent_thread_id = $1 \
                 UNION ALL \
                 SELECT t.id, \
                     CASE WHEN t.fork_from_seq < b.upto THEN t.fork_from_seq ELSE b.upto END \
                 FROM threads t JOIN below b ON t.parent_thread_id = b.fork\
             ) SELECT {COLUMNS} FROM threads JOIN below ON id = fork \
             WHERE upto > fork_floor AND upto > cleared_upto AND removed = FALSE \
             ORDER BY created_at_ms, id"
        );
        let rows = self.all(&sql, [thread.as_str().into()]).await?;
        rows.iter().map(Thread::of).collect()
    }

    /// Makes an empty thread.
    ///
    /// # Errors
    /// [`StoreError::ThreadExists`], and what the database says.
    #[boxed]
    pub async fn create_thread(&self, thread: &ThreadId, label: &str) -> Result<(), StoreError> {
        let tx = self.db().begin(false, "make the thread").await?;
        let sql = format!(
            "INSERT INTO threads (id, created_at_ms, updated_at_ms) VALUES ($1, {now}, {now}) \
             ON CONFLICT (id) DO NOTHING",
            now = now_ms(tx.backend())
        );
        if tx.execute(&sql, [thread.as_str().into()]).await? == 0 {
            return Err(StoreError::ThreadExists {
                thread: thread.clone(),
            });
        }
        if !label.is_empty() {
            name(&tx, thread, label).await?;
        }
        tx.commit().await
    }

    /// Makes `fork`, which goes on behind the entry `from` of `thread` and copies nothing. It
    /// keeps what it shows when `thread` is cleared later.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], [`StoreError::NoEntry`] when `thread` does not show that entry,
    /// [`StoreError::ThreadExists`], and what the database says.
    #[boxed]
    pub async fn fork(
        &self,
        thread: &ThreadId,
        from: u64,
        fork: &ThreadId,
    ) -> Result<(), StoreError> {
        let tx = self.db().begin(false, "fork the thread").await?;
        let sql = format!(
            "SELECT fork_floor, cleared_upto, last_seq, last_turn FROM threads WHERE id = $1 \
             AND removed = FALSE{}",
            for_update(tx.backend())
        );
        let row = tx.one(&sql, [thread.as_str().into()]).await?;
        let row = row.ok_or_else(|| StoreError::NoThread {
            thread: thread.clone(),
        })?;
        let floor = number(&row, "fork_floor")?.max(number(&row, "cleared_upto")?);
        let last = number(&row, "last_seq")?;
        if from <= floor || from > last {
            return Err(StoreError::NoEntry {
                thread: thread.clone(),
                seq: from,
                first: floor + 1,
                last,
            });
        }
        let shown = VisibleEntries::read(tx.inner(), thread).await?;
        let turn = shown.turn_of(tx.inner(), from).await?;
        let sql = format!(
            "INSERT INTO threads (id, parent_thread_id, fork_from_seq, fork_floor, last_seq, \
             last_turn, created_at_ms, updated_at_ms) VALUES ($1, $2, $3, $4, $3, $5, {now}, {now}) \
             ON CONFLICT (id) DO NOTHING",
            now = now_ms(tx.backend())
        );
        let values: [Value; 5] = [
            fork.as_str().into(),
            thread.as_str().into(),
            from.into(),
            floor.into(),
            turn.into(),
        ];
        if tx.execute(&sql, values).await? == 0 {
            return Err(StoreError::ThreadExists {
                thread: fork.clone(),
            });
        }
        tx.commit().await
    }
}

impl Thread {
    pub(crate) fn of(row: &DatabaseRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: ThreadId::stored(column(row, "id")?),
            parent: text(row, "parent_thread_id")?.map(ThreadId::stored),
            fork_from_seq: number(row, "fork_from_seq")?,
            label: column(row, "thread_label")?,
            cleared_upto: number(row, "cleared_upto")?,
            epoch: number(row, "epoch")?,
            last_seq: number(row, "last_seq")?,
            last_turn: number(row, "last_turn")?,
            is_open: text(row, "owner")?.is_some(),
            created_at_ms: column(row, "created_at_ms")?,
            updated_at_ms: column(row, "updated_at_ms")?,
            totals: Totals {
                replies: number(row, "replies")?,
                usage: Usage {
                    input: number(row, "input")?,
                    cache_read: number(row, "cache_read")?,
                    cache_write: number(row, "cache_write")?,
                    output: number(row, "output")?,
                    reasoning: number(row, "reasoning")?,
                },
                latency_ms: number(row, "latency_ms")?,
            },
            cost: text(row, "cost")?,
        })
    }

    /// The event behind which there is only what may still go on: what came before the thread was
    /// opened, or all of one that nobody has open. Nothing where that is no event at all.
    pub fn history_end(&self) -> Option<EventId> {
        let epoch = match self.is_open {
            true => self.epoch.checked_sub(1),
            false => Some(self.epoch),
        };
        let seq = u64::MAX;
        epoch.map(|epoch| EventId { epoch, seq })
    }

    /// Cursor of a list that goes on behind this thread.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            created_at_ms: self.created_at_ms,
            id: self.id.to_string(),
        }
    }
}

/// A pattern that every label with this text fits, and few others: where databases differ about
/// letters it takes any.
fn pattern(text: &str) -> String {
    let mut pattern = "%".to_owned();
    for c in text.chars() {
        match c {
            '%' | '_' | '!' => pattern.extend(['!', c]),
            c if c.is_ascii() && c != '\0' => pattern.push(c),
            _ if pattern.ends_with('%') && !pattern.ends_with("!%") => {}
            _ => pattern.push('%'),
        }
    }
    if !pattern.ends_with('%') || pattern.ends_with("!%") {
        pattern.push('%');
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn a_pattern_takes_signs_as_they_are_and_letters_of_others_as_any() {
        for (text, expected) in [
            ("plan", "%plan%"),
            ("50%_!", "%50!%!_!!%"),
            ("100%", "%100!%%"),
            ("größe", "%gr%e%"),
            ("öä", "%"),
            ("", "%"),
        ] {
            assert_eq!(pattern(text), expected, "{text}");
        }
    }
}
