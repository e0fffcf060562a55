//! What the users of containers may read, made so that they may.
//!
//! A worker may set no modes, and one that it sets on an open file is left as it was. So files and
//! directories get theirs when they are made; setting it after that only undoes what the user's mask
//! took away, where that is allowed.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Mode of a directory and of a program.
pub(crate) const EXECUTABLE_MODE: u32 = 0o755;
/// Mode of any other file.
pub(crate) const READABLE_MODE: u32 = 0o644;

/// Makes a directory that everybody may enter, or lets everybody into the one that is there.
///
/// # Errors
/// The system's.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(EXECUTABLE_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    set_mode(&File::open(path)?, EXECUTABLE_MODE)
}

/// Makes a file with a mode.
///
/// # Errors
/// The system's, also that there is one already.
pub(crate) fn make_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path)?;
    set_mode(&file, mode)?;
    Ok(file)
}

/// Makes a program.
///
/// # Errors
/// As of [`make_file`].
pub(crate) fn make_program(path: &Path, bytes: &[u8]) -> io::Result<()> {
    make_file(path, EXECUTABLE_MODE)?.write_all(bytes)
}

/// Copies a file, which gets this mode.
///
/// # Errors
/// As of [`make_file`].
pub(crate) fn copy_file(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let mut source = File::open(from)?;
    io::copy(&mut source, &mut make_file(to, mode)?)?;
    Ok(())
}

fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_made_has_its_mode_and_what_is_there_is_let_open_or_left() {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, there) = (scratch.path().join("dir"), scratch.path().join("there"));
        fs::create_dir(&there).unwrap();
        fs::set_permissions(&there, Permissions::from_mode(0o700)).unwrap();
        make_dir(&dir).unwrap();
        make_dir(&there).unwrap();
        make_program(&dir.join("program"), b"x").unwrap();
        copy_file(&dir.join("program"), &dir.join("text"), READABLE_MODE).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&dir), mode(&there)], [EXECUTABLE_MODE; 2]);
        assert_eq!(mode(&dir.join("program")), EXECUTABLE_MODE);
        assert_eq!(mode(&dir.join("text")), READABLE_MODE);
        assert_eq!(fs::read(dir.join("text")).unwrap(), b"x");
        let again = make_program(&dir.join("program"), b"y").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let no_dir = make_dir(&dir.join("program")).unwrap_err();
        assert_eq!(no_dir.kind(), io::ErrorKind::AlreadyExists);
    }
}
