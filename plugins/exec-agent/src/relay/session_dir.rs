//! A relay's directory: only one relay has it, and whoever comes finds that one's socket there.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The relay's socket, in its directory.
pub(super) const SOCKET: &str = "link";
/// How long a relay waits for the directory: whoever only looks whether it is taken has it for a
/// moment.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// The directory of a relay, which nobody else has while this value lives.
#[derive(Debug)]
pub(super) struct RelayDir {
    path: PathBuf,
    /// The directory itself, locked.
    handle: File,
    identity: (u64, u64),
}

impl RelayDir {
    /// Takes the directory; nothing where another relay has it.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        let own = File::open(path)?;
        let begun = Instant::now();
        while is_locked(&own, FlockOperation::NonBlockingLockExclusive) {
            if begun.elapsed() > LOCK_TIMEOUT {
                return Ok(None);
            }
            thread::sleep(RETRY_DELAY);
        }
        let identity = identity(&own.metadata()?);
        Ok(Some(Self {
            path: path.to_owned(),
            handle: own,
            identity,
        }))
    }

    /// Whether it is still where it was: a command may have removed it, and another one may be
    /// there.
    pub(super) fn exists(&self) -> bool {
        let found = fs::symlink_metadata(&self.path);
        found.is_ok_and(|found| identity(&found) == self.identity)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RelayDir {
    fn drop(&mut self) {
        let _ = flock(&self.handle, FlockOperation::Unlock);
    }
}

/// Whether a relay has a directory, whether or not it can be reached.
///
/// # Errors
/// When the directory is not there.
pub(super) fn is_in_use(dir: &Path) -> io::Result<bool> {
    Ok(is_locked(
        &File::open(dir)?,
        FlockOperation::NonBlockingLockShared,
    ))
}

/// Locks it, or says that somebody else has. A file system that knows no locks has none.
fn is_locked(dir: &File, lock: FlockOperation) -> bool {
    loop {
        match flock(dir, lock) {
            Err(Errno::INTR) => {}
            locked => return locked == Err(Errno::WOULDBLOCK),
        }
    }
}

/// The socket in the working directory that others find the relay by.
#[derive(Debug)]
pub(super) struct RelaySocket {
    pub(super) listener: UnixListener,
    identity: (u64, u64),
}

impl RelaySocket {
    /// Listens there, in place of whoever did before.
    ///
    /// # Errors
    /// When nobody can.
    pub(super) fn bind() -> io::Result<Self> {
        match fs::remove_file(SOCKET) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(SOCKET)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            identity: identity(&fs::symlink_metadata(SOCKET)?),
        })
    }

    /// Listens again where a command has removed the socket or put something else in its place.
    pub(super) fn restore(&mut self) {
        let found = fs::symlink_metadata(SOCKET);
        if !found.is_ok_and(|found| identity(&found) == self.identity)
            && let Ok(anew) = Self::bind()
        {
            *self = anew;
        }
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_relays_as_long_as_that_lives_and_only_itself() {
        let all = tempfile::tempdir().unwrap();
        let dir = all.path().join("session");
        assert!(is_in_use(&dir).is_err());
        fs::create_dir(&dir).unwrap();
        assert!(!is_in_use(&dir).unwrap());
        let own = RelayDir::take(&dir).unwrap().unwrap();
        assert!(is_in_use(&dir).unwrap() && own.exists());
        assert!(RelayDir::take(&dir).unwrap().is_none());
        // A command removes it, and somebody comes again.
        fs::remove_dir(&dir).unwrap();
        assert!(!own.exists());
        fs::create_dir(&dir).unwrap();
        assert!(!own.exists() && !is_in_use(&dir).unwrap());
        let other = RelayDir::take(&dir).unwrap().unwrap();
        assert!(other.exists());
        drop(other);
        assert!(!is_in_use(&dir).unwrap());
    }
}
