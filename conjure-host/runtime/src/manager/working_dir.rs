//! Where a saved session works: saved without links, and the same place at each opening.
//!
//! A plugin that may change what is above the directory can put a link in its place. If the path were
//! resolved at each opening, the next one would work wherever that link leads.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{ManagerError, ManagerState};
use crate::session::recorded_working_dir;
use conjure_config::SessionSpec;
use conjure_core::context::quoted_word;
use conjure_store::{Run, RunFilter, SavedAuth, SavedSession as Row, StoreError};

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
    /// As for [`ManagerState::resolved_dir`].
    pub(super) async fn resolve_working_dir<'a>(
        &self,
        row: &'a Row,
    ) -> Result<Cow<'a, Row>, ManagerError> {
        let Some(real) = self.resolved_dir(row).await? else {
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
                self.notify_saved(&saved);
                Ok(Cow::Owned(saved))
            }
            // The next opening tries it again.
            Err(StoreError::Changed { .. }) => Ok(Cow::Owned(settled)),
            Err(error) => Err(error.into()),
        }
    }

    /// What a saved session is opened with now, for whoever makes something of it ready where it works.
    ///
    /// # Errors
    /// As for [`ManagerState::resolved_dir`], and where the session cannot be opened.
    pub(super) async fn checked_spec(&self, row: &Row) -> Result<SessionSpec, ManagerError> {
        self.resolved_dir(row).await?;
        Ok(self.spec_and_digest(row).await?.0)
    }

    /// Like [`Self::checked_spec`], with the session's saved auth at hand.
    ///
    /// # Errors
    /// As for [`ManagerState::checked_spec`].
    pub(super) async fn checked_spec_with_auth(
        &self,
        row: &Row,
        auth: &SavedAuth,
    ) -> Result<SessionSpec, ManagerError> {
        self.resolved_dir(row).await?;
        self.spec_with(row, auth)
    }

    /// Where a session works without links, if it was saved with links and is where its thread was open last;
    /// nothing where it is as it was saved.
    ///
    /// # Errors
    /// [`ManagerError::Conflict`] where a link leads elsewhere by now, and the store's.
    async fn resolved_dir(&self, row: &Row) -> Result<Option<PathBuf>, ManagerError> {
        let saved = Path::new(&row.working_dir);
        // What is not there is told where it is opened.
        let Ok(real) = saved.canonicalize() else {
            return Ok(None);
        };
        if real.as_path() == saved {
            return Ok(None);
        }
        match Box::pin(self.last_working_dir(row)).await? {
            // Nothing of it could have put a link in the place of its directory.
            LastWorkingDir::NeverRan => Ok(Some(real)),
            LastWorkingDir::Dir(before) if before == real => Ok(Some(real)),
            LastWorkingDir::Dir(_) | LastWorkingDir::Unknown => Err(link_changed_error(row, &real)),
        }
    }

    /// Where the session worked last.
    async fn last_working_dir(&self, row: &Row) -> Result<LastWorkingDir, ManagerError> {
        let runs = self
            .store
            .runs(RunFilter::Session(&row.id), None, NEWEST_RUNS);
        let mut runs = runs.await?;
        // The one that is about to begin has not.
        runs.retain(|run| run.started_at_ms.is_some());
        let Some(newest) = runs.first() else {
            return Ok(LastWorkingDir::NeverRan);
        };
        let mut seen = BTreeSet::new();
        for run in runs.iter().filter(|run| seen.insert(&run.thread)) {
            let of_thread = self.store.runs(RunFilter::Started(&run.thread), None, 1);
            let is_own = |last: &Run| last.session_id.as_deref() == Some(row.id.as_str());
            // What a thread tells is of the session that had it last.
            if !of_thread.await?.first().is_some_and(is_own) {
                continue;
            }
            let told = self
                .store
                .newest_settings(std::slice::from_ref(&run.thread));
            let told = told.await?;
            let place = told.get(&run.thread).and_then(recorded_working_dir);
            return Ok(place.map_or(LastWorkingDir::Unknown, LastWorkingDir::Dir));
        }
        tracing::debug!(run = newest.id, "where its session worked is not known");
        Ok(LastWorkingDir::Unknown)
    }
}

/// Where a session worked last, without links.
enum LastWorkingDir {
    /// The session has not run.
    NeverRan,
    Dir(PathBuf),
    /// The session ran, and nothing tells any more where.
    Unknown,
}

fn link_changed_error(row: &Row, real: &Path) -> ManagerError {
    let (saved, real) = (&row.working_dir, real.display().to_string());
    let session = quoted_word(row.name.as_ref().unwrap_or(&row.id));
    let word = quoted_word(&real);
    ManagerError::Conflict {
        message: format!(
            "`{saved}`, where this session is to work, leads to `{real}` by now: a link is there or on the \
             way to it, which may be somebody else's; put the directory back, or, if the session is to work \
             there, say so: `conjure session set {session} --working-dir {word}`"
        ),
    }
}
