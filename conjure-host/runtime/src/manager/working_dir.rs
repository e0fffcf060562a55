//! Where a saved session works: saved without links, and the same place at each opening.
//!
//! A plugin that may change what is above the directory can put a link in its place. If the path were
//! resolved at each opening, the next one would work wherever that link leads.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::{ManagerError, ManagerState};
use crate::session::recorded_working_dir;
use conjure_store::{RunsOf, SavedSession as Row, StoreError, ThreadId};

/// In how many of its newest turns it is looked up where a session worked.
const NEWEST_RUNS: u64 = 50;

/// A working directory without links, which must be there.
pub(super) fn directory(dir: &Path) -> Result<String, ManagerError> {
    let wrong = |why: &str| ManagerError::Invalid {
        field: Some("working_dir"),
        message: format!(
            "the working directory `{}` cannot be used: {why}",
            dir.display()
        ),
    };
    if !dir.is_absolute() {
        return Err(wrong("it is no absolute path"));
    }
    match conjure_config::fs::is_dir(dir) {
        Ok(true) => {}
        Ok(false) => return Err(wrong("it is no directory")),
        Err(error) => return Err(wrong(&error.to_string())),
    }
    let real = dir.canonicalize();
    let real = real.map_err(|error| wrong(&error.to_string()))?;
    Ok(real.display().to_string())
}

/// The working directory of a session that is changed. One that is named as it is saved stays as it is: who
/// sends all settings back to change another one does not agree to a link that came since.
pub(super) fn changed_directory(saved: &str, dir: &Path) -> Result<String, ManagerError> {
    let real = directory(dir)?;
    Ok(match dir == Path::new(saved) {
        true => saved.to_owned(),
        false => real,
    })
}

impl ManagerState {
    /// A session that is about to be opened, if it still works where it did. Of one that an older version
    /// saved, with links in the path, the directory is saved without them, once.
    ///
    /// # Errors
    /// As for [`ManagerState::place_of`].
    pub(super) async fn settled<'a>(&self, row: &'a Row) -> Result<Cow<'a, Row>, ManagerError> {
        let Some(real) = self.place_of(row).await? else {
            return Ok(Cow::Borrowed(row));
        };
        let settled = Row {
            working_dir: real.display().to_string(),
            ..row.clone()
        };
        // Behind pointers, here and below: it is seldom awaited, and every opening would have it in its future.
        let updated = Box::pin(self.store.update_session(settled.clone()));
        match updated.await {
            Ok(saved) => {
                self.tell_saved(&saved);
                Ok(Cow::Owned(saved))
            }
            // The next opening tries it again.
            Err(StoreError::Changed { .. }) => Ok(Cow::Owned(settled)),
            Err(error) => Err(error.into()),
        }
    }

    /// Where a session works without links, if it was saved with links and is where its thread was open last;
    /// nothing where it is as it was saved.
    ///
    /// # Errors
    /// [`ManagerError::Conflict`] where a link leads elsewhere by now, and the store's.
    pub(super) async fn place_of(&self, row: &Row) -> Result<Option<PathBuf>, ManagerError> {
        let saved = Path::new(&row.working_dir);
        // What is not there is told where it is opened.
        let Ok(real) = saved.canonicalize() else {
            return Ok(None);
        };
        if real.as_path() == saved {
            return Ok(None);
        }
        match Box::pin(self.worked_in(row)).await? {
            Some(before) if before != real => Err(exchanged(row, &real)),
            // Nothing of this session has run there that could have put a link in its place.
            _ => Ok(Some(real)),
        }
    }

    /// Where the session's threads were open last, without links; nothing where none was.
    async fn worked_in(&self, row: &Row) -> Result<Option<PathBuf>, ManagerError> {
        let runs = self.store.runs(RunsOf::Session(&row.id), None, NEWEST_RUNS);
        let runs = runs.await?;
        let mut threads: Vec<ThreadId> = runs.into_iter().map(|run| run.thread).collect();
        if let Some(thread) = row.chat_thread_id.as_deref() {
            threads.push(ThreadId::parse(thread)?);
        }
        threads.sort_unstable();
        threads.dedup();
        let newest = self.store.newest_settings(&threads).await?;
        let newest = newest.values().max_by_key(|entry| entry.at_ms);
        Ok(newest.and_then(recorded_working_dir))
    }
}

fn exchanged(row: &Row, real: &Path) -> ManagerError {
    let (saved, real) = (&row.working_dir, real.display());
    let session = row.name.as_ref().unwrap_or(&row.id);
    ManagerError::Conflict {
        message: format!(
            "`{saved}`, where this session is to work, leads to `{real}` by now: a link is there or on the \
             way to it, which may be somebody else's; put the directory back, or, if the session is to work \
             there, say so: `conjure session set {session} --working-dir {real}`"
        ),
    }
}
