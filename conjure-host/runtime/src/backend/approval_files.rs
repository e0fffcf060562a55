//! Whether somebody has approved what a session holds. Whoever approves may be another process.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use conjure_config::fs;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// How often a session looks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A file that says what was approved, and when it was changed last before it was read.
pub(super) type FileVersion = (PathBuf, Option<SystemTime>);

/// The files that say what was approved of the tools that a session holds.
#[derive(Debug, Default)]
pub(super) struct ApprovalFiles {
    files: Vec<FileVersion>,
    poll: Option<Interval>,
}

impl ApprovalFiles {
    pub(super) fn follow(&mut self, files: Vec<FileVersion>) {
        self.files = files;
        if self.files.is_empty() {
            self.poll = None;
        }
    }

    /// Waits until one of them is another one. Safe to drop and call again.
    pub(super) async fn changed(&mut self) {
        if self.files.is_empty() {
            return std::future::pending().await;
        }
        let look = self.poll.get_or_insert_with(|| {
            let mut look = tokio::time::interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            look
        });
        loop {
            look.tick().await;
            let is_same = |(file, then): &FileVersion| fs::changed_at(file) == *then;
            if !self.files.iter().all(is_same) {
                return;
            }
        }
    }
}
