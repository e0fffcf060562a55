//! Files that several people use: what is written anew stays open to the same people.
//!
//! Another file takes the place of the one that is there, as with every atomic write; before anything is
//! written in it, it has the mode and the group of that one, and its owner where that matters.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use super::{path_error, private_file, read_link, replace_atomic, write, write_atomic_for_all};

/// Writes a file in one step as [`write_atomic_for_all`], with the mode and, where the user is in it, the
/// group of the file `like`, which may be the one that is replaced. Where that is not there it is as the
/// user's mask says.
///
/// # Errors
/// The system's, with the path. Nothing is left behind then.
pub fn write_atomic_like(
    path: impl AsRef<Path>,
    bytes: &[u8],
    like: impl AsRef<Path>,
) -> io::Result<()> {
    let path = path.as_ref();
    let Ok(like) = std::fs::metadata(like) else {
        return write_atomic_for_all(path, bytes);
    };
    replace_atomic(path, bytes, |new| {
        let file = private_file(new)?;
        // Who is not in that group writes it all the same.
        let _ = take_on_owners(&file, &like, false);
        file.set_permissions(like.permissions())?;
        Ok(file)
    })
}

/// Writes a file that stays what it is: with its mode, its owner, its group and the links that lead to it.
/// A new one is as the user's mask says. Readers see the old contents or the new ones, unless the file is
/// another user's: then it is written to where it is.
///
/// # Errors
/// The system's, with the path; also where nobody may write to the file that is there.
pub fn write_shared(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    let path = target_of_links(path.as_ref());
    let Ok(there) = std::fs::metadata(&path) else {
        return write_atomic_for_all(&path, bytes);
    };
    check_writable(&path)?;
    let replaced = replace_atomic(&path, bytes, |new| {
        let file = private_file(new)?;
        take_on_owners(&file, &there, true)?;
        file.set_permissions(there.permissions())?;
        Ok(file)
    });
    match replaced {
        // What takes its place would belong to others: it is written to instead.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => write(&path, bytes),
        // Of a full disk above all the error is told: what is there would be lost.
        replaced => replaced,
    }
}

/// Whether the file may be written to, if there is one: by its mode, which a privileged user is not held
/// by, and by whoever asks.
///
/// # Errors
/// The system's, with the path.
pub fn check_writable(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let failed = |error: io::Error| path_error("write", path, &error);
    let there = match std::fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if there.permissions().readonly() {
        let kind = io::ErrorKind::PermissionDenied;
        return Err(failed(io::Error::new(kind, "nobody may write to it")));
    }
    let opened = std::fs::OpenOptions::new().append(true).open(path);
    opened.map(drop).map_err(failed)
}

/// Gives a file the group of another one, and its owner too. To be done before its mode is set, of which
/// the system takes bits away here.
fn take_on_owners(file: &File, like: &Metadata, with_user: bool) -> io::Result<()> {
    let made = file.metadata()?;
    let user = (with_user && made.uid() != like.uid()).then(|| like.uid());
    let group = (made.gid() != like.gid()).then(|| like.gid());
    match (user, group) {
        (None, None) => Ok(()),
        (user, group) => fchown(file, user, group),
    }
}

/// The file that links lead to, also where it is not there yet.
fn target_of_links(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match read_link(path) {
        Ok(target) => path.with_file_name("").join(target),
        Err(_) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_written_anew_is_open_to_the_same_people() {
        let dir = tempfile::tempdir().unwrap();
        let (index, file) = (dir.path().join("index"), dir.path().join("file"));
        write_atomic_like(&index, b"one", &index).unwrap();
        // What no usual mask makes.
        std::fs::set_permissions(&index, std::fs::Permissions::from_mode(0o646)).unwrap();
        write_atomic_like(&file, b"x", &index).unwrap();
        write_atomic_like(&index, b"two", &index).unwrap();
        for path in [&index, &file] {
            let mode = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o646, "{}", path.display());
        }
        assert_eq!(std::fs::read(&index).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_shared_file_stays_what_it_is_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        write_shared(&link, b"one").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o646)).unwrap();
        write_shared(&link, b"two").unwrap();
        let there = std::fs::symlink_metadata(&file).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, 0o646);
        assert!(there.is_file() && link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
        let error = write_shared(&link, b"three").unwrap_err().to_string();
        assert!(error.contains("nobody may write to it"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
