//! The skills that come to a relay before its agent is there: folders, files and links, below one
//! directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use super::frame::RelayFrame;

/// The directory that they come into.
#[derive(Debug)]
pub(super) struct IncomingFolders {
    dir: PathBuf,
    file: Option<File>,
}

impl IncomingFolders {
    /// An empty one; what was there goes.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn new(dir: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&dir)?;
        Ok(Self { dir, file: None })
    }

    /// Takes one; false when it is none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn take(&mut self, frame: &RelayFrame) -> io::Result<bool> {
        match frame {
            RelayFrame::Folder(path) => fs::create_dir_all(self.path(path)?)?,
            RelayFrame::File { path, executable } => {
                let mode = if *executable { 0o755 } else { 0o644 };
                let mut options = OpenOptions::new();
                let options = options.write(true).create_new(true).mode(mode);
                self.file = Some(options.open(self.path(path)?)?);
            }
            RelayFrame::Content(bytes) => {
                let file = self.file.as_mut();
                file.ok_or_else(|| io::Error::other("content without a file"))?
                    .write_all(bytes)?;
            }
            RelayFrame::Link { path, target } => symlink(target, self.path(path)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn path(&self, path: &str) -> io::Result<PathBuf> {
        let path = Path::new(path);
        let plain = |part| matches!(part, Component::Normal(_));
        if !path.components().all(plain) || path.as_os_str().is_empty() {
            let why = format!("{} is no path of a skill", path.display());
            return Err(io::Error::other(why));
        }
        Ok(self.dir.join(path))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_comes_with_its_files_and_what_was_there_goes() {
        let dir = tempfile::tempdir().unwrap();
        let skills = dir.path().join("skills");
        fs::create_dir_all(skills.join("old")).unwrap();
        let mut incoming = IncomingFolders::new(skills.clone()).unwrap();
        let file = |path: &str, executable| RelayFrame::File {
            path: path.to_owned(),
            executable,
        };
        for frame in [
            RelayFrame::Folder("a/scripts".to_owned()),
            file("a/scripts/run", true),
            RelayFrame::Content(b"ru".to_vec()),
            RelayFrame::Content(b"n".to_vec()),
            file("a/SKILL.md", false),
            RelayFrame::Link {
                path: "a/link".to_owned(),
                target: "scripts/run".to_owned(),
            },
        ] {
            assert!(incoming.take(&frame).unwrap());
        }
        assert!(!incoming.take(&RelayFrame::Close).unwrap());
        assert_eq!(fs::read(skills.join("a/link")).unwrap(), b"run");
        let mode = |name: &str| {
            fs::metadata(skills.join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("a/scripts/run") & 0o100, 0o100);
        assert_eq!(mode("a/SKILL.md") & 0o111, 0);
        assert!(!skills.join("old").exists());
        for path in ["../x", "/x", "", "a/../../x"] {
            assert!(incoming.take(&file(path, false)).is_err(), "{path}");
        }
    }
}
