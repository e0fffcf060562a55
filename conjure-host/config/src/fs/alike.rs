//! Files that several people use, written anew with the mode and the group of one that is there.

use std::io;
use std::path::Path;

use super::{rename, write_atomic_for_all};

/// Writes a file in one step as [`write_atomic_for_all`], with the mode and the group of the file `like`,
/// which may be the one that is replaced. Where that is not there it is as the user's mask says. One at a
/// time may write it.
///
/// # Errors
/// The system's, with the path.
pub fn write_atomic_like(
    path: impl AsRef<Path>,
    bytes: &[u8],
    like: impl AsRef<Path>,
) -> io::Result<()> {
    let path = path.as_ref();
    let Ok(like) = std::fs::metadata(like) else {
        return write_atomic_for_all(path, bytes);
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    let written = write_atomic_for_all(&new, bytes)
        .and_then(|()| take_on(&new, &like))
        .and_then(|()| rename(&new, path));
    written.inspect_err(|_| super::remove_file(&new))
}

#[cfg(unix)]
fn take_on(new: &Path, like: &std::fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    if std::fs::metadata(new)?.gid() != like.gid() {
        // Who is not in that group writes it all the same.
        let _ = chown(new, None, Some(like.gid()));
    }
    std::fs::set_permissions(new, like.permissions())
}

#[cfg(not(unix))]
fn take_on(new: &Path, like: &std::fs::Metadata) -> io::Result<()> {
    std::fs::set_permissions(new, like.permissions())
}

#[cfg(all(test, unix))]
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
}
