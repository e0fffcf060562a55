//! Where a file stays that was fetched from its backend: a later session finds it there again, and
//! so does whoever looks at the thread without one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{Artifact, RecordedFile, safe_name};

impl Artifact {
    /// Path of the file in a cache; `None` where it does not come from a backend.
    pub(super) fn cached_path(&self, cache: &Path) -> Option<PathBuf> {
        let remote = self.remote.as_deref()?;
        Some(cache_path(
            cache,
            [&self.id, self.fetch_backend(), remote],
            &self.name,
        ))
    }
}

impl RecordedFile {
    /// Path of the file in a cache; `None` where it does not come from a backend.
    pub(crate) fn cached_path(&self, cache: &Path) -> Option<PathBuf> {
        let (handle, remote) = (&self.reference.id, self.remote.as_deref()?);
        let name = safe_name(&self.reference.name);
        Some(cache_path(
            cache,
            [handle, self.fetch_backend(), remote],
            &name,
        ))
    }
}

/// Neither a handle nor a backend's own word for a file becomes part of a path: a log that somebody
/// else wrote may hold any.
fn cache_path(cache: &Path, known_by: [&str; 3], name: &str) -> PathBuf {
    let mut hasher = Sha256::new();
    for word in known_by {
        hasher.update((word.len() as u64).to_be_bytes());
        hasher.update(word);
    }
    let mut file = String::with_capacity(17 + name.len());
    for byte in hasher.finalize().iter().take(8) {
        let _ = write!(file, "{byte:02x}");
    }
    file.push('-');
    file.push_str(name);
    // Whoever reads it follows no link; those before the cache are no command's.
    let cache = conjure_config::fs::real_path(cache);
    cache.join(file)
}
