//! A database's file that this user may only read, while others may begin to write it.
//!
//! A file that nobody writes is read as it was left, without the files beside it, which cannot be
//! made. A connection that reads so sees nothing of what somebody writes from then on, or half of it,
//! which looks like damage. So it is looked before each read whether the file is still left alone.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::sqlite::SqlitePool;

use crate::sqlite_file::{DatabaseAccess, for_reading, is_immutable};

/// Reading mode of such a file, and the time since when.
#[derive(Debug)]
pub(crate) struct ReadOnlyFile {
    path: PathBuf,
    /// How long a connection may take to be made.
    connect_timeout: Duration,
    mode: Mutex<ReadMode>,
}

#[derive(Debug, Clone, Copy)]
struct ReadMode {
    is_immutable: bool,
    /// Nothing where it was never read in another way.
    changed_at: Option<Instant>,
}

impl ReadOnlyFile {
    pub(crate) fn new(path: &Path, connecting: Duration) -> Self {
        Self {
            path: path.to_owned(),
            connect_timeout: connecting,
            mode: Mutex::new(ReadMode {
                is_immutable: is_immutable(path),
                changed_at: None,
            }),
        }
    }

    /// Has the next connections read the file as it is to be read now.
    pub(crate) fn refresh(&self, pool: &SqlitePool) {
        let mut reading = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        let is_left_alone = is_immutable(&self.path);
        if reading.is_immutable == is_left_alone {
            return;
        }
        let options = DatabaseAccess::ReadOnly.options(&self.path);
        pool.set_connect_options(for_reading(options.immutable(is_left_alone)));
        *reading = ReadMode {
            is_immutable: is_left_alone,
            changed_at: Some(Instant::now()),
        };
    }

    /// Whether a connection of this age was surely made to read the file as it is read now. One that
    /// was there soon after a change may have begun before it.
    pub(crate) fn is_current(&self, age: Duration) -> bool {
        let reading = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        let made_behind = age.saturating_add(self.connect_timeout);
        reading
            .changed_at
            .is_none_or(|since| made_behind <= since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_may_have_begun_before_a_change_is_not_current() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let dir = tempfile::tempdir().unwrap();
        let mut file = ReadOnlyFile::new(&dir.path().join("conjure.db"), minutes(10));
        assert!(file.is_current(Duration::ZERO), "nothing has changed");
        assert!(file.is_current(minutes(60)), "nothing has changed");
        file.mode.get_mut().unwrap().changed_at = Instant::now().checked_sub(minutes(60));
        assert!(file.is_current(minutes(30)));
        assert!(!file.is_current(minutes(59)), "it came right behind");
        assert!(!file.is_current(minutes(90)), "it was there before");
    }
}
