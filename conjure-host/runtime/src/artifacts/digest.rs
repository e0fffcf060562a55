//! The hash and the size of a file.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Bytes that take longer to hash than a task should keep others waiting.
pub(super) const LARGE: u64 = 1024 * 1024;

/// The hash and the size of the regular file at a path without links. Lets the other tasks of a worker
/// thread move on when it is large.
pub(crate) fn digest_aside(path: &Path) -> std::io::Result<(String, u64)> {
    let (file, size, _) = conjure_config::fs::open_same(path)?;
    digest_of(file, size)
}

/// The same of an open file, from where it is read on.
pub(super) fn digest_of(file: impl Read, size: u64) -> std::io::Result<(String, u64)> {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let on_worker = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if on_worker && size > LARGE {
        tokio::task::block_in_place(|| digest(file))
    } else {
        digest(file)
    }
}

/// SHA-256 in lower-case hex, and bytes.
fn digest(mut file: impl Read) -> std::io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        size += read as u64;
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok((hex, size))
}
