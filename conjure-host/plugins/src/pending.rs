//! What a change of an installed plugin leaves that ends in its middle: with a crash, or killed.
//!
//! A change is noted before it begins. Its build comes into place in one step, and that decides: where
//! it is there the change is brought to its end, where it is not the lock says again what it said
//! before. Whoever changes something next, loads plugins next, or finds that a plugin is not what the
//! lock says, does that first.

use std::path::{Path, PathBuf};

use conjure_config::fs;
use serde::{Deserialize, Serialize};

use super::install_history::note;
use super::installed_build::archive;
use super::{InstallChange, InstallError, InstalledPlugins, LockedPlugin, Sha256};

/// A change that has begun.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingChange {
    pub(super) change: InstallChange,
    /// What the lock said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) locked: Option<LockedPlugin>,
    /// Where the build goes.
    pub(super) path: PathBuf,
}

impl PendingChange {
    /// Whether the build is in its place; of a removal, which can be done again, always.
    fn is_placed(&self) -> bool {
        let Some(to) = &self.change.to else {
            return true;
        };
        let bytes = match self.path.is_dir() {
            true => archive(&self.path),
            false => fs::read(&self.path),
        };
        bytes.is_ok_and(|bytes| Sha256::of(&bytes) == to.sha256)
    }
}

impl InstalledPlugins {
    fn pending(&self) -> PathBuf {
        self.history.join("pending.json")
    }

    /// Notes that a change begins.
    pub(super) fn begin(&self, pending: &PendingChange) -> Result<(), InstallError> {
        let text = serde_json::to_vec(pending).map_err(std::io::Error::other)?;
        Ok(fs::write_atomic(self.pending(), &text)?)
    }

    /// Notes that it is over.
    pub(super) fn end(&self, _: &PendingChange) {
        fs::remove_file(self.pending());
    }

    /// Whether a change may have ended in its middle. One that another process makes at this moment
    /// looks the same.
    pub(super) fn has_halves(&self) -> bool {
        self.pending().is_file() || !self.leftovers().is_empty()
    }

    /// Ends what a change left half. Only for whoever may change something.
    pub(super) fn end_half(&self) -> Result<(), InstallError> {
        for path in self.leftovers() {
            fs::remove_file(path);
        }
        self.skills.tidy();
        let text = match fs::read(self.pending()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let Ok(pending) = serde_json::from_slice::<PendingChange>(&text) else {
            // It comes into place whole, so it is none of ours.
            fs::remove_file(self.pending());
            return Ok(());
        };
        self.finish(&pending)?;
        self.end(&pending);
        Ok(())
    }

    fn finish(&self, pending: &PendingChange) -> Result<(), InstallError> {
        let change = &pending.change;
        let name = &change.plugin;
        if !pending.is_placed() {
            tracing::warn!("a change of {name} had ended in its middle and is taken back");
            return Ok(self.lock().set(name, pending.locked.clone())?);
        }
        tracing::warn!("a change of {name} had ended in its middle and is brought to its end");
        match &change.to {
            Some(to) => {
                self.lock().set(name, to.package.as_deref().cloned())?;
                self.remove_others(name, &pending.path)?;
            }
            None => {
                self.take_away(name)?;
                self.lock().set(name, None)?;
            }
        }
        let is_noted = self.history(Some(name))?.last() == Some(change);
        match is_noted {
            true => Ok(()),
            false => note(&mut self.open_history()?, change),
        }
    }

    /// Files that were to become others, of this data directory's plugins and what is known of them.
    fn leftovers(&self) -> Vec<PathBuf> {
        let data_dir = self.dir().parent().unwrap_or(Path::new(""));
        let is_left = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with('.') && name.ends_with(".tmp"))
        };
        let is_own = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            let begins = |begin: &str| name.is_some_and(|name| name.starts_with(begin));
            begins(".conjure.lock.") || begins(".packaged-libraries.")
        };
        let within = |dir: &Path| {
            let mut found = fs::entries(dir).unwrap_or_default();
            found.retain(is_left);
            found
        };
        let mut own = within(data_dir);
        own.retain(is_own);
        [within(self.dir()), within(&self.history), own].concat()
    }
}
