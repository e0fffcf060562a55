//! A mark on files that the host itself put somewhere, which any process finds that meets one.
//!
//! The mark is an extended attribute with the file's name and the hash of its content: what a command
//! makes of a copy, and a copy of the copy under another name, is not marked. A file system without
//! attributes has no marks.

use std::path::Path;

#[cfg(unix)]
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};

/// Below `user.`, the only names that a program without privileges may use.
const NAME: &str = "user.conjure.copy";
/// The most bytes of a mark: a hash, and a name.
const BYTES: usize = 512;

/// Marks a file as a copy with this content.
pub fn mark(path: &Path, sha256: &str) {
    if let Some(value) = value(path, sha256) {
        write(path, &value);
    }
}

/// Whether a file is marked as a copy. Its hash is asked for only then.
pub fn is_marked(path: &Path, sha256: impl FnOnce() -> Option<String>) -> bool {
    let Some(found) = read(path) else {
        return false;
    };
    let expected = sha256().and_then(|sha256| value(path, &sha256));
    expected.is_some_and(|value| value.as_bytes() == found)
}

fn value(path: &Path, sha256: &str) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    Some(format!("{sha256} {name}")).filter(|value| value.len() <= BYTES)
}

#[cfg(unix)]
fn write(path: &Path, value: &str) {
    // Without it other processes may take the file for a new one, no worse.
    let _ = lsetxattr(path, NAME, value.as_bytes(), XattrFlags::empty());
}

#[cfg(unix)]
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut buffer = vec![0_u8; BYTES];
    let length = lgetxattr(path, NAME, &mut buffer[..]).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

#[cfg(not(unix))]
fn write(_path: &Path, _value: &str) {}

#[cfg(not(unix))]
fn read(_path: &Path) -> Option<Vec<u8>> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_for_one_name_and_one_content() {
        let dir = tempfile::tempdir().unwrap();
        let (copy, other) = (dir.path().join("copy"), dir.path().join("other"));
        std::fs::write(&copy, "1").unwrap();
        let is = |path: &Path, sha256: &str| is_marked(path, || Some(sha256.to_owned()));
        assert!(!is(&copy, "aa"));
        mark(&copy, "aa");
        assert!(is(&copy, "aa") && !is(&copy, "bb"));
        std::fs::rename(&copy, &other).unwrap();
        assert!(!is(&other, "aa"));
        assert!(!is(&copy, "aa"));
    }
}
