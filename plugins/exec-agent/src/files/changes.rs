//! Files of the working directory that a command made or changed.
//!
//! Compares two walks over the directory: inode, size and times of every regular file. A walk
//! looks at [`MAX_ENTRIES`] entries, the upper levels first; it does not enter `.git` and
//! `node_modules` and follows no link. What other programs do there meanwhile is counted too.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};

use super::beneath::is_temporary;

/// Maximum number of entries that a walk looks at.
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of entries of a small directory, which needs no thread.
const FEW_ENTRIES: usize = 64;
/// Directories that are not entered: they are large, and nobody wants their files one by one.
const SKIPPED_DIRS: &[&str] = &[".git", "node_modules"];
/// File times are as coarse as the kernel's tick.
const TICK: Duration = Duration::from_millis(20);

/// The regular files of a directory at one moment.
#[derive(Debug)]
pub struct DirectorySnapshot {
    files: HashMap<PathBuf, FileFingerprint>,
    is_truncated: bool,
    taken_at: SystemTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileFingerprint {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// The files that a command changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// New and modified files, in the order of their paths.
    pub files: Vec<FileChange>,
    /// Number of further changes whose names are not UTF-8.
    pub unnamed_count: usize,
    /// Whether the directory has more entries than were looked at.
    pub is_truncated: bool,
}

/// A file that a command made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Below the directory that was looked at.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Number of the state that it was left in, as [`file_state`] has it.
    pub state: u64,
}

impl DirectorySnapshot {
    /// Looks at a directory.
    #[must_use]
    pub fn take(dir: &Path) -> Self {
        Self::scan(dir, MAX_ENTRIES)
    }

    /// A snapshot of a small directory; nothing for any other.
    #[must_use]
    pub fn small(dir: &Path) -> Option<Self> {
        let snapshot = Self::scan(dir, FEW_ENTRIES);
        (!snapshot.is_truncated).then_some(snapshot)
    }

    /// Whether the directory has so few entries that a look at it takes next to no time.
    #[must_use]
    pub fn is_small(&self) -> bool {
        !self.is_truncated && self.files.len() <= FEW_ENTRIES
    }

    fn scan(dir: &Path, entries: usize) -> Self {
        let mut snapshot = Self {
            files: HashMap::new(),
            is_truncated: false,
            taken_at: SystemTime::now(),
        };
        snapshot.walk(dir, entries);
        snapshot
    }

    /// The changes since the snapshot.
    #[must_use]
    pub fn changes(&self, dir: &Path) -> FileChanges {
        self.compare(Self::take(dir))
    }

    /// The changes of a directory that was small and is; nothing for any other.
    #[must_use]
    pub fn few_changes(&self, dir: &Path) -> Option<FileChanges> {
        if !self.is_small() {
            return None;
        }
        Some(self.compare(Self::small(dir)?))
    }

    fn compare(&self, now: Self) -> FileChanges {
        let mut changes = FileChanges {
            is_truncated: now.is_truncated,
            ..FileChanges::default()
        };
        let mut changed: Vec<_> = now
            .files
            .into_iter()
            .filter(|(path, stamp)| self.is_changed(path, stamp))
            .collect();
        changed.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (path, stamp) in changed {
            match path.into_os_string().into_string() {
                Ok(path) => changes.files.push(FileChange {
                    path,
                    size: stamp.size,
                    state: stamp.number(),
                }),
                Err(_) => changes.unnamed_count += 1,
            }
        }
        changes
    }

    fn is_changed(&self, path: &Path, stamp: &FileFingerprint) -> bool {
        match self.files.get(path) {
            Some(before) => before != stamp,
            // A file that the cut walk may have missed is new only when its times say so.
            None if self.is_truncated => stamp.changed_at() + TICK >= self.taken_at,
            None => true,
        }
    }

