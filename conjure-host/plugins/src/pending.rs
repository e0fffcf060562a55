//! What a change of an installed plugin leaves that ends in its middle: with a crash, or killed.
//!
//! A change is noted before it begins. Its build comes into place in one step, and that decides: where
//! it is there the change is brought to its end, where it is not the lock says again what it said
//! before. Whoever changes something next, loads plugins next, or finds that a plugin is not what the
//! lock says, does that first.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use conjure_config::fs;
use serde::{Deserialize, Serialize};

use super::install_history::append_change;
use super::installed_build::{archive, is_running};
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
    /// The skill folder is there already, and stays when the skill is removed.
    #[serde(default)]
    pub(super) takes_over: bool,
}

impl PendingChange {
    /// Whether the build is in its place; of a removal, which can be done again, always.
    fn is_written(&self) -> bool {
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
    fn pending_path(&self) -> PathBuf {
        self.history.join("pending.json")
    }

    /// Notes that a change begins.
    pub(super) fn write_pending(&self, pending: &PendingChange) -> Result<(), InstallError> {
        let text = serde_json::to_vec(pending).map_err(io::Error::other)?;
        Ok(fs::write_atomic(self.pending_path(), &text)?)
    }

    /// Notes that it is over.
    pub(super) fn clear_pending(&self) {
        fs::remove_file(self.pending_path());
    }

    /// Whether a change may have ended in its middle. One that another process makes at this moment
    /// looks the same.
    pub(super) fn has_interrupted_change(&self) -> bool {
        self.pending_path().is_file() || !self.leftovers().is_empty()
    }

    /// Ends what a change left half. Only for whoever may change something.
    pub(super) fn finish_interrupted(&self) -> Result<(), InstallError> {
        for path in self.leftovers() {
            match path.is_dir() {
                true => fs::remove_dir_all(path)?,
                false => fs::remove_file(path),
            }
        }
        self.skills.clean_staging();
        let text = match fs::read(self.pending_path()) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let Ok(pending) = serde_json::from_slice::<PendingChange>(&text) else {
            // It comes into place whole, so it is none of ours.
            fs::remove_file(self.pending_path());
            return Ok(());
        };
        self.resume_change(&pending)?;
        self.clear_pending();
        Ok(())
    }

    fn resume_change(&self, pending: &PendingChange) -> Result<(), InstallError> {
        let change = &pending.change;
        let name = &change.plugin;
        if !pending.is_written() {
            tracing::warn!("a change of {name} had ended in its middle and is taken back");
            return Ok(self.lock().set(name, pending.locked.clone())?);
        }
        tracing::warn!("a change of {name} had ended in its middle and is brought to its end");
        match &change.to {
            Some(to) => {
                self.lock().set(name, to.package.as_deref().cloned())?;
                // What came there since by hand is not what the change was about.
                self.remove_build(name, change.from.as_ref())?;
                self.set_adopted(name, pending.takes_over)?;
            }
            None => {
                self.remove_build(name, change.from.as_ref())?;
                self.lock().set(name, None)?;
                self.set_adopted(name, false)?;
            }
        }
        let is_noted = self.history(Some(name))?.last() == Some(change);
        match is_noted {
            true => Ok(()),
            false => append_change(&mut self.open_history()?, change),
        }
    }

    /// A new directory for what is judged before it is installed. It goes with the value, and where this
    /// process is killed with the next change.
    ///
    /// # Errors
    /// The system's.
    pub fn judging_dir(&self) -> io::Result<tempfile::TempDir> {
        fs::create_private_dir(&self.history)?;
        // Another number than that of a process of the same number which was killed.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = since.unwrap_or_default().as_nanos();
        let name = format!(".judged.{}.{number}.tmp", std::process::id());
        tempfile::Builder::new()
            .prefix(&name)
            .rand_bytes(0)
            .tempdir_in(&self.history)
    }

    /// Files and directories that were to become others, of this data directory's plugins and what is
    /// known of them.
    fn leftovers(&self) -> Vec<PathBuf> {
        let data_dir = self.dir().parent().unwrap_or(Path::new(""));
        let is_left = |path: &PathBuf| {
            let writer = fs::writer_of(path);
            let is_own =
                path.is_file() || path.is_dir() && path.parent() == Some(self.history.as_path());
            writer.is_some_and(|writer| !is_running(writer)) && is_own
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

#[cfg(test)]
mod tests {
    use super::super::installed_build::UserSkillFolders;
    use super::super::{InstallAction, InstalledVersion};
    use super::*;

    const OLD: &str = "---\nname: x\ndescription: Does it\n---\nOld.\n";
    const NEW: &str = "---\nname: x\ndescription: Does it\n---\nNew.\n";

    /// Skills of a data directory, in which a change may have ended anywhere.
    struct Bed {
        dir: tempfile::TempDir,
        installed: InstalledPlugins,
    }

    impl Bed {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut installed = InstalledPlugins::of(&dir.path().join("data"));
            installed.skills = UserSkillFolders::below(dir.path().join("home/skills"));
            fs::create_private_dir(&installed.history).unwrap();
            Self { dir, installed }
        }

        fn place(&self) -> PathBuf {
            self.dir.path().join("home/skills/x")
        }

        fn put(&self, text: &str) -> Sha256 {
            fs::create_private_dir(self.place()).unwrap();
            fs::write(self.place().join("SKILL.md"), text).unwrap();
            Sha256::of(&archive(&self.place()).unwrap())
        }

        fn there(&self) -> Option<String> {
            fs::read_to_string(self.place().join("SKILL.md")).ok()
        }

        fn lock(&self, skill: Option<Sha256>) -> Option<LockedPlugin> {
            let locked = skill.map(|skill| LockedPlugin {
                name: "x".to_owned(),
                version: "1.0.0".to_owned(),
                source: "x".to_owned(),
                index: None,
                sha256: Sha256::of(b"package"),
                signer: None,
                manifest: None,
                skill: Some(skill),
                libraries: [].into(),
            });
            self.installed.lock().set("x", locked.clone()).unwrap();
            locked
        }

        fn pending(&self, from: Option<Sha256>, to: Option<Sha256>) -> PendingChange {
            let version = |package: Option<LockedPlugin>| {
                let sha256 = package.as_ref()?.skill?;
                Some(InstalledVersion {
                    version: "1.0.0".to_owned(),
                    sha256,
                    package: package.map(Box::new),
                })
            };
            let to = version(to.and_then(|to| self.lock(Some(to))));
            let locked = self.lock(from);
            PendingChange {
                change: InstallChange {
                    at_ms: 5,
                    action: InstallAction::Add,
                    plugin: "x".to_owned(),
                    from: version(locked.clone()),
                    to,
                    altered: false,
                },
                locked,
                path: self.place(),
                takes_over: false,
            }
        }

        fn locked(&self) -> Option<Sha256> {
            self.installed.lock().plugin("x").unwrap()?.skill
        }
    }

    #[test]
    fn a_change_that_ended_before_its_build_was_there_is_taken_back() {
        let bed = Bed::new();
        let new = bed.put(NEW);
        let old = bed.put(OLD);
        let pending = bed.pending(Some(old), Some(new));
        bed.installed.write_pending(&pending).unwrap();
        // The lock may say the new one already.
        bed.lock(Some(new));
        assert!(bed.installed.recover_interrupted().unwrap());
        assert_eq!(
            (bed.locked(), bed.there().as_deref()),
            (Some(old), Some(OLD))
        );
        assert!(bed.installed.history(None).unwrap().is_empty());
        assert!(
            !bed.installed.recover_interrupted().unwrap(),
            "there is nothing more"
        );
    }

    #[test]
    fn a_change_whose_build_is_there_is_brought_to_its_end_once() {
        let bed = Bed::new();
        let old = bed.put(OLD);
        let new = bed.put(NEW);
        let pending = bed.pending(Some(old), Some(new));
        for _ in ["before it was noted", "behind that"] {
            bed.installed.write_pending(&pending).unwrap();
            assert!(bed.installed.recover_interrupted().unwrap());
            assert_eq!(
                (bed.locked(), bed.there().as_deref()),
                (Some(new), Some(NEW))
            );
            let noted = bed.installed.history(Some("x")).unwrap();
            assert_eq!(noted, std::slice::from_ref(&pending.change));
        }
    }

    #[test]
    fn a_folder_that_was_taken_over_stays_also_where_that_ended_in_its_middle() {
        let bed = Bed::new();
        let new = bed.put(NEW);
        let pending = PendingChange {
            takes_over: true,
            ..bed.pending(None, Some(new))
        };
        bed.installed.write_pending(&pending).unwrap();
        assert!(bed.installed.recover_interrupted().unwrap());
        let removal = bed.pending(Some(new), None);
        bed.installed.write_pending(&removal).unwrap();
        assert!(bed.installed.recover_interrupted().unwrap());
        assert_eq!((bed.locked(), bed.there().as_deref()), (None, Some(NEW)));
    }

    #[test]
    fn what_somebody_had_in_a_folder_that_a_killed_change_replaced_is_kept() {
        let bed = Bed::new();
        let home = bed.dir.path().join("home");
        // No process has the highest number that there may be.
        let replaced = home.join("installing/4194304-a/old/x");
        fs::create_private_dir(&replaced).unwrap();
        fs::write(replaced.join("SKILL.md"), OLD).unwrap();
        fs::write(replaced.join(".env"), "KEY=1").unwrap();
        bed.installed.skills.clean_staging();
        assert!(!home.join("installing").exists());
        let altered = fs::entries(home.join("altered")).unwrap();
        assert_eq!(altered.len(), 1);
        assert!(altered[0].join(".env").is_file());
    }

    #[test]
    fn a_removal_takes_what_it_was_about_and_nothing_that_came_since() {
        let bed = Bed::new();
        let old = bed.put(OLD);
        let pending = bed.pending(Some(old), None);
        bed.installed.write_pending(&pending).unwrap();
        assert!(bed.installed.recover_interrupted().unwrap());
        assert_eq!((bed.locked(), bed.there()), (None, None));
        bed.lock(Some(old));
        bed.put("---\nname: x\ndescription: My own\n---\nMine.\n");
        bed.installed.write_pending(&pending).unwrap();
        assert!(bed.installed.recover_interrupted().unwrap());
        assert!(bed.there().unwrap().contains("Mine."));
    }

    #[test]
    fn only_what_a_writer_left_that_is_gone_is_removed() {
        let bed = Bed::new();
        let plugins = bed.installed.dir().to_owned();
        fs::create_private_dir(&plugins).unwrap();
        let own = format!(".libx.so.{}.0.tmp", std::process::id());
        let names = [own.as_str(), ".state.json.tmp", ".x.tmp", "x.1.2.tmp"];
        // No process has the highest number that there may be.
        let left = ".libx.so.4194304.7.tmp";
        for name in names.iter().chain([&left]) {
            fs::write(plugins.join(name), "x").unwrap();
        }
        assert!(bed.installed.recover_interrupted().unwrap());
        assert!(!plugins.join(left).exists());
        for name in names {
            assert!(plugins.join(name).exists(), "{name}");
        }
        assert!(!bed.installed.has_interrupted_change());
    }

    #[test]
    fn what_is_judged_goes_with_whoever_judges_it() {
        let bed = Bed::new();
        let judged = bed.installed.judging_dir().unwrap();
        fs::write(judged.path().join("libx.so"), "x").unwrap();
        assert!(!bed.installed.has_interrupted_change(), "it is in use");
        let path = judged.path().to_owned();
        drop(judged);
        assert!(!path.exists());
        // No process has the highest number that there may be.
        let left = bed.installed.history.join(".judged.4194304.0.tmp");
        fs::create_private_dir(&left).unwrap();
        fs::write(left.join("libx.so"), "x").unwrap();
        assert!(bed.installed.recover_interrupted().unwrap());
        assert!(!left.exists());
    }
}
