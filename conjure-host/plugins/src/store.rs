//! The host's own copies of the libraries it opens, by hash.
//!
//! A library that is open is mapped from its file: writing to that file, cutting it or copying
//! over it would end the process. So what is opened is a copy that only the host's user can
//! reach, and whose bytes are those that were judged. Also keeps each library's manifest, so that
//! what a plugin offers can be told without running it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Sha256, program};
use conjure_config::fs;
use conjure_config::platform::{self, LIBRARY_EXTENSION};

/// Copies that no host has opened for this long are removed.
const COPY_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What is left of a write that never ended is removed after this long.
const TEMPORARY_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How often it is said that a copy is in use.
const TOUCH_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The place of the copies: a directory with mode 0700, shared by all hosts of one user.
#[derive(Debug, Clone)]
pub struct CopyStore {
    dir: PathBuf,
}

impl CopyStore {
    /// Opens the store, makes its directory, and removes what has not been used for 30 days. The paths of
    /// its copies are without links: a worker is granted a copy by its path, and opens it from there.
    ///
    /// # Errors
    /// When the directory cannot be made, belongs to somebody else or is open to others.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_private_dir(&dir)?;
        // Before links are resolved: the directory itself must be none.
        Self { dir: dir.clone() }.check()?;
        let store = Self {
            dir: dir.canonicalize()?,
        };
        store.check()?;
        store.sweep();
        Ok(store)
    }

    /// Where the copies are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes sure that the copy is there and holds exactly these bytes, and gives its path.
    ///
    /// # Errors
    /// The system's; what was there before is then as it was.
    pub fn put(&self, sha256: &Sha256, bytes: &[u8]) -> io::Result<PathBuf> {
        self.check()?;
        let path = self.copy_path(sha256);
        // A process that opens a copy may use that very file alone, so one that is right is never replaced,
        // also not by a host that puts the same copy there at this moment.
        if std::fs::symlink_metadata(&path).is_err() && fs::write_new_private(&path, bytes).is_ok()
        {
            return Ok(path);
        }
        if has_bytes(&path, bytes)? {
            self.touch(sha256);
        } else {
            fs::write_atomic(&path, bytes)?;
        }
        Ok(path)
    }

    /// The copy of a library, if it is there and holds what it should.
    pub(super) fn verified_copy(&self, sha256: &Sha256) -> Option<PathBuf> {
        self.check().ok()?;
        let path = self.copy_path(sha256);
        let bytes = std::fs::read(&path).ok()?;
        (Sha256::of(&bytes) == *sha256).then_some(path)
    }

    /// A directory with the files of a program, as its bundle in the copy has them: where none is there
    /// so, a new one.
    ///
    /// # Errors
    /// What is wrong with the bundle, or the system's.
    pub(super) fn unpack(&self, sha256: &Sha256, copy: &Path) -> Result<PathBuf, String> {
        let bytes = fs::read(copy).map_err(|error| error.to_string())?;
        program::unpack(copy, &bytes, &self.dir, &sha256.to_string())
    }

    /// Where the copy of a library is, if there is one.
    pub(super) fn copy_path(&self, sha256: &Sha256) -> PathBuf {
        self.dir.join(format!("{sha256}.{LIBRARY_EXTENSION}"))
    }

    /// Says once a day that a copy is in use; whether it was said now. If it cannot be said, the
    /// copy is made again one day.
    pub(super) fn touch(&self, sha256: &Sha256) -> bool {
        let path = self.copy_path(sha256);
        let modified = std::fs::metadata(&path).and_then(|m| m.modified());
        let is_fresh = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < TOUCH_INTERVAL));
        let say = |file: std::fs::File| file.set_modified(SystemTime::now());
        !is_fresh && std::fs::File::open(&path).and_then(say).is_ok()
    }

    /// What was kept under a key; nothing where the store is no longer the user's alone.
    pub(super) fn record(&self, key: &Sha256) -> Option<Vec<u8>> {
        self.check().ok()?;
        std::fs::read(self.record_path(key)).ok()
    }

    /// Keeps something under a key.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn put_record(&self, key: &Sha256, json: &[u8]) -> io::Result<()> {
        self.check()?;
        fs::write_atomic(self.record_path(key), json)
    }

    /// Keeps nothing under a key any more.
    pub(super) fn remove_record(&self, key: &Sha256) {
        let _ = std::fs::remove_file(self.record_path(key));
    }

    fn record_path(&self, key: &Sha256) -> PathBuf {
        self.dir.join(format!("{key}.known.json"))
    }

    /// The manifest that was kept for a library, as its bytes.
    pub fn manifest(&self, sha256: &Sha256) -> Option<Vec<u8>> {
        std::fs::read(self.manifest_path(sha256)).ok()
    }

    /// Keeps a library's manifest.
    ///
    /// # Errors
    /// The system's.
    pub fn put_manifest(&self, sha256: &Sha256, manifest: &[u8]) -> io::Result<()> {
        if self.manifest(sha256).as_deref() == Some(manifest) {
            return Ok(());
        }
        fs::write_atomic(self.manifest_path(sha256), manifest)
    }

    fn manifest_path(&self, sha256: &Sha256) -> PathBuf {
        self.dir.join(format!("{sha256}.manifest.json"))
    }

    /// Whether the directory is still the user's alone.
    fn check(&self) -> io::Result<()> {
        platform::check_private_dir(&self.dir)
    }

    /// Removes what is old. A library that is open somewhere stays mapped there.
    fn sweep(&self) {
        let entries = fs::entries(&self.dir).unwrap_or_default();
        let (dirs, files): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .partition(|path| std::fs::symlink_metadata(path).is_ok_and(|there| there.is_dir()));
        for path in files {
            let keep = if path.extension().is_some_and(|e| e == "tmp") {
                TEMPORARY_RETENTION
            } else {
                COPY_RETENTION
            };
            if age(&path) > keep {
                let _ = std::fs::remove_file(&path);
            }
        }
        self.sweep_dirs(&dirs);
    }

    /// Removes directories with the files of a program. The one that was used last stays as long as its
    /// copy does. Another may be one that was altered, and what runs in it has a while to end.
    fn sweep_dirs(&self, dirs: &[PathBuf]) {
        let is_files = |path: &&PathBuf| {
            path.extension()
                .is_some_and(|e| e == program::FILES_EXTENSION)
        };
        let mut last: HashMap<PathBuf, (Duration, &PathBuf)> = HashMap::new();
        for path in dirs.iter().filter(is_files) {
            let used = (age(path), path);
            let there = last.entry(self.copy_of_dir(path)).or_insert(used);
            *there = (*there).min(used);
        }
        for path in dirs {
            let copy = self.copy_of_dir(path);
            let is_last = last.get(&copy).is_some_and(|(_, last)| *last == path);
            let stays = match is_last {
                true => copy.exists(),
                false => age(path) <= TEMPORARY_RETENTION,
            };
            if !stays {
                let _ = fs::remove_dir_all(path);
            }
        }
    }

    /// The copy that a directory is from, by their names.
    fn copy_of_dir(&self, dir: &Path) -> PathBuf {
        let name = dir.file_name().and_then(|name| name.to_str());
        let hash = name.and_then(|name| name.split('.').next());
        self.dir
            .join(format!("{}.{LIBRARY_EXTENSION}", hash.unwrap_or_default()))
    }
}

