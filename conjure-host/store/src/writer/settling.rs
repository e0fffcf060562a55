//! Moving recent events to where they are found by their thread.

use super::{PATIENCE, WriterTask, within};
use crate::recent_events;
use crate::sql::DatabaseKind;

/// So many recent rows of each open thread are worth moving: they come to one place in `events`.
const A_THREAD: usize = 16;
/// Recent rows before they are moved, at least. Tests write few.
const LEAST: usize = if cfg!(test) { 8 } else { 1024 };
/// The same, at most: who reads a thread reads all recent rows.
const MOST: usize = if cfg!(test) { 8 } else { 8192 };

impl WriterTask {
    /// How many recent rows there may be.
    pub(super) fn most_recent(&self) -> usize {
        (self.leases.len() * A_THREAD).clamp(LEAST, MOST)
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
        if let Err(error) = within(PATIENCE, SETTLING, settled).await {
            tracing::warn!(%error, "recent events are not moved yet");
        }
        self.recent = 0;
    }
}
