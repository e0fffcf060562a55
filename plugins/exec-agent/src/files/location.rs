//! The location of a directory, told so that two agents which work in the same one are known to.
//!
//! A path says nothing of that: two containers have the same paths, and one volume has another path
//! in each. What is the same for all is the kernel that runs, and the directory's number on its file
//! system. Of a file system that another machine may have too, nothing is known.

use std::path::Path;

/// Separates the parts of a location's text; no part holds one.
const SEPARATOR: char = ' ';

/// The location of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectoryLocation {
    /// The machine, as long as it runs. Empty where the location is not known.
    pub machine: String,
    /// The directory and those that it is in, the nearest first.
    pub dirs: Vec<String>,
}

impl DirectoryLocation {
    /// The location of a directory as far as the system tells it.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        system::location(dir).unwrap_or_default()
    }

    /// The location as one text.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = std::iter::once(&self.machine).chain(&self.dirs);
        let parts: Vec<&str> = parts.map(String::as_str).collect();
        parts.join(&SEPARATOR.to_string())
    }

    /// Reads what [`DirectoryLocation::text`] gave.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let mut parts = text.split(SEPARATOR).map(str::to_owned);
        Self {
            machine: parts.next().unwrap_or_default(),
            dirs: parts.collect(),
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use super::DirectoryLocation;

    /// Other name of the kernel that runs with each of its starts.
    const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
    /// Kinds of file systems that one machine has for itself: ext2 to ext4, XFS, Btrfs, ZFS, F2FS,
    /// bcachefs, tmpfs, ramfs, overlayfs.
    const OWN_KINDS: [u64; 9] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x2fc1_2fc1,
        0xf2f5_2010,
        0xca45_1a4e,
        0x0102_1994,
        0x8584_58f6,
        0x794c_7630,
    ];

    pub(super) fn location(dir: &Path) -> Option<DirectoryLocation> {
        let real = fs::canonicalize(dir).ok()?;
        let kind = rustix::fs::statfs(&real).ok()?.f_type;
        if !is_own(kind) {
            return None;
        }
        let machine = fs::read_to_string(BOOT_ID).ok()?.trim().to_owned();
        let dirs = real.ancestors().map(|dir| {
            let found = fs::metadata(dir).ok()?;
            Some(format!("{}:{}", found.dev(), found.ino()))
        });
        Some(DirectoryLocation {
            machine,
            dirs: dirs.collect::<Option<_>>()?,
        })
    }

    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the type of this field differs from system to system"
    )]
    fn is_own(kind: rustix::fs::FsWord) -> bool {
        OWN_KINDS.contains(&(kind as u64 & 0xffff_ffff))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::path::Path;

    use super::DirectoryLocation;

    pub(super) fn location(_: &Path) -> Option<DirectoryLocation> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_as_it_was_written() {
        for (machine, dirs) in [("m", &["1:2", "1:1"][..]), ("m", &[]), ("", &[])] {
            let location = DirectoryLocation {
                machine: machine.to_owned(),
                dirs: dirs.iter().map(|&dir| dir.to_owned()).collect(),
            };
            assert_eq!(DirectoryLocation::from_text(&location.text()), location);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_has_one_location_by_any_path_and_is_in_that_of_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let (deep, link) = (dir.path().join("deep"), dir.path().join("link"));
        std::fs::create_dir(&deep).unwrap();
        std::os::unix::fs::symlink(&deep, &link).unwrap();
        let (outer, inner) = (
            DirectoryLocation::of(dir.path()),
            DirectoryLocation::of(&deep),
        );
        assert_eq!(inner, DirectoryLocation::of(&link));
        assert_eq!(inner.machine, outer.machine);
        // Nothing is known of some file systems that tests may run on.
        if let [_, above @ ..] = inner.dirs.as_slice() {
            assert_eq!(above, outer.dirs);
        }
        let kernels = DirectoryLocation::of(Path::new("/proc"));
        assert_eq!(
            kernels,
            DirectoryLocation::default(),
            "it has files of no disk"
        );
        let gone = DirectoryLocation::of(&dir.path().join("gone"));
        assert_eq!(gone, DirectoryLocation::default());
    }
}
