//! The hash and the size of a file.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Bytes that take longer to hash than a task should keep others waiting.
pub(super) const LARGE: u64 = 1024 * 1024;

/// The most bytes of a file that is hashed: 64 GiB, of which an ordinary processor hashes some hundred
/// megabytes a second. A file with holes costs nobody anything to make so large.
pub(super) const MAX_BYTES: u64 = 64 * 1024 * 1024 * 1024;

/// Asked before bytes are hashed: how many, and how many of the file were read with them. The reading ends
/// with its error.
pub(super) type ReadCheck<'a> = &'a dyn Fn(u64, u64) -> std::io::Result<()>;

/// The hash and the size of the regular file at a path without links. Lets the other tasks of a worker
/// thread move on when it is large.
pub(crate) fn digest_path(path: &Path) -> std::io::Result<(String, u64)> {
    digest_checked(path, &|_, _| Ok(()))
}

/// Like [`digest_path`], as long as the check has nothing against it.
pub(super) fn digest_checked(path: &Path, check: ReadCheck<'_>) -> std::io::Result<(String, u64)> {
    let (file, size, _) = conjure_config::fs::open_no_follow(path)?;
    digest_reader(file, size, check)
}

/// Like [`digest_checked`], for an open file, from where it is read on.
pub(super) fn digest_reader(
    file: impl Read,
    size: u64,
    check: ReadCheck<'_>,
) -> std::io::Result<(String, u64)> {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let on_worker = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if size > MAX_BYTES {
        return Err(too_large());
    }
    if on_worker && size > LARGE {
        tokio::task::block_in_place(|| digest(file, check))
    } else {
        digest(file, check)
    }
}

fn too_large() -> std::io::Error {
    std::io::Error::other(
        "it has more than 64 GiB, and no larger file is taken in; cut it into several",
    )
}

/// Why a file is read no further.
pub(super) fn abandoned_error() -> std::io::Error {
    std::io::Error::other("nobody waits for it any more")
}

/// SHA-256 in lower-case hex, and bytes.
fn digest(mut file: impl Read, check: ReadCheck<'_>) -> std::io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        size += read as u64;
        // It may grow while it is read.
        if size > MAX_BYTES {
            return Err(too_large());
        }
        check(read as u64, size)?;
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok((hex, size))
}
