//! What was changed about installed plugins: a line for each change, which stays, and the builds that
//! can be put back.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use conjure_config::fs;

use super::installed_build::BuildForm;
use super::{InstallAction, InstallChange, InstallError, InstalledPlugins, Sha256};

/// Changes of one plugin whose builds are kept.
const MAX_KEPT_CHANGES: usize = 10;
/// Changes that are taken back at once are no changes, and cost no build.
const MAX_UNDONE_CHANGES: usize = 2;

impl InstalledPlugins {
    /// What was changed, the oldest first: of one plugin, or of all.
    ///
    /// # Errors
    /// The system's.
    pub fn history(&self, name: Option<&str>) -> Result<Vec<InstallChange>, InstallError> {
        let text = match fs::read_to_string(self.history.join("history.jsonl")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let lines = text.lines();
        // A line that was cut by a crash says nothing.
        let changes = lines.filter_map(|line| serde_json::from_str::<InstallChange>(line).ok());
        let is_meant = |change: &InstallChange| name.is_none_or(|name| change.plugin == name);
        Ok(changes.filter(is_meant).collect())
    }

    /// The history, at its end. What a crash left of a line ends there.
    pub(super) fn open_history(&self) -> Result<std::fs::File, InstallError> {
        use std::io::Write as _;
        let path = self.history.join("history.jsonl");
        let length = fs::size(&path).unwrap_or_default();
        let last = match length.checked_sub(1) {
            Some(last) => fs::read_range(&path, last, 1)?,
            None => Vec::new(),
        };
        let mut history = fs::append_to(path)?;
        if last.first().is_some_and(|byte| *byte != b'\n') {
            history.write_all(b"\n")?;
        }
        Ok(history)
    }

    /// Removes kept libraries that only older changes name.
    pub(super) fn sweep(&self, name: &str) -> Result<(), InstallError> {
        let own = self.history(Some(name))?;
        let (old, new) = own.split_at(
            own.len()
                .saturating_sub(MAX_KEPT_CHANGES + MAX_UNDONE_CHANGES),
        );
        let others = self.history(None)?;
        let others: Vec<_> = others
            .into_iter()
            .filter(|one| one.plugin != name)
            .collect();
        let needed: HashSet<Sha256> = &builds(new) | &builds(&others);
        for gone in builds(old).difference(&needed) {
            fs::remove_file(self.backup_path(gone));
        }
        Ok(())
    }

    /// Takes back what a change did, as if it had not been made: the history knows nothing of it.
    /// Nothing is done, and `false` the answer, where somebody has changed the plugin since.
    ///
    /// # Errors
    /// [`InstallError::Altered`], and the system's.
    pub fn undo(&self, change: &InstallChange) -> Result<bool, InstallError> {
        let _lock = self.lock_changes()?;
        let name = &change.plugin;
        let current = self.build(name)?;
        let there = current.as_ref().map(|current| current.sha256);
        let put = change.to.as_ref().map(|to| to.sha256);
        if there != put || self.history(Some(name))?.last() != Some(change) {
            return Ok(false);
        }
        let back = match &change.from {
            Some(from) => self.restore(name, current.as_ref(), from)?,
            None => self.replace(InstallAction::Remove, name, current.as_ref(), None)?,
        };
        self.forget(&[change, &back])?;
        Ok(true)
    }

    /// Removes changes that came to nothing from the history, and the builds that only they name.
    fn forget(&self, changes: &[&InstallChange]) -> Result<(), InstallError> {
        let all = self.history(None)?;
        let (gone, left): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| changes.contains(&one));
        let mut text = String::new();
        for change in &left {
            text.push_str(&serde_json::to_string(change).map_err(io::Error::other)?);
            text.push('\n');
        }
        fs::write_atomic(self.history.join("history.jsonl"), text.as_bytes())?;
        for build in builds(&gone).difference(&builds(&left)) {
            fs::remove_file(self.backup_path(build));
        }
        Ok(())
    }

    /// Where a build is kept, if it is.
    pub(super) fn backup_path(&self, sha256: &Sha256) -> PathBuf {
        let others = [BuildForm::Program, BuildForm::Skill].into_iter();
        let mut others = others.map(|form| self.backup_path_as(sha256, form));
        let other = others.find(|path| path.is_file());
        other.unwrap_or_else(|| self.backup_path_as(sha256, BuildForm::Library))
    }

    pub(super) fn backup_path_as(&self, sha256: &Sha256, form: BuildForm) -> PathBuf {
        self.history.join(format!("{sha256}.{}", form.extension()))
    }
}

/// The builds that changes name.
fn builds(changes: &[InstallChange]) -> HashSet<Sha256> {
    let builds = changes.iter().flat_map(|change| [&change.from, &change.to]);
    builds.flatten().map(|build| build.sha256).collect()
}

/// Notes a change at the end of the history.
pub(super) fn append_change(
    history: &mut std::fs::File,
    change: &InstallChange,
) -> Result<(), InstallError> {
    use std::io::Write as _;
    let mut line = serde_json::to_string(change).map_err(io::Error::other)?;
    line.push('\n');
    history.write_all(line.as_bytes())?;
    Ok(history.sync_all()?)
}