/// Whether there is a file with these bytes, which no link leads to.
fn has_bytes(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.is_file() && fs::read(path)? == bytes),
        Err(_) => Ok(false),
    }
}

/// How long ago the very thing at a path was written to.
fn age(path: &Path) -> Duration {
    let modified = std::fs::symlink_metadata(path).and_then(|there| there.modified());
    let age = modified.ok().and_then(|modified| modified.elapsed().ok());
    age.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, CopyStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = CopyStore::open(dir.path().join("store")).unwrap();
        (dir, store)
    }

    #[test]
    fn a_copy_that_was_tampered_with_is_made_again() {
        let (_dir, store) = store();
        let sha256 = Sha256::of(b"library");
        let path = store.put(&sha256, b"library").unwrap();
        std::fs::write(&path, b"tampered").unwrap();
        assert_eq!(store.put(&sha256, b"library").unwrap(), path);
        assert_eq!(std::fs::read(&path).unwrap(), b"library");
    }

    #[test]
    fn hosts_that_put_a_copy_there_at_once_have_one_file() {
        use std::os::unix::fs::MetadataExt as _;
        let (_dir, store) = store();
        let bytes = vec![7; 1 << 20];
        for round in 0..16_u8 {
            let sha256 = Sha256::of(&[round]);
            let barrier = std::sync::Barrier::new(8);
            let files: Vec<u64> = std::thread::scope(|scope| {
                let hosts = [(); 8].map(|()| {
                    scope.spawn(|| {
                        barrier.wait();
                        let path = store.put(&sha256, &bytes).unwrap();
                        std::fs::metadata(path).unwrap().ino()
                    })
                });
                hosts.map(|host| host.join().unwrap()).into()
            });
            assert!(files.iter().all(|file| file == &files[0]), "{files:?}");
        }
    }

    #[test]
    fn a_link_in_place_of_a_copy_is_replaced() {
        let (dir, store) = store();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, b"library").unwrap();
        let sha256 = Sha256::of(b"library");
        let path = store.dir().join(format!("{sha256}.{LIBRARY_EXTENSION}"));
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        store.put(&sha256, b"library").unwrap();
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_store_that_a_link_is_above_has_copies_without_links() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let link = root.join("link");
        std::fs::create_dir(root.join("data")).unwrap();
        std::os::unix::fs::symlink(root.join("data"), &link).unwrap();
        let store = CopyStore::open(link.join("store")).unwrap();
        let copy = store.put(&Sha256::of(b"library"), b"library").unwrap();
        assert_eq!(copy.parent(), Some(&*root.join("data/store")));
        // A link in the place of the directory itself is refused as before.
        std::os::unix::fs::symlink(root.join("data/store"), root.join("data/copies")).unwrap();
        assert!(CopyStore::open(root.join("data/copies")).is_err());
    }

    #[test]
    fn an_open_directory_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = CopyStore::open(dir.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_nobody_uses_any_more_is_swept() {
        let (_dir, store) = store();
        let old = store.put(&Sha256::of(b"old"), b"old").unwrap();
        let new = store.put(&Sha256::of(b"new"), b"new").unwrap();
        let long_ago = SystemTime::now() - COPY_RETENTION - Duration::from_secs(60);
        std::fs::File::open(&old)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        let store = CopyStore::open(store.dir()).unwrap();
        assert_eq!(fs::entries(store.dir()).unwrap(), vec![new]);
    }

    #[test]
    fn of_the_directories_of_a_program_the_last_one_stays_with_its_copy() {
        let (_dir, store) = store();
        let sha256 = Sha256::of(b"bundle");
        let copy = store.put(&sha256, b"bundle").unwrap();
        let other = Sha256::of(b"no copy");
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        let make = |name: String, old: Duration| {
            let dir = store.dir().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("a.py"), "").unwrap();
            let opened = std::fs::File::open(&dir).unwrap();
            opened.set_modified(SystemTime::now() - old).unwrap();
            dir
        };
        let last = make(format!("{sha256}.1-1-1.files"), days(20));
        let young = days(1) - Duration::from_secs(600);
        let writing = make(format!("{sha256}.new-1-2"), young);
        make(format!("{sha256}.files"), days(21));
        make(format!("{sha256}.new-1-1"), days(2));
        make(format!("{sha256}.old-1-1"), days(2));
        make(format!("{other}.files"), Duration::ZERO);
        let swept = CopyStore::open(store.dir()).unwrap();
        let mut expected = vec![copy, last, writing];
        expected.sort();
        assert_eq!(fs::entries(swept.dir()).unwrap(), expected);
    }

    #[test]
    fn a_manifest_is_kept_by_hash() {
        let (_dir, store) = store();
        let sha256 = Sha256::of(b"library");
        assert_eq!(store.manifest(&sha256), None);
        store.put_manifest(&sha256, b"{}").unwrap();
        assert_eq!(store.manifest(&sha256).as_deref(), Some(&b"{}"[..]));
    }
}
