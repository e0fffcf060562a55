//! A small file system that tests fill, and of which they say that it can only be read.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::KitError;

/// A small file system; unmounted with this value.
#[derive(Debug)]
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// One of so many bytes. Nothing where this user may mount none: the test is left out then, and
    /// says so.
    #[must_use]
    #[expect(clippy::print_stdout, reason = "what is left out is read there")]
    pub fn mount(bytes: u32) -> Option<Self> {
        let dir = TempDir::new().ok()?;
        let options = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(dir.path())
            .output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(dir));
        }
        println!("LEFT OUT: root: the test mounts a file system");
        None
    }

    /// Root of the mounted file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Mounts it again with an option, such as `ro`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn remount(&self, option: &str) -> Result<(), KitError> {
        let done = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.path())
            .status();
        let failed = KitError::file(self.path());
        match done {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(std::io::Error::other(status.to_string()))),
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes all the room that is left.
    ///
    /// # Errors
    /// When not even an empty file can be made.
    pub fn fill(&self) -> Result<(), KitError> {
        let path = self.filler();
        let mut filler = File::create(&path).map_err(KitError::file(path))?;
        // The file is closed at the end: what is open keeps its room when it is removed.
        while filler.write_all(&[1; 4096]).is_ok() {}
        Ok(())
    }

    /// Gives back what was taken.
    ///
    /// # Errors
    /// When nothing was.
    pub fn make_room(&self) -> Result<(), KitError> {
        let path = self.filler();
        std::fs::remove_file(&path).map_err(KitError::file(path))
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
