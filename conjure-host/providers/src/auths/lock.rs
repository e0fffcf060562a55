//! One program at a time changes saved auths.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::AuthError;

/// How long another program may take.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Held for as long as it is not dropped; the system lets go of it when the process ends.
pub(super) struct AuthsLock {
    _file: File,
}

/// Waits until nobody else changes the auths of this directory of data.
pub(super) async fn lock(data_dir: &Path) -> Result<AuthsLock, AuthError> {
    let path = data_dir.join("auths.lock");
    conjure_config::fs::create_private_dir(data_dir).map_err(AuthError::Lock)?;
    match conjure_config::fs::create_new(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(AuthError::Lock(error));
        }
        _ => {}
    }
    let file = conjure_config::fs::open(&path).map_err(AuthError::Lock)?;
    let locked = async {
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    match tokio::time::timeout(LOCK_TIMEOUT, locked).await {
        Ok(()) => Ok(AuthsLock { _file: file }),
        Err(_) => Err(AuthError::Locked { path }),
    }
}
