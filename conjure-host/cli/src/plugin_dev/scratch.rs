//! The directory that a run of `plugin dev` writes into: it goes with the run, and where that was
//! killed, with the next one. The lock on it ends with the process, so the next one knows.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use conjure_config::platform;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// The directory in that for temporary files that holds those of a user, behind which the user's number is.
const DIR_PREFIX: &str = "conjure-plugin-dev";

/// How often it is made again when it goes away while it is being made.
const ATTEMPTS: usize = 10;

/// A directory for temporary files that nobody else has.
pub(super) struct ScratchDir {
    dir: TempDir,
    _lock: File,
}

impl ScratchDir {
    /// Makes one, and removes those that killed runs of this user left.
    pub(super) fn make() -> io::Result<Self> {
        // Without links: a worker is not granted a directory that one leads to.
        let temporary = std::env::temp_dir();
        let temporary = temporary.canonicalize().map_err(|error| {
            let text = format!("cannot use {}: {error}", temporary.display());
            io::Error::new(error.kind(), text)
        })?;
        Self::make_in(&user_dir(&temporary)?)
    }

    /// Nothing but these is in `all`.
    fn make_in(all: &Path) -> io::Result<Self> {
        sweep(all);
        for _ in 0..ATTEMPTS {
            let dir = tempfile::tempdir_in(all)?;
            let held = match conjure_config::fs::open(dir.path()) {
                Ok(held) => held,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // Where a file system has no locks, nobody sweeps either.
            let _ = flock(&held, FlockOperation::LockShared);
            if conjure_config::fs::is_same_file(dir.path(), &held)? {
                return Ok(Self { dir, _lock: held });
            }
        }
        Err(io::Error::other("somebody else removes it all the time"))
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The directory in that for temporary files that is this user's alone, which is made if need be.
fn user_dir(temporary: &Path) -> io::Result<PathBuf> {
    let dir = temporary.join(format!("{DIR_PREFIX}-{}", platform::current_user()));
    conjure_config::fs::create_private_dir(&dir)?;
    // Everybody may make one of this name first.
    platform::check_private_dir(&dir).map_err(|error| {
        let text = format!(
            "{error}: remove it, or name another directory for temporary files with TMPDIR"
        );
        io::Error::new(error.kind(), text)
    })?;
    Ok(dir)
}

/// Removes the directories that nobody holds any more.
fn sweep(all: &Path) {
    for path in conjure_config::fs::entries(all).unwrap_or_default() {
        if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let Ok(left) = conjure_config::fs::open(&path) else {
            continue;
        };
        if flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = conjure_config::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_config::fs;

    use super::*;

    #[test]
    fn what_a_killed_run_left_goes_with_the_next_one_and_nothing_else() {
        let temporary = tempfile::tempdir().unwrap();
        let all = user_dir(temporary.path()).unwrap();
        let left = all.join("left");
        // What others call alike is theirs.
        let others = ["conjure-dev-notes", "conjure-plugin-dev-notes"];
        let others = others.map(|name| temporary.path().join(name));
        for dir in others.iter().chain([&left]) {
            fs::create_dir_all(dir.join("store")).unwrap();
        }
        let link = all.join("link");
        std::os::unix::fs::symlink(&others[0], &link).unwrap();
        let running = ScratchDir::make_in(&all).unwrap();
        assert!(!left.exists());
        let next = ScratchDir::make_in(&all).unwrap();
        assert!(running.path().exists() && next.path().exists());
        assert!(others.iter().all(|other| other.join("store").exists()));
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_others_may_use_is_not_taken() {
        let temporary = tempfile::tempdir().unwrap();
        let all = user_dir(temporary.path()).unwrap();
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&all, open).unwrap();
        let error = user_dir(temporary.path()).unwrap_err();
        assert!(error.to_string().contains("TMPDIR"), "{error}");
        fs::remove_dir_all(&all).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &all).unwrap();
        assert!(user_dir(temporary.path()).is_err());
    }
}
