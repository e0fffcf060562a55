//! Where tokens are kept: one file a server, which only its owner can read, and a lock beside it.
//!
//! The file has what several authorization servers gave, each under its issuer: what one gave is
//! never shown to another. Nothing here can be printed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::transport::auth::StoredCredentials;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How long another process may hold the lock: a renewal takes one request or a few.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay between two tries to lock.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The stored login of one server.
#[derive(Default, Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    /// Issuer whose tokens are used.
    current: Option<String>,
    #[serde(default)]
    issuers: BTreeMap<String, Grant>,
}

/// What one authorization server gave.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) client_id: String,
    #[serde(default)]
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    /// Unlike that of any other login; a renewal is none.
    #[serde(default)]
    pub(super) login: String,
    /// Absent before the first login.
    #[serde(default)]
    pub(super) credentials: Option<StoredCredentials>,
}

impl StoredLogin {
    /// The issuer whose tokens are used, and what it gave.
    pub(super) fn current(&self) -> Option<(&str, &Grant)> {
        let (issuer, grant) = self.issuers.get_key_value(self.current.as_deref()?)?;
        Some((issuer, grant))
    }

    /// Tokens of an issuer.
    pub(super) fn of(&self, issuer: &str) -> Option<&Grant> {
        self.issuers.get(issuer)
    }

    /// Keeps what an issuer gave. Its tokens, if it gave any, are used from now on.
    pub(super) fn put(&mut self, issuer: String, grant: Grant) {
        if grant.credentials.is_some() {
            self.current = Some(issuer.clone());
        }
        self.issuers.insert(issuer, grant);
    }
}

/// The file of one server, or memory where there is no directory.
pub(super) struct LoginStore {
    file: Option<PathBuf>,
    memory: Mutex<StoredLogin>,
}

/// Identifies a version of the file.
#[derive(PartialEq, Eq)]
pub(super) struct LoginFileStamp(u64, u64, i64, i64);

/// Held by whoever reads, renews and saves.
pub(super) struct Lock(#[expect(dead_code, reason = "it is held, not used")] Option<File>);

impl LoginStore {
    pub(super) fn new(data_dir: Option<&Path>, name: &str) -> Self {
        let file = data_dir.map(|dir| dir.join("logins").join(format!("{name}.json")));
        Self {
            file,
            memory: Mutex::default(),
        }
    }

    /// What is kept; nothing when there is no file.
    pub(super) fn load(&self) -> io::Result<StoredLogin> {
        let Some(file) = &self.file else {
            return Ok(self.memory().clone());
        };
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(StoredLogin::default());
            }
            Err(error) => return Err(with_path(file, &error)),
        };
        // The reason would quote the file.
        serde_json::from_slice(&bytes).map_err(|_| {
            let what = io::Error::other("it is damaged; log out and in again");
            with_path(file, &what)
        })
    }

    /// Identity of the file that is there; `None` when there is none.
    pub(super) fn stamp(&self) -> Option<LoginFileStamp> {
        let file = self.file.as_ref()?.metadata().ok()?;
        let (inode, size) = (file.ino(), file.size());
        Some(LoginFileStamp(inode, size, file.mtime(), file.mtime_nsec()))
    }

    /// Replaces what is kept. The lock must be held.
    pub(super) fn save(&self, kept: &StoredLogin) -> io::Result<()> {
        let Some(file) = &self.file else {
            *self.memory() = kept.clone();
            return Ok(());
        };
        let write = || {
            let new = file.with_extension(format!("new-{}", std::process::id()));
            let _ = std::fs::remove_file(&new);
            let mut to = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&new)?;
            to.write_all(&serde_json::to_vec(kept)?)?;
            to.sync_all()?;
            std::fs::rename(&new, file)
        };
        write().map_err(|error| with_path(file, &error))
    }

    /// Forgets everything. False when there was nothing.
    pub(super) fn remove(&self) -> io::Result<bool> {
        let Some(file) = &self.file else {
            let kept = std::mem::take(&mut *self.memory());
            return Ok(kept.current.is_some());
        };
        match std::fs::remove_file(file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(with_path(file, &error)),
        }
    }

    /// Waits until no other process changes the file.
    pub(super) async fn lock(&self) -> io::Result<Lock> {
        let Some(file) = &self.file else {
            return Ok(Lock(None));
        };
        let path = file.with_extension("lock");
        if let Some(dir) = path.parent() {
            let mut private = std::fs::DirBuilder::new();
            let made = private.recursive(true).mode(0o700).create(dir);
            made.map_err(|error| with_path(dir, &error))?;
        }
        let open = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let lock = open.map_err(|error| with_path(&path, &error))?;
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock(Some(lock))),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    tokio::time::sleep(LOCK_RETRY_DELAY).await;
                }
                Err(error) => return Err(with_path(&path, &error.into())),
            }
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, StoredLogin> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error with the file that it is about.
fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the login file {}: {error}", path.display()),
    )
}
