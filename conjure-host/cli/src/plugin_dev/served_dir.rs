//! The plugins of a data directory while an author's builds are put among them, and what was there
//! before: that comes back at the end, and after a run that was killed at the beginning of the next.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use conjure_plugins::{InstalledPlugins, LockedPlugin, PluginError, PluginFile, Sha256};

use super::dev_record::{DevRecord, DevRun};
use crate::args::{Global, display_path};
use crate::error::CliError;
use crate::plugin_install;

/// The plugins of a data directory, and what was there before.
pub(super) struct ServedDir {
    installed: InstalledPlugins,
    records: PathBuf,
    author: PathBuf,
    previous: BTreeMap<String, PreviousBuild>,
    keep: bool,
}

/// What was there under a name, and what was put in its place.
struct PreviousBuild {
    record: DevRecord,
    file: Option<PluginFile>,
    /// What its copy beside the record is called.
    backup: Option<String>,
    package: Option<LockedPlugin>,
    /// The newest last; none until the first is about to be put there.
    deployed: Vec<Sha256>,
}

impl ServedDir {
    /// Opens the directory of the plugins whose hosts use the data directory, for what an author works
    /// on. Gives in words what runs have left there that were killed.
    pub(super) fn open(
        global: &Global,
        author: &Path,
        keep: bool,
    ) -> Result<(Self, Vec<String>), CliError> {
        let served = Self {
            installed: InstalledPlugins::of(&global.data_dir()),
            records: DevRecord::records_dir(&global.data_dir())?,
            author: author.to_owned(),
            previous: BTreeMap::new(),
            keep,
        };
        let (left, mut said) = DevRecord::killed_runs(&served.records)?;
        for (record, run) in left {
            said.extend(served.restore_killed(record, run)?);
        }
        Ok((served, said))
    }

    pub(super) fn dir(&self) -> &Path {
        self.installed.dir()
    }

