//! What a run of `plugin dev --serve` has put in the place of what: a directory for each name below
//! `plugin-dev` of the data directory.
//!
//! The lock in it is held for as long as the run lives, so a second run of that name is refused, and
//! what a killed one left is known and put back by the next.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use conjure_config::file_name::safe_name;
use conjure_config::fs;
use conjure_plugins::{LockedPlugin, PluginError, PluginFile, Sha256};
use serde::{Deserialize, Serialize};

use crate::args::display_path;
use crate::error::CliError;

/// Where the records are, below the data directory.
const DIR: &str = "plugin-dev";
const LOCK: &str = "lock";
const RECORD: &str = "record.json";

/// How often the lock is taken again when whoever had it removes it meanwhile.
const ATTEMPTS: usize = 10;

/// What is written down of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DevRun {
    /// The plugin's name.
    pub(super) name: String,
    /// The process.
    pub(super) pid: u32,
    /// The author's directory.
    pub(super) author: PathBuf,
    /// Whether its last build stays.
    pub(super) keep: bool,
    /// The builds that it has put there, the newest last, and the one that it is about to put.
    pub(super) put: Vec<Sha256>,
    /// The file that was there before, beside the record.
    pub(super) before: Option<String>,
    /// What the lock of the installed plugins said of that.
    pub(super) package: Option<LockedPlugin>,
}

/// A run's record, which nobody else has while this is there.
pub(super) struct DevRecord {
    dir: PathBuf,
    lock: File,
}

/// Records of runs that were killed, with what they say.
pub(super) type KilledRuns = Vec<(DevRecord, DevRun)>;

impl DevRecord {
    /// Where the records of a data directory are, which is made if need be.
    pub(super) fn records_dir(data_dir: &Path) -> Result<PathBuf, CliError> {
        let all = data_dir.join(DIR);
        fs::create_private_dir(&all).map_err(|error| {
            CliError::host_from(error)
                .context("nothing can be installed in the data directory")
                .hint("name another one with `--data-dir DIR` or `CONJURE_DATA_DIR`")
        })?;
        Ok(all)
    }

    /// Takes the record of a name; the inner error says who has it.
    pub(super) fn claim(all: &Path, name: &str) -> Result<Result<Self, String>, CliError> {
        let dir = all.join(safe_name(name));
        match Self::try_lock(&dir).map_err(record_error)? {
            Some(record) => match read(&dir) {
                Ok(None) => Ok(Ok(record)),
                // It was ended after this one had looked, or could not be put back.
                Ok(Some(run)) => Ok(Err(not_restored_message(&run, &dir))),
                // A record of this run would take the place of what is kept there.
                Err(reason) => Ok(Err(unreadable_message(&dir, &reason))),
            },
            None => Ok(Err(in_use_message(name, &dir))),
        }
    }

    /// The records of runs that were killed, with what they say. What cannot be read stays where it is, with
    /// the build that is kept there; the second part says so.
    pub(super) fn killed_runs(all: &Path) -> Result<(KilledRuns, Vec<String>), CliError> {
        let (mut left, mut unreadable) = (Vec::new(), Vec::new());
        for dir in fs::entries(all).map_err(record_error)? {
            if !fs::is_dir(&dir).unwrap_or(false) {
                continue;
            }
            let Some(record) = Self::try_lock(&dir).map_err(record_error)? else {
                continue;
            };
            match read(&dir) {
                Ok(Some(run)) => left.push((record, run)),
                // It had put nothing there yet.
                Ok(None) => record.remove(),
                Err(reason) => unreadable.push(unreadable_message(&dir, &reason)),
            }
        }
        Ok((left, unreadable))
    }

    /// The lock in a directory; nothing where another process has it.
    fn try_lock(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(LOCK);
        for _ in 0..ATTEMPTS {
            fs::create_private_dir(dir)?;
            let lock = match fs::append_to(&path) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                // A file system without locks has one author at a time.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if fs::is_same_file(&path, &lock)? {
                let dir = dir.to_owned();
                return Ok(Some(Self { dir, lock }));
            }
        }
        Err(io::Error::other("somebody else removes it all the time"))
    }

    /// Keeps the file that was there before; gives its name for the record.
    pub(super) fn back_up(&self, file: &PluginFile) -> Result<String, CliError> {
        let extension = file.path.extension().unwrap_or_default().to_string_lossy();
        let name = format!("before.{extension}");
        let path = self.dir.join(&name);
        let written = fs::write_atomic(&path, &file.bytes);
        written.map_err(record_error)?;
        Ok(name)
    }

    /// The file that was there before.
    pub(super) fn backup(&self, run: &DevRun) -> Result<Option<PluginFile>, PluginError> {
        let name = run.before.as_deref().map(safe_name);
        let file = name.map(|name| PluginFile::read(&self.dir.join(name), true));
        file.transpose()
    }

    /// Writes down what the run has put there.
    pub(super) fn write(&self, run: &DevRun) -> Result<(), CliError> {
        let text = serde_json::to_vec_pretty(run).map_err(CliError::host_from)?;
        fs::write_atomic(self.dir.join(RECORD), &text).map_err(record_error)
    }

    /// Ends it: there is nothing to put back any more.
    pub(super) fn remove(self) {
        // The record first: what is left by whoever is killed here has nothing to put back.
        fs::remove_file(self.dir.join(RECORD));
        let kept = fs::entries(&self.dir).unwrap_or_default().into_iter();
        for path in kept.filter(|path| !path.ends_with(LOCK)) {
            fs::remove_file(path);
        }
        // While it is locked: whoever waits for it sees that it is gone.
        fs::remove_file(self.dir.join(LOCK));
        fs::remove_dir_if_empty(&self.dir);
        drop(self.lock);
    }
}

