//! The marks of threads: what a person sees of one beside its entries, its label and up to where it
//! was cleared. Says which threads this process marks, and reads the marks of some; what other
//! processes do is told by `signals.rs`.

use async_recursion::async_recursion as boxed;
use tokio::sync::broadcast;

use crate::database::placeholders;
use crate::row::{column, number};
use crate::sql::Value;
use crate::{Store, StoreError, ThreadId};

/// Threads that one may be behind before some are missed.
pub(crate) const CHANNEL_CAPACITY: usize = 1024;
/// Threads that one statement reads: always as many, so that there is one statement to keep.
const BATCH: usize = 32;

/// State of a thread in a list, beside its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadMark {
    /// The newest label; empty where it has none.
    pub label: String,
    /// The last entry that was deleted when it was cleared; 0 where it never was.
    pub cleared_upto: u64,
}

/// Threads that this process named, cleared or removed, while this value lives.
pub struct MarkedThreads(broadcast::Receiver<ThreadId>);

/// Word of a thread that was named, cleared or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkedThread {
    /// The thread that was named, cleared or removed.
    Thread(ThreadId),
    /// Threads that are not known: more changed than are kept for whoever asks.
    Missed,
}

impl MarkedThreads {
    /// The next one; nothing when the store is gone. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<MarkedThread> {
        match self.0.recv().await {
            Ok(thread) => Some(MarkedThread::Thread(thread)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(MarkedThread::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Store {
    /// The threads that this process names, clears or removes, from now on.
    pub fn marked_threads(&self) -> MarkedThreads {
        MarkedThreads(self.db().marked_threads.subscribe())
    }

    /// Tells of one.
    pub(crate) fn notify_marked(&self, thread: &ThreadId) {
        // Nobody need follow.
        let _ = self.db().marked_threads.send(thread.clone());
    }

    /// The marks of these threads. One that was removed has none.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn thread_marks(
        &self,
        threads: &[ThreadId],
    ) -> Result<Vec<(ThreadId, ThreadMark)>, StoreError> {
        let sql = format!(
            "SELECT id, thread_label, cleared_upto FROM threads WHERE id IN ({}) \
             AND removed = FALSE",
            placeholders(1, BATCH)
        );
        let mut marks = Vec::new();
        for some in threads.chunks(BATCH) {
            let values = some.iter().cycle().take(BATCH);
            let values = values.map(|thread| Value::from(thread.as_str()));
            for row in self.all(&sql, values).await? {
                let mark = ThreadMark {
                    label: column(&row, "thread_label")?,
                    cleared_upto: number(&row, "cleared_upto")?,
                };
                marks.push((ThreadId::stored(column(&row, "id")?), mark));
            }
        }
        Ok(marks)
    }
}
