//! Files where they were known to be: at a path that had no links in it when it was resolved.
//!
//! Commands may put anything in the place of a file that they made, at any time. So a path is not
//! looked at first and opened then: it is opened in one step that follows no link, and everything
//! else is asked of what is open.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::{path_error, remove_file, replace_with_copy, temporary_path};

/// How a directory on the way is opened: it is only gone through, where the system has a word for
/// that.
#[cfg(any(target_os = "linux", target_os = "android"))]
const PASSING: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const PASSING: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// How a file is opened: without waiting for the other end of a pipe.
const FILE_FLAGS: OFlags = OFlags::NONBLOCK
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens a regular file where it was known to be: at a path without links in it, as it was when it
/// was resolved. Gives its size in bytes too, and when it last changed, in nanoseconds since 1970.
///
/// # Errors
/// The system's, with the path; also when it is no regular file, or a link is on the way to it now.
pub fn open_no_follow(path: impl AsRef<Path>) -> io::Result<(File, u64, u128)> {
    let path = path.as_ref();
    let opened = || -> io::Result<(File, u64, u128)> {
        let (file, size) = require_regular_file(open_without_links(path, FILE_FLAGS)?)?;
        let changed = file.metadata()?.modified()?;
        let changed = changed.duration_since(std::time::UNIX_EPOCH);
        Ok((file, size, changed.map_or(0, |since| since.as_nanos())))
    };
    opened().map_err(|e| path_error("open", path, &e))
}

