//! The labels of threads: given by people, or by the host to a thread that has none.

use std::collections::HashSet;

use async_recursion::async_recursion as boxed;
use conjure_core::label::numbered;

use crate::database::{Transaction, for_update, now_ms, placeholders};
use crate::row::column;
use crate::sql::Value;
use crate::{Store, StoreError, ThreadId};

/// After so many threads of one name the number says nothing any more.
const MAX_NUMBERED: usize = 1 << 20;
/// Labels that one statement looks for: always as many, so that there is one statement to keep.
const BATCH: usize = 32;

impl Store {
    /// Gives a thread a label. Earlier ones are kept as its history; the newest is shown.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn rename_thread(&self, thread: &ThreadId, label: &str) -> Result<(), StoreError> {
        let tx = self.db().begin(false, "name the thread").await?;
        name(&tx, thread, label).await?;
        tx.commit().await?;
        self.notify_marked(thread);
        Ok(())
    }

    /// Gives a thread that has no label this one, with a number from 2 on where another thread has
    /// it: one that is free, and the next one where no number before it is free.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn name_if_nameless(&self, thread: &ThreadId, label: &str) -> Result<(), StoreError> {
        let tx = self.db().begin(false, "name the thread").await?;
        let sql = format!(
            "SELECT thread_label FROM threads WHERE id = $1 AND removed = FALSE{}",
            for_update(tx.backend())
        );
        let row = tx.one(&sql, [thread.as_str().into()]).await?;
        let row = row.ok_or_else(|| StoreError::NoThread {
            thread: thread.clone(),
        })?;
        if !column::<String>(&row, "thread_label")?.is_empty() {
            return Ok(());
        }
        let free = available_label(&tx, label).await?;
        name(&tx, thread, &free).await?;
        tx.commit().await?;
        self.notify_marked(thread);
        Ok(())
    }

    /// A thread's labels with their times in milliseconds since 1970, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn thread_labels(&self, thread: &ThreadId) -> Result<Vec<(i64, String)>, StoreError> {
        let sql = "SELECT at_ms, label FROM thread_labels WHERE thread_id = $1 ORDER BY number";
        let rows = self.all(sql, [thread.as_str().into()]).await?;
        rows.iter()
            .map(|row| Ok((column(row, "at_ms")?, column(row, "label")?)))
            .collect()
    }
}

/// The label, or the label with a number that no thread has. Threads that nobody names by hand are
/// often of one name, so the numbers are not tried one after the other.
async fn available_label(tx: &Transaction<'_>, label: &str) -> Result<String, StoreError> {
    let labelled = |number| match number {
        1 => label.replace('\0', ""),
        number => numbered(label, number).replace('\0', ""),
    };
    let sql = format!(
        "SELECT DISTINCT thread_label FROM threads WHERE thread_label IN ({}) AND removed = FALSE",
        placeholders(1, BATCH)
    );
    let (mut taken, mut free) = (0, MAX_NUMBERED);
    let mut asked: Vec<usize> = (0..).map(|power| 1 << power).take(BATCH).collect();
    asked.retain(|number| *number < free);
    while !asked.is_empty() {
        let labels: Vec<String> = asked.iter().copied().map(labelled).collect();
        let values = labels.iter().cycle().take(BATCH);
        let values = values.map(|label| Value::from(label.as_str()));
        let rows = tx.all(&sql, values).await?;
        let found: Result<HashSet<String>, StoreError> =
            rows.iter().map(|row| column(row, "thread_label")).collect();
        let found = found?;
        let held = labels
            .iter()
            .take_while(|label| found.contains(*label))
            .count();
        if let Some(last) = held.checked_sub(1).and_then(|at| asked.get(at)) {
            taken = *last;
        }
        if let Some(next) = asked.get(held) {
            free = *next;
        }
        let step = (free - taken).div_ceil(BATCH);
        asked = (taken + step..free).step_by(step).collect();
    }
    Ok(labelled(free))
}

pub(crate) async fn name(
    tx: &Transaction<'_>,
    thread: &ThreadId,
    label: &str,
) -> Result<(), StoreError> {
    let label = label.replace('\0', "");
    let values = [label.as_str().into(), thread.as_str().into()];
    let sql = "UPDATE threads SET thread_label = $1 WHERE id = $2 AND removed = FALSE";
    if tx.execute(sql, values).await? == 0 {
        return Err(StoreError::NoThread {
            thread: thread.clone(),
        });
    }
    let sql = format!(
        "INSERT INTO thread_labels (thread_id, number, label, at_ms) VALUES ($1, \
         (SELECT COALESCE(MAX(number), 0) + 1 FROM thread_labels WHERE thread_id = $1), $2, {})",
        now_ms(tx.backend())
    );
    tx.execute(&sql, [thread.as_str().into(), label.into()])
        .await?;
    tx.notify_threads(std::iter::once(thread)).await
}
