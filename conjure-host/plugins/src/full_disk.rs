//! Failures of a disk that has no room, which say nothing about the plugin that was to be on it.

use std::io;

use super::{InstallError, LockError, PluginError};

impl PluginError {
    /// Whether there was no room on the host's disk.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Store { source, .. } if is_full(source))
    }
}

impl InstallError {
    /// Whether there was no room on the disk that plugins are installed on.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io(error) | Self::Lock(LockError::Write { source: error, .. }) => is_full(error),
            Self::Plugin(error) => error.is_disk_full(),
            _ => false,
        }
    }
}

/// What to do where the copy that is opened could not be made.
pub(super) fn store_remedy(source: &io::Error) -> &'static str {
    match is_full(source) {
        true => "Make room on its disk, then try again",
        false => "Check that the directory is yours and has mode 0700",
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), QuotaExceeded | StorageFull)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_directory_that_is_not_the_hosts() {
        let store = |kind: io::ErrorKind| PluginError::Store {
            path: "libx.so".into(),
            store: "store".into(),
            source: Arc::new(kind.into()),
        };
        let full = store(io::ErrorKind::StorageFull);
        assert!(full.is_disk_full() && full.to_string().contains("Make room"));
        let other = store(io::ErrorKind::PermissionDenied);
        assert!(!other.is_disk_full() && other.to_string().contains("mode 0700"));
        assert!(InstallError::from(io::Error::from(io::ErrorKind::StorageFull)).is_disk_full());
    }
}