    fn walk(&mut self, root: &Path, entries: usize) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(root) = rustix::fs::openat(CWD, root, flags, Mode::empty()) else {
            return;
        };
        let mut left = entries;
        let mut waiting = VecDeque::from([PathBuf::new()]);
        while let Some(path) = waiting.pop_front() {
            let name = if path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                &path
            };
            let Ok(fd) = rustix::fs::openat(&root, name, flags, Mode::empty()) else {
                continue;
            };
            let Ok(mut dir) = Dir::new(fd) else { continue };
            while let Some(Ok(entry)) = dir.read() {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." || is_temporary(name) {
                    continue;
                }
                if left == 0 {
                    self.is_truncated = true;
                    return;
                }
                left -= 1;
                if matches!(entry.file_type(), FileType::Symlink) {
                    continue;
                }
                let at = dir.fd();
                let Ok(stat) = at.and_then(|at| {
                    rustix::fs::statat(at, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                }) else {
                    continue;
                };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => {
                        self.files
                            .insert(path.join(name), FileFingerprint::of(&stat));
                    }
                    FileType::Directory if !SKIPPED_DIRS.iter().any(|skipped| name == *skipped) => {
                        waiting.push_back(path.join(name));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl FileFingerprint {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the types of these fields differ from system to system"
    )]
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    fn changed_at(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.changed;
        UNIX_EPOCH
            + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            + Duration::from_nanos(nanoseconds)
    }

    /// One number for all of it (FNV-1a).
    fn number(&self) -> u64 {
        let (seconds, nanoseconds) = self.changed;
        let words = [
            self.device,
            self.inode,
            self.size,
            seconds.cast_unsigned(),
            nanoseconds,
        ];
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// Number of the state of the file at a path, the same for whoever looks on that machine: another one
/// once the file is changed or is another one. Nothing where there is none.
#[must_use]
pub fn file_state(path: &Path) -> Option<u64> {
    let found = rustix::fs::lstat(path).ok()?;
    Some(FileFingerprint::of(&found).number())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(changes: &FileChanges) -> Vec<&str> {
        let names = changes.files.iter().map(|change| change.path.as_str());
        names.collect()
    }

    #[test]
    fn b24_new_and_changed_files_are_found_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("sub/deep")).unwrap();
        fs::create_dir_all(at(".git")).unwrap();
        for name in ["same", "longer", "replaced", "gone", "sub/deep/same"] {
            fs::write(at(name), "1").unwrap();
        }
        let before = DirectorySnapshot::take(dir.path());
        fs::write(at("longer"), "12").unwrap();
        fs::write(at("temporary"), "2").unwrap();
        fs::rename(at("temporary"), at("replaced")).unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::write(at("sub/deep/new"), "").unwrap();
        fs::write(at(".git/index"), "").unwrap();
        fs::write(at(".hidden"), "").unwrap();
        symlink("/etc/passwd", at("link")).unwrap();
        let changes = before.changes(dir.path());
        assert_eq!(
            names(&changes),
            [".hidden", "longer", "replaced", "sub/deep/new"]
        );
        assert_eq!((changes.unnamed_count, changes.is_truncated), (0, false));
    }

    #[test]
    fn a_file_that_another_agent_writes_is_none_yet() {
        let dir = tempfile::tempdir().unwrap();
        let before = DirectorySnapshot::take(dir.path());
        let others = [".conjure-a.tmp", ".conjure-1-x.tmp", ".conjure-1.tmp"];
        for name in [".conjure-1-9.tmp"].iter().chain(&others) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let changes = before.changes(dir.path());
        assert_eq!(names(&changes), [others[1], others[2], others[0]]);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let before = DirectorySnapshot::take(dir.path());
        fs::write(dir.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        assert_eq!(before.changes(dir.path()).unnamed_count, 1);
    }

    #[test]
    fn a_directory_with_too_many_entries_is_cut_and_said_so() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..=MAX_ENTRIES {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        let before = DirectorySnapshot::take(dir.path());
        assert!(before.is_truncated);
        assert_eq!(before.files.len(), MAX_ENTRIES);
        assert!(before.changes(dir.path()).is_truncated);
    }
}
