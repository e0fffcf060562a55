//! Moving recent events to where they are found by their thread.

use super::{WRITE_TIMEOUT, WriterTask, with_timeout};
use crate::recent_events;
use crate::sql::DatabaseKind;

/// Recent rows of each open thread that are worth moving: they come to one place in `events`.
const ROWS_PER_THREAD: usize = 16;
/// Recent rows before they are moved, at least. Tests write few.
const MIN_RECENT_ROWS: usize = if cfg!(test) { 8 } else { 1024 };
/// Recent rows, at most: who reads a thread reads all recent rows.
const MAX_RECENT_ROWS: usize = if cfg!(test) { 8 } else { 8192 };

impl WriterTask {
    /// Maximum number of recent rows.
    pub(super) fn max_recent_rows(&self) -> usize {
        (self.leases.len() * ROWS_PER_THREAD).clamp(MIN_RECENT_ROWS, MAX_RECENT_ROWS)
    }

    /// Moves recent events, also those of processes that were killed. Where that fails they are as
    /// good where they are, and it is tried again later.
    pub(super) async fn settle(&mut self) {
        if self.db.backend() != DatabaseKind::Sqlite {
            return;
        }
        const SETTLING: &str = "move recent events";
        let settled = async {
            let tx = self.db.begin_ahead(false, SETTLING).await?;
            recent_events::settle(&tx).await?;
            tx.commit().await
        };
        if let Err(error) = with_timeout(WRITE_TIMEOUT, SETTLING, settled).await {
            tracing::warn!(%error, "recent events are not moved yet");
        }
        self.recent_rows = 0;
    }
}