/// Reads a file as [`open_no_follow`] opens it; nothing of one that has more than `most` bytes.
///
/// # Errors
/// As for [`open_no_follow`].
pub fn read_no_follow(path: impl AsRef<Path>, most: u64) -> io::Result<Option<Vec<u8>>> {
    let path = path.as_ref();
    let (file, size, _) = open_no_follow(path)?;
    if size > most {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|e| path_error("read", path, &e))?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Removes a file from where it was known to be; one that is not there, or has a link on the way to it
/// now, is left to whoever put that there.
pub fn remove_no_follow(path: impl AsRef<Path>) {
    let path = path.as_ref();
    if let (Some(dir), Some(name)) = (path.parent(), path.file_name())
        && let Ok(dir) = open_without_links(dir, PASSING)
    {
        let _ = unlinkat(&dir, name, AtFlags::empty());
    }
}

/// Moves a regular file from where it was known to be, also to another file system; what is at `to`
/// is replaced.
///
/// # Errors
/// The system's, with the path; also when it is no regular file, or a link is on the way to it now.
/// The file is where it was then; what was put in its place while it was moved is removed.
pub fn move_no_follow(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    move_from(from, to).map_err(|e| path_error("move", from, &e))
}

fn move_from(from: &Path, to: &Path) -> io::Result<()> {
    let (Some(dir), Some(name)) = (from.parent(), from.file_name()) else {
        return Err(not_regular_file_error());
    };
    let dir = open_without_links(dir, PASSING)?;
    // What is moved is asked again below: this only leaves other things where they are.
    let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !FileType::from_raw_mode(found.st_mode).is_file() {
        return Err(not_regular_file_error());
    }
    // It may be another thing by now, and that replaces nothing.
    let aside = temporary_path(to);
    match renameat(&dir, name, CWD, &aside) {
        Ok(()) if std::fs::symlink_metadata(&aside)?.is_file() => std::fs::rename(&aside, to)
            .inspect_err(|_| {
                let _ = renameat(CWD, &aside, &dir, name);
            }),
        Ok(()) => {
            remove_any(&aside);
            Err(not_regular_file_error())
        }
        Err(_) => {
            let (file, _) = require_regular_file(openat(
                &dir,
                name,
                FILE_FLAGS | OFlags::NOFOLLOW,
                Mode::empty(),
            )?)?;
            replace_with_copy(&file, to)?;
            // The copy is what counts; whoever owns the directory removes the rest with it.
            let _ = unlinkat(&dir, name, AtFlags::empty());
            Ok(())
        }
    }
}

/// Removes what is at a path, a directory with all that is in it; no link is followed.
fn remove_any(path: &Path) {
    if std::fs::remove_dir_all(path).is_err() {
        remove_file(path);
    }
}

/// What is open, with its size, if it is a regular file.
fn require_regular_file(opened: OwnedFd) -> io::Result<(File, u64)> {
    let file = File::from(opened);
    let found = file.metadata()?;
    match found.is_file() {
        true => Ok((file, found.len())),
        false => Err(not_regular_file_error()),
    }
}

fn not_regular_file_error() -> io::Error {
    io::Error::other("it is no regular file")
}

/// Opens what is at an absolute path, if there is no link on the way to it and it is none itself.
fn open_without_links(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut parts = path.components();
    let is_plain = |part| matches!(part, Component::Normal(_));
    if parts.next() != Some(Component::RootDir) || !parts.all(is_plain) {
        return Err(io::Error::other(
            "only an absolute path is sure to mean what it meant",
        ));
    }
    opened(path, flags).map_err(|error| match error {
        Errno::LOOP => io::Error::other("there is a link on the way to it now"),
        error => error.into(),
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn opened(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // An old kernel, or a container engine that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(path, flags),
        opened => opened,
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn opened(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    step_by_step(path, flags)
}

/// Goes from one directory into the next, each of which is held open until then.
fn step_by_step(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut at = openat(CWD, "/", PASSING, Mode::empty())?;
    let mut parts = path.components().skip(1).peekable();
    while let Some(part) = parts.next() {
        let how = if parts.peek().is_some() {
            PASSING
        } else {
            flags
        };
        at = openat(&at, part.as_os_str(), how | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory with a file in a directory, and a secret beside it of the same names.
    fn place() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (below, text) in [("made", "mine"), ("secret", "nobody's")] {
            std::fs::create_dir(root.join(below)).unwrap();
            std::fs::write(root.join(below).join("f"), text).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn no_link_is_followed_wherever_it_is_on_the_way() {
        let (_dir, root) = place();
        let path = root.join("made/f");
        assert_eq!(read_no_follow(&path, 4).unwrap().unwrap(), b"mine");
        assert_eq!(read_no_follow(&path, 3).unwrap(), None);
        assert!(step_by_step(&path, FILE_FLAGS).is_ok());
        // The directory is a link now.
        std::fs::rename(root.join("made"), root.join("old")).unwrap();
        symlink(root.join("secret"), root.join("made")).unwrap();
        let error = open_no_follow(&path).unwrap_err().to_string();
        assert!(error.contains("a link on the way"), "{error}");
        assert!(step_by_step(&path, FILE_FLAGS).is_err());
        assert!(move_no_follow(&path, root.join("moved")).is_err());
        // The file is one.
        let path = root.join("old/f");
        std::fs::remove_file(&path).unwrap();
        symlink(root.join("secret/f"), &path).unwrap();
        assert!(open_no_follow(&path).is_err());
        assert!(step_by_step(&path, FILE_FLAGS).is_err());
        assert!(move_no_follow(&path, root.join("moved")).is_err());
        assert!(path.is_symlink() && !root.join("moved").exists());
        assert_eq!(std::fs::read(root.join("secret/f")).unwrap(), b"nobody's");
    }

    #[test]
    fn only_a_regular_file_at_an_absolute_path_is_opened_and_moved() {
        let (_dir, root) = place();
        for path in [root.clone(), root.join("made/../secret/f"), "f".into()] {
            assert!(open_no_follow(&path).is_err(), "{}", path.display());
        }
        let to = root.join("to");
        assert!(move_no_follow(root.join("made"), &to).is_err());
        move_no_follow(root.join("made/f"), &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"mine");
        assert!(!root.join("made/f").exists());
    }

    #[test]
    fn a_file_is_removed_from_where_it_was_and_from_nowhere_else() {
        let (_dir, root) = place();
        let path = root.join("made/f");
        std::fs::rename(root.join("made"), root.join("old")).unwrap();
        symlink(root.join("secret"), root.join("made")).unwrap();
        remove_no_follow(&path);
        assert!(root.join("secret/f").exists());
        remove_no_follow(root.join("old/f"));
        assert!(!root.join("old/f").exists());
    }

    #[test]
    fn what_is_put_aside_is_removed_whatever_it_is() {
        let (_dir, root) = place();
        let link = root.join("link");
        symlink(root.join("secret"), &link).unwrap();
        for path in [root.join("made"), link] {
            remove_any(&path);
            assert!(path.symlink_metadata().is_err(), "{}", path.display());
        }
        assert!(root.join("secret/f").exists());
    }

    #[test]
    fn a_file_that_cannot_replace_what_is_there_stays_where_it_is() {
        let (_dir, root) = place();
        let path = root.join("made/f");
        assert!(move_no_follow(&path, root.join("secret")).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 2);
    }
}