fn record_error(error: io::Error) -> CliError {
    CliError::host_from(error).context("what `plugin dev` puts there cannot be written down")
}

/// What a record says, nothing where there is none; why it cannot be read.
fn read(dir: &Path) -> Result<Option<DevRun>, String> {
    let text = match fs::read(dir.join(RECORD)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let run = serde_json::from_slice(&text);
    run.map(Some).map_err(|error| error.to_string())
}

/// Message that a record cannot be read, and what to do about it.
fn unreadable_message(dir: &Path, reason: &str) -> String {
    format!(
        "what a `plugin dev` that was ended has kept in {} cannot be put back, because its {RECORD} cannot be \
         read ({reason}): `before.*` there is the build that was installed, which `conjure plugin add` \
         installs again. Move the directory away then",
        display_path(dir)
    )
}

/// Message that what a run has kept is not put back.
fn not_restored_message(run: &DevRun, dir: &Path) -> String {
    format!(
        "what was there of {} before a `plugin dev` of {} that was ended is not back yet, and kept in {}: \
         begin again, which puts it back or says why not. Where that stays so, move the directory away; `conjure \
         plugin rollback {}` has what was there, too",
        run.name,
        display_path(&run.author),
        display_path(dir),
        run.name
    )
}

/// Message that says who has the record of a name.
fn in_use_message(name: &str, dir: &Path) -> String {
    let who = match read(dir) {
        Ok(Some(run)) => format!(
            "process {} of `conjure plugin dev`, for {}",
            run.pid,
            display_path(&run.author)
        ),
        Ok(None) | Err(_) => "another `conjure plugin dev`".to_owned(),
    };
    format!(
        "{name} is put into this data directory by {who}: end that one, give this plugin another name, or \
         name another data directory with `--data-dir`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(name: &str) -> DevRun {
        DevRun {
            name: name.to_owned(),
            pid: 4711,
            author: PathBuf::from("/somewhere/greeter"),
            keep: false,
            put: vec![Sha256::of(b"one")],
            before: None,
            package: None,
        }
    }

    #[test]
    fn one_run_has_a_name_and_what_it_left_is_found_when_it_is_gone() {
        let data = tempfile::tempdir().unwrap();
        let all = DevRecord::records_dir(data.path()).unwrap();
        let record = DevRecord::claim(&all, "greeter").unwrap().ok().unwrap();
        let run = run_of("greeter");
        record.write(&run).unwrap();
        let said = DevRecord::claim(&all, "greeter").unwrap().err().unwrap();
        for part in ["process 4711", "/somewhere/greeter", "--data-dir"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(DevRecord::killed_runs(&all).unwrap().0.is_empty());
        assert!(DevRecord::claim(&all, "other").unwrap().is_ok());
        drop(record);
        let (mut left, _) = DevRecord::killed_runs(&all).unwrap();
        let (record, told) = left.pop().unwrap();
        assert_eq!((told, left.len()), (run, 0));
        record.remove();
        assert!(fs::entries(&all).unwrap().is_empty());
    }

    #[test]
    fn a_record_that_cannot_be_read_keeps_the_build_beside_it() {
        let data = tempfile::tempdir().unwrap();
        let all = DevRecord::records_dir(data.path()).unwrap();
        let dir = all.join("greeter");
        drop(DevRecord::claim(&all, "greeter").unwrap().ok().unwrap());
        let before = dir.join("before.so");
        fs::write(&before, "a library").unwrap();
        fs::write(dir.join(RECORD), "{ \"name\": ").unwrap();
        let (left, said) = DevRecord::killed_runs(&all).unwrap();
        assert!(left.is_empty() && before.is_file());
        let refused = DevRecord::claim(&all, "greeter").unwrap().err().unwrap();
        for said in [&said[0], &refused] {
            assert!(
                said.contains("record.json") && said.contains("before.*"),
                "{said}"
            );
        }
        // Whoever was killed before it put anything there left no record.
        fs::remove_file(dir.join(RECORD));
        let (left, said) = DevRecord::killed_runs(&all).unwrap();
        assert!(left.is_empty() && said.is_empty() && !dir.exists());
    }
}
