//! Removes a session's directory with all that commands left in it, and nothing that is only mounted
//! there.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The system's list of mounts.
const MOUNT_INFO: &str = "/proc/self/mountinfo";

/// Removes a directory.
///
/// # Errors
/// What stays, and why. Where something is mounted in it all of it stays.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    let name = dir.file_name().ok_or(ErrorKind::InvalidInput)?;
    let above = dir.parent().ok_or(ErrorKind::InvalidInput)?;
    let whole = above.canonicalize()?.join(name);
    // A link that commands put in its place leads to what is none of ours.
    if !fs::symlink_metadata(&whole)?.is_dir() {
        return Err(io::Error::new(
            ErrorKind::NotADirectory,
            format!("{} is no directory any more", whole.display()),
        ));
    }
    let mounts = fs::read(MOUNT_INFO).unwrap_or_default();
    if let Some(mounted) = find_mount_below(&mounts, &whole) {
        return Err(io::Error::other(format!(
            "{} stays as it is, since something is mounted at {}",
            whole.display(),
            mounted.display()
        )));
    }
    match fs::remove_dir_all(&whole) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            // What commands made read-only, such as stores of downloaded modules.
            make_writable(&whole);
            fs::remove_dir_all(&whole)
        }
        removed => removed,
    }
    .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", whole.display())))
}

/// Lets the user change every directory below one, as far as these are the user's.
fn make_writable(dir: &Path) {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        // What cannot be changed is told by the removal.
        let _ = fs::set_permissions(&dir, Permissions::from_mode(0o700));
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.extend(below.map(|entry| entry.path()));
    }
}

/// The first thing that is mounted below a directory, or at it.
fn find_mount_below(mounts: &[u8], dir: &Path) -> Option<PathBuf> {
    let lines = mounts.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let mut points = points.map(|point| PathBuf::from(OsString::from_vec(unescaped(point))));
    points.find(|point| point.starts_with(dir))
}

/// A path as it is: the system writes blanks and the like as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = others.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_in_a_directory_is_found_by_its_whole_path() {
        let mounts = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            99 22 0:21 / /tmp/a\\040b/work/dev rw - devtmpfs udev rw\n\
            98 22 0:21 / /tmp/abc rw - tmpfs x rw\n";
        let below = |dir: &str| find_mount_below(mounts, Path::new(dir));
        assert_eq!(below("/tmp/a b"), Some("/tmp/a b/work/dev".into()));
        assert_eq!(below("/tmp/abc"), Some("/tmp/abc".into()));
        assert_eq!(below("/tmp/ab"), None);
        assert_eq!(below("/tmp/a"), None);
    }

    #[test]
    fn what_was_made_read_only_is_removed_too() {
        let dir = std::env::temp_dir().join(format!("removing-{}", std::process::id()));
        let deep = dir.join("one/two");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        fs::set_permissions(&deep, Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(dir.join("one"), Permissions::from_mode(0o500)).unwrap();
        remove(&dir).unwrap();
        assert!(!dir.exists());
        assert_eq!(remove(&dir).unwrap_err().kind(), ErrorKind::NotFound);
        let other = dir.with_extension("other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &dir).unwrap();
        assert_eq!(remove(&dir).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert!(other.is_dir());
        fs::remove_file(&dir).unwrap();
        fs::remove_dir(&other).unwrap();
    }
}
