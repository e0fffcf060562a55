//! Builds that hung while they were loaded, so that not every host waits for them again.
//!
//! A record counts for the very bytes, and for as long as their file is the one that hung: where it is
//! put there again, as `conjure plugin reload` does, it is tried again. Another build of the host tries
//! it again as well, and so does every host that is started an hour later: a machine that was slow once
//! is no fault of the plugin's.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::file::FileIdentity;
use super::library_records::HOST_BUILD;
use super::{CopyStore, PluginFile, Sha256};

/// How long a record counts.
const RECORD_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// A build hung when it was loaded last, and its file is the same.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "{}: {name} {version} did not end loading within {limit:?} when it was loaded last, so it is not \
     waited for again. Tell its author, or use another version; to have it tried again `conjure plugin \
     check` it, or `conjure plugin reload {name}` where it is installed",
    path.display()
)]
pub struct PreviousHang {
    /// The file.
    pub path: PathBuf,
    /// The plugin's name.
    pub name: String,
    /// The plugin's version.
    pub version: String,
    /// How long it was waited for.
    pub limit: Duration,
}

/// What is kept of a build that hung.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HangRecord {
    sha256: Sha256,
    file: FileIdentity,
    /// How long it was waited for.
    limit_ms: u64,
    /// When that was.
    #[serde(default)]
    at_ms: u64,
}

impl HangRecord {
    /// Whether it hung within the last hour. A clock that was set back is no reason to wait longer.
    fn is_recent(&self, now_ms: u64) -> bool {
        Duration::from_millis(self.at_ms.abs_diff(now_ms)) < RECORD_LIFETIME
    }
}

/// Refuses what hung when it was loaded last.
///
/// # Errors
/// [`PreviousHang`].
pub(super) fn refuse(store: &CopyStore, file: &PluginFile) -> Result<(), PreviousHang> {
    let record = store.record(&key(&file.path));
    let record = record.and_then(|json| serde_json::from_slice::<HangRecord>(&json).ok());
    let now_ms = now_ms();
    let is_it = |record: &HangRecord| (record.sha256, record.file) == (file.sha256, file.identity);
    match record.filter(|record| is_it(record) && record.is_recent(now_ms)) {
        None => Ok(()),
        Some(record) => Err(PreviousHang {
            path: file.path.clone(),
            name: file.header.name.clone(),
            version: file.header.version.clone(),
            limit: Duration::from_millis(record.limit_ms),
        }),
    }
}

/// Keeps that a build hung.
pub(super) fn remember(store: &CopyStore, file: &PluginFile, limit: Duration) {
    let record = HangRecord {
        sha256: file.sha256,
        file: file.identity,
        limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        at_ms: now_ms(),
    };
    let written = serde_json::to_vec(&record)
        .map_err(std::io::Error::from)
        .and_then(|json| store.put_record(&key(&file.path), &json));
    if let Err(error) = written {
        tracing::debug!("that {} hung is not kept: {error}", file.path.display());
    }
}

/// Forgets that what is at a path hung.
pub(super) fn forget(store: &CopyStore, path: &Path) {
    store.remove_record(&key(path));
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The name of the record of a path, however that is spelt, for this build of the host.
fn key(path: &Path) -> Sha256 {
    let real = path.canonicalize();
    let path = real.as_deref().unwrap_or(path);
    let mut bytes = format!("{}hung ", *HOST_BUILD).into_bytes();
    bytes.extend_from_slice(path.as_os_str().as_encoded_bytes());
    Sha256::of(&bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn one_slow_load_is_forgotten_after_an_hour() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let record = HangRecord {
            sha256: Sha256::of(b"a build"),
            file: FileIdentity::of(file.path()).unwrap(),
            limit_ms: 10_000,
            at_ms: 5_000_000,
        };
        let hour = 60 * 60 * 1000;
        for (now_ms, is_recent) in [
            (5_000_000, true),
            (5_000_000 + hour - 1, true),
            (5_000_000 + hour, false),
            (4_999_999, true),
            (5_000_000 - hour, false),
        ] {
            assert_eq!(record.is_recent(now_ms), is_recent, "{now_ms}");
        }
        // Hosts of before said nothing of when it was.
        let mut old: Value = serde_json::to_value(&record).unwrap();
        old.as_object_mut().unwrap().remove("at_ms");
        let old: HangRecord = serde_json::from_value(old).unwrap();
        assert!(!old.is_recent(now_ms()));
    }
}