    /// Puts a build there; the inner error says why not.
    pub(super) fn deploy(
        &mut self,
        global: &Global,
        file: &PluginFile,
    ) -> Result<Result<(), String>, CliError> {
        let name = &file.header.name;
        let others = plugin_install::other_copies(global, &self.installed, name);
        let twin = others
            .iter()
            .find(|other| other.header.version == file.header.version);
        if let Some(twin) = twin {
            return Ok(Err(format!(
                "{name} {} is in {} already, and a host takes one of a name and version: give this \
                 one another version",
                file.header.version,
                twin.path.display()
            )));
        }
        let mut before = match self.previous.remove(name) {
            Some(before) => before,
            None => match DevRecord::claim(&self.records, name)? {
                Ok(record) => PreviousBuild {
                    record,
                    file: None,
                    backup: None,
                    package: None,
                    deployed: Vec::new(),
                },
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let installed = self.install(&mut before, file);
        self.previous.insert(name.clone(), before);
        installed?;
        // What a crate that was renamed left is not the author's any more.
        let renamed = self.previous.keys().filter(|known| *known != name);
        for old in renamed.cloned().collect::<Vec<_>>() {
            if let Some(before) = self.previous.remove(&old) {
                self.restore(&old, before)?;
            }
        }
        Ok(Ok(()))
    }

    /// Puts a build there. What it takes the place of is written down first.
    fn install(&self, before: &mut PreviousBuild, file: &PluginFile) -> Result<(), CliError> {
        let name = &file.header.name;
        if let Some(last) = before.deployed.last().copied() {
            before.deployed = vec![last, file.sha256];
            self.write_record(name, before)?;
            if self.installed.replace_own_build(file, &last)? {
                return Ok(());
            }
        }
        // The first one, or somebody else's is there by now, which is what comes back then.
        before.deployed = vec![file.sha256];
        before.file = self.installed.file(name)?;
        let package = self.installed.lock().plugin(name);
        before.package = package.map_err(CliError::host_from)?;
        let replaced = before.file.as_ref().filter(|_| !self.keep);
        let kept = replaced.map(|replaced| before.record.back_up(replaced));
        before.backup = kept.transpose()?;
        self.write_record(name, before)?;
        self.installed.add(file)?;
        Ok(())
    }

    fn write_record(&self, name: &str, before: &PreviousBuild) -> Result<(), CliError> {
        before.record.write(&DevRun {
            name: name.to_owned(),
            pid: std::process::id(),
            author: self.author.clone(),
            keep: self.keep,
            put: before.deployed.clone(),
            before: before.backup.clone(),
            package: before.package.clone(),
        })
    }

    /// Puts back what was there before a run that was killed; gives what came of it, in words.
    fn restore_killed(&self, record: DevRecord, run: DevRun) -> Result<Option<String>, CliError> {
        if run.keep {
            record.remove();
            return Ok(None);
        }
        let file = match record.backup(&run) {
            Ok(file) => file,
            Err(error) if may_be_read_later(&error) => {
                // Its record stays, with what is kept there.
                return Ok(Some(format!(
                    "a `plugin dev` of {} was ended before it could put back what was there, which cannot \
                     be read now ({error}): the next `conjure plugin dev --serve` tries it again, and `conjure \
                     plugin rollback {}` has it, too",
                    display_path(&run.author),
                    run.name
                )));
            }
            Err(error) => {
                record.remove();
                return Ok(Some(format!(
                    "a `plugin dev` of {} was ended before it could put back what was there, which cannot \
                     be read any more ({error}): `conjure plugin rollback {}` has it",
                    display_path(&run.author),
                    run.name
                )));
            }
        };
        let before = PreviousBuild {
            file,
            backup: run.before,
            record,
            package: run.package,
            deployed: run.put,
        };
        let came = self.restore(&run.name, before)?;
        Ok(came.map(|came| {
            format!(
                "a `plugin dev` of {} was ended before it could clean up: {came}",
                display_path(&run.author)
            )
        }))
    }

    /// Puts back what was there under this name.
    fn restore(&self, name: &str, before: PreviousBuild) -> Result<Option<String>, CliError> {
        let said = self.restore_build(name, &before)?;
        // As long as that fails there is something to put back.
        before.record.remove();
        Ok(said)
    }

    fn restore_build(
        &self,
        name: &str,
        before: &PreviousBuild,
    ) -> Result<Option<String>, CliError> {
        let (state, there) = self.installed.state_and_file(name)?;
        let there = there.map(|there| there.sha256);
        let was = before.file.as_ref().map(|file| file.sha256);
        if there == was && state.locked() == before.package.as_ref() {
            // It was ended before it had put anything there.
            return Ok(None);
        }
        // What came in a package meanwhile is another's, also where it is the same build.
        let is_own = there.is_some_and(|there| before.deployed.contains(&there));
        if !is_own || state.locked().is_some() {
            return Ok(Some(format!(
                "{name} was changed by somebody else meanwhile and stays as it is"
            )));
        }
        let Some(file) = &before.file else {
            self.installed.remove(name)?;
            return Ok(Some(format!("{name} is removed")));
        };
        let change = match before.package.clone() {
            // As it came: with what its lock said of it.
            Some(package) => self.installed.install(file, package, &state)?,
            None => self.installed.add_if_unchanged(file, &state)?,
        };
        Ok(change.map(|_| format!("{name} {} is back", file.header.version)))
    }

    /// Puts back what was there before, unless it is to stay.
    pub(super) fn end(mut self) -> Result<Vec<String>, CliError> {
        let mut said = Vec::new();
        let mut failed = None;
        for (name, before) in std::mem::take(&mut self.previous) {
            if self.keep {
                before.record.remove();
                continue;
            }
            match self.restore(&name, before) {
                Ok(restored) => said.extend(restored),
                // The others are put back all the same.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(said), Err)
    }
}

/// Whether a build that is not read now is there all the same, for another time.
fn may_be_read_later(error: &PluginError) -> bool {
    match error {
        PluginError::Read { source, .. } => source.kind() != io::ErrorKind::NotFound,
        PluginError::Owner { .. } | PluginError::Writable { .. } | PluginError::Changed { .. } => {
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

    use conjure_config::fs;

    use super::*;

    #[test]
    fn a_record_stays_as_long_as_what_it_keeps_may_be_read_another_time() {
        let data = tempfile::tempdir().unwrap();
        let records = DevRecord::records_dir(data.path()).unwrap();
        let served = ServedDir {
            installed: InstalledPlugins::of(data.path()),
            records: records.clone(),
            author: PathBuf::from("/somewhere/greeter"),
            previous: BTreeMap::new(),
            keep: false,
        };
        let record = DevRecord::claim(&records, "greeter").unwrap().ok().unwrap();
        let kept = records.join("greeter/before.so");
        fs::write(&kept, "a library").unwrap();
        let everybody = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&kept, everybody).unwrap();
        let run = DevRun {
            name: "greeter".to_owned(),
            pid: 4711,
            author: served.author.clone(),
            keep: false,
            put: vec![Sha256::of(b"one")],
            before: Some("before.so".to_owned()),
            package: None,
        };
        record.write(&run).unwrap();
        let said = served.restore_killed(record, run.clone()).unwrap().unwrap();
        assert!(said.contains("tries it again"), "{said}");
        assert!(kept.is_file());
        // Nor does a run that begins meanwhile write over it.
        let refused = DevRecord::claim(&records, "greeter").unwrap();
        let refused = refused.err().unwrap();
        assert!(refused.contains("is not back yet"), "{refused}");
        assert!(kept.is_file());
        // Once it is gone, nobody waits for it any more.
        fs::remove_file(&kept);
        let (record, left) = DevRecord::killed_runs(&records).unwrap().0.pop().unwrap();
        assert_eq!(left, run);
        let said = served.restore_killed(record, left).unwrap().unwrap();
        assert!(said.contains("rollback greeter"), "{said}");
        assert!(fs::entries(&records).unwrap().is_empty());
    }

    #[test]
    fn what_a_disk_does_not_give_now_may_be_read_later() {
        let read = |error: io::Error| PluginError::Read {
            path: PathBuf::from("before.so"),
            source: Arc::new(error),
        };
        assert!(may_be_read_later(&read(io::Error::other("an I/O error"))));
        assert!(!may_be_read_later(&read(io::ErrorKind::NotFound.into())));
    }
}
