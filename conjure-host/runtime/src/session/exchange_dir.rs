//! Exchange directories: held by their sessions, and removed when nobody holds them any more.
//!
//! A host that is killed removes nothing. The lock on the directory ends with its process, so the
//! next host on the same data directory knows what is left over.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::session_dirs::remove_empty_dirs;

/// Name of the exchange directory in the session's own directory.
const NAME: &str = "exchange";

/// How often it is made again when it goes away while it is being made.
const ATTEMPTS: usize = 10;

/// The exchange directory of a session that lives.
pub(super) struct ExchangeDir {
    path: PathBuf,
    lock: File,
}

impl ExchangeDir {
    /// Makes it in a session's own directory, and holds it.
    pub(super) fn make(own: &Path) -> io::Result<Self> {
        let path = own.join(NAME);
        for _ in 0..ATTEMPTS {
            conjure_config::fs::create_private_dir(&path)?;
            let held = match conjure_config::fs::open(&path) {
                Ok(held) => held,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // Shared: a session that is taken up again may meet the one before, which ends.
            flock(&held, FlockOperation::LockShared)?;
            if conjure_config::fs::is_same_file(&path, &held)? {
                return Ok(Self {
                    path: path.canonicalize()?,
                    lock: held,
                });
            }
        }
        Err(io::Error::other("somebody else removes it all the time"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, unless another session has it now.
    pub(super) fn remove(&self) {
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&self.path);
        }
    }
}

/// Removes the exchange directories that hosts left behind.
pub(crate) fn sweep(sessions: &Path) {
    let Ok(all) = conjure_config::fs::entries(sessions) else {
        return;
    };
    for own in all {
        let path = own.join(NAME);
        let Ok(left) = conjure_config::fs::open(&path) else {
            continue;
        };
        if flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::debug!("removing what a host left behind: {}", path.display());
            remove(&path);
            remove_empty_dirs(&own);
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = conjure_config::fs::remove_dir_all(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!("the exchange directory stays: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_swept_and_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        let sessions = data.path().join("sessions");
        let own = |name: &str| sessions.join(name);
        let dead = ExchangeDir::make(&own("dead")).unwrap();
        let kept = ExchangeDir::make(&own("kept")).unwrap();
        let living = ExchangeDir::make(&own("living")).unwrap();
        std::fs::write(dead.path().join("output.txt"), "text").unwrap();
        std::fs::create_dir(own("kept").join("work")).unwrap();
        std::fs::write(own("kept").join("work/result"), "text").unwrap();
        drop((dead, kept));
        sweep(&sessions);
        assert!(!own("dead").exists());
        assert!(!own("kept").join(NAME).exists());
        assert!(own("kept").join("work/result").exists());
        assert!(living.path().exists());
        sweep(&data.path().join("none"));
    }

    #[test]
    fn two_may_hold_one_for_a_moment() {
        let data = tempfile::tempdir().unwrap();
        let first = ExchangeDir::make(data.path()).unwrap();
        let second = ExchangeDir::make(data.path()).unwrap();
        assert_eq!(first.path(), second.path());
        first.remove();
        assert!(second.path().exists());
        drop(first);
        second.remove();
        assert!(!second.path().exists());
    }
}
