//! File operations whose errors name the file.
//!
//! A bare `No such file or directory` helps nobody. Every function here does one thing of
//! `std::fs` and puts operation and path into the message. It decides nothing.

mod no_follow;
mod shared_file;

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

pub use no_follow::{move_no_follow, open_no_follow, read_no_follow, remove_no_follow};
pub use shared_file::{check_writable, write_atomic_like, write_shared};

/// The bytes that are compared at once.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Reads a whole file.
///
/// # Errors
/// The system's, with the path.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    std::fs::read(path).map_err(|e| path_error("read", path, &e))
}

/// Reads a whole file of text.
///
/// # Errors
/// The system's, with the path; also when the text is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    std::fs::read_to_string(path).map_err(|e| path_error("read", path, &e))
}

/// Writes a file so that readers see the old contents or the new ones and nothing in between.
///
/// # Errors
/// The system's, with the path. Nothing is left behind then.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    replace_atomic(path.as_ref(), bytes, private_file)
}

/// As [`write_atomic`], of a file that others may read as the user's mask says.
///
/// # Errors
/// The system's, with the path. Nothing is left behind then.
pub fn write_atomic_for_all(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    replace_atomic(path.as_ref(), bytes, |path| File::create_new(path))
}

fn replace_atomic(
    path: &Path,
    bytes: &[u8],
    create: impl Fn(&Path) -> io::Result<File>,
) -> io::Result<()> {
    use std::io::Write as _;
    let (temporary, mut file) = loop {
        let temporary = temporary_path(path);
        match create(&temporary) {
            Ok(file) => break (temporary, file),
            // Of a process with the same number, on another machine or in another container.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                // It may be there, and not as it should be.
                let _ = std::fs::remove_file(&temporary);
                return Err(path_error("write", path, &e));
            }
        }
    };
    let written = file.write_all(bytes).and_then(|()| {
        drop(file);
        std::fs::rename(&temporary, path)
    });
    written.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        path_error("write", path, &e)
    })
}

/// Makes a directory with its parents, readable by its owner only (mode 0700 where there are
/// modes). One that exists keeps its mode.
///
/// # Errors
/// The system's, with the path.
pub fn create_private_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(path)
        .map_err(|e| path_error("make the directory", path, &e))
}

/// The names in a directory, sorted; empty when there is no such directory.
///
/// # Errors
/// The system's, with the path.
pub fn entries(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    let path = path.as_ref();
    let read = match std::fs::read_dir(path) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(path_error("list", path, &e)),
    };
    let mut entries = read
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|e| path_error("list", path, &e))?;
    entries.sort();
    Ok(entries)
}

fn path_error(operation: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot {operation} {}: {error}", path.display()),
    )
}

/// A name that no other writer uses, in the same directory.
fn temporary_path(path: &Path) -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.{number}.tmp", std::process::id()))
}

/// Number of the process that wrote a file which was to become another one. Such a file is left by
/// a process that ended in the middle.
pub fn writer_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix('.')?.strip_suffix(".tmp")?;
    let mut parts = name.rsplitn(3, '.');
    let (number, process) = (parts.next()?, parts.next()?);
    parts.next().filter(|name| !name.is_empty())?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(number) && is_number(process)).then_some(process)
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Writes a file.
///
/// # Errors
/// The system's, with the path.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let path = path.as_ref();
    std::fs::write(path, bytes).map_err(|e| path_error("write", path, &e))
}

/// Reads at most `length` bytes of a file from `offset` on.
///
/// # Errors
/// With the file's name.
pub fn read_range(path: impl AsRef<Path>, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    range_of(&open(path)?, offset, length).map_err(|error| path_error("read", path, &error))
}

/// Reads at most `length` bytes of an open file from `offset` on.
///
/// # Errors
/// The system's.
pub fn range_of(mut file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(io::SeekFrom::Start(offset))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file for reading.
///
/// # Errors
/// The system's, with the path.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    File::open(path).map_err(|e| path_error("open", path, &e))
}

/// Makes a file that must not be there yet, for writing.
///
/// # Errors
/// The system's, with the path.
pub fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    File::create_new(path).map_err(|e| path_error("make", path, &e))
}

/// Opens a file to write behind what is there; it is made, for its owner only, where it is not.
///
/// # Errors
/// The system's, with the path.
pub fn append_to(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|e| path_error("open", path, &e))
}

/// Writes a file where nothing is yet.
///
/// # Errors
/// The system's, with the path; what came of the file is removed then.
pub fn write_new(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let path = path.as_ref();
    create_new(path)?.write_all(bytes).map_err(|error| {
        remove_file(path);
        path_error("write", path, &error)
    })
}

/// Writes a file that only its owner can read, where nothing is yet. Readers see it whole or not
/// at all.
///
/// # Errors
/// The system's, with the path; nothing is left behind then. Of two writers at the same time one
/// gets [`io::ErrorKind::AlreadyExists`].
pub fn write_new_private(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let path = path.as_ref();
    let temporary = temporary_path(path);
    let written = private_file(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        std::fs::hard_link(&temporary, path)
    });
    let _ = std::fs::remove_file(&temporary);
    written.map_err(|error| path_error("make", path, &error))
}

/// Locks a file, which is made if need be, against all others that lock it; waits for them. It is
/// free again when the value is dropped.
///
/// # Errors
/// The system's, with the path.
pub fn lock(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let locked = || {
        let mut options = std::fs::OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        file.lock()?;
        Ok(file)
    };
    locked().map_err(|e| path_error("lock", path, &e))
}

/// A path without links; as it is where nothing is there.
#[must_use]
pub fn real_path(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Locks a directory against all others that lock it, also other users, of whom each can open it; waits for
/// them. It is free again when the value is dropped. File systems of a network refuse it.
///
/// # Errors
/// The system's, with the path.
pub fn lock_dir(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let locked = || {
        let dir = File::open(path)?;
        dir.lock()?;
        Ok(dir)
    };
    locked().map_err(|e| path_error("lock", path, &e))
}

/// When a file, or a link itself, was last changed in any way: made, written, renamed; nothing when
/// it is not there.
pub fn changed_at(path: impl AsRef<Path>) -> Option<std::time::SystemTime> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::symlink_metadata(path).ok()?;
    let seconds = u64::try_from(found.ctime()).ok()?;
    let nanos = u32::try_from(found.ctime_nsec()).ok()?;
    std::time::SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::new(seconds, nanos))
}

/// Where a link leads to, as it says.
///
/// # Errors
/// The system's, with the path.
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    std::fs::read_link(path).map_err(|e| path_error("read the link", path, &e))
}

/// Whether a file belongs to this process's user and nobody else may read or write it.
///
/// # Errors
/// The system's, with the path.
pub fn is_private(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref();
    let found = std::fs::metadata(path).map_err(|e| path_error("look at", path, &e))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let own = rustix::process::geteuid().as_raw() == found.uid();
        Ok(own && found.mode() & 0o077 == 0)
    }
    #[cfg(not(unix))]
    {
        drop(found);
        Ok(true)
    }
}

/// Makes a directory with its parents.
///
/// # Errors
/// The system's, with the path.
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    std::fs::create_dir_all(path).map_err(|e| path_error("make the directory", path, &e))
}

/// Removes a directory with everything in it.
///
/// # Errors
/// The system's, with the path.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    std::fs::remove_dir_all(path).map_err(|e| path_error("remove", path, &e))
}

/// Removes a directory that nothing is in; anything else stays as it is.
pub fn remove_dir_if_empty(path: impl AsRef<Path>) {
    let _ = std::fs::remove_dir(path);
}

/// Gives a file or a directory another name on the same file system.
///
/// # Errors
/// The system's, with the path.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    std::fs::rename(from, to).map_err(|e| path_error("rename", from, &e))
}

/// Moves a file, also to another file system; what is at `to` is replaced.
///
/// # Errors
/// The system's, with the path. The file is where it was then.
pub fn move_file(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if std::fs::rename(from, to).is_ok() {
        return Ok(());
    }
    if let Err(error) = std::fs::copy(from, to) {
        let _ = std::fs::remove_file(to);
        return Err(path_error("move", from, &error));
    }
    // The copy is what counts; whoever owns the directory removes the rest with it.
    let _ = std::fs::remove_file(from);
    Ok(())
}

/// Copies an open file, from its beginning, into a directory, under a name that is not taken: `name`,
/// or `name` with a number in front. Nothing is replaced; a file that is there already with the same
/// content is the copy.
///
/// # Errors
/// The system's, with the path; also when a thousand such names are taken.
pub fn copy_into(source: &File, dir: impl AsRef<Path>, name: &str) -> io::Result<PathBuf> {
    let dir = dir.as_ref();
    let others = (2..1000).map(|number| format!("{number}-{name}"));
    for name in std::iter::once(name.to_owned()).chain(others) {
        let to = dir.join(name);
        match std::fs::symlink_metadata(&to) {
            Ok(found) if found.is_file() && is_same(source, found.len(), &to)? => return Ok(to),
            Ok(_) => {}
            Err(_) => return copy_opened(source, &to).map(|()| to),
        }
    }
    let taken = io::Error::new(io::ErrorKind::AlreadyExists, "every such name is taken");
    Err(path_error("make", &dir.join(name), &taken))
}

/// Whether an open file has the content of another one, of this size.
fn is_same(mut one: &File, size: u64, other: &Path) -> io::Result<bool> {
    if one.metadata()?.len() != size {
        return Ok(false);
    }
    one.rewind()?;
    let mut other = open(other)?;
    let (mut some, mut more) = (Vec::new(), Vec::new());
    loop {
        some.clear();
        more.clear();
        one.take(CHUNK_BYTES).read_to_end(&mut some)?;
        other.by_ref().take(CHUNK_BYTES).read_to_end(&mut more)?;
        if some != more || some.is_empty() {
            return Ok(some == more);
        }
    }
}

/// Copies a file to a path where nothing is yet.
///
/// # Errors
/// The system's, with the path; what came of the copy is removed then.
pub fn copy_new(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    copy_opened(&open(from)?, to)
}

/// Copies an open file, from its beginning, to a path where nothing is yet.
///
/// # Errors
/// The system's, with the path; what came of the copy is removed then.
pub fn copy_opened(mut source: &File, to: impl AsRef<Path>) -> io::Result<()> {
    let to = to.as_ref();
    let mut target = create_new(to)?;
    let copied = source
        .rewind()
        .and_then(|()| io::copy(&mut source, &mut target));
    if let Err(error) = copied {
        remove_file(to);
        return Err(path_error("write", to, &error));
    }
    Ok(())
}

/// Copies an open file, from its beginning, to a path; what is there is replaced once the copy is
/// whole.
///
/// # Errors
/// The system's, with the path; what was there is there still then.
pub fn replace_with_copy(source: &File, to: impl AsRef<Path>) -> io::Result<()> {
    let to = to.as_ref();
    let temporary = temporary_path(to);
    let copied = copy_opened(source, &temporary).and_then(|()| {
        std::fs::rename(&temporary, to).map_err(|error| path_error("replace", to, &error))
    });
    copied.inspect_err(|_| remove_file(&temporary))
}

/// Removes a file; one that is not there is gone already.
pub fn remove_file(path: impl AsRef<Path>) {
    let _ = std::fs::remove_file(path);
}

/// Whether a path is a directory; links are followed.
///
/// # Errors
/// The system's, with the path; also when there is nothing.
pub fn is_dir(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref();
    Ok(std::fs::metadata(path)
        .map_err(|e| path_error("look at", path, &e))?
        .is_dir())
}

/// Whether a path is a regular file, neither a directory nor a device nor a pipe; links are
/// followed.
///
/// # Errors
/// The system's, with the path; also when there is nothing.
pub fn is_file(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref();
    Ok(std::fs::metadata(path)
        .map_err(|e| path_error("look at", path, &e))?
        .is_file())
}

/// Whether a path is that of a file that is open; links are not followed.
///
/// # Errors
/// The system's, with the path, unless there is nothing.
pub fn is_same_file(path: impl AsRef<Path>, open: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let path = path.as_ref();
    let failed = |error: io::Error| path_error("look at", path, &error);
    let open = open.metadata().map_err(failed)?;
    match path.symlink_metadata() {
        Ok(found) => Ok((found.dev(), found.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Bytes of a file.
///
/// # Errors
/// The system's, with the path.
pub fn size(path: impl AsRef<Path>) -> io::Result<u64> {
    let path = path.as_ref();
    Ok(std::fs::metadata(path)
        .map_err(|e| path_error("look at", path, &e))?
        .len())
}

/// Whether somebody may run a file.
pub fn is_executable(path: impl AsRef<Path>) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let metadata = std::fs::metadata(path);
        metadata.is_ok_and(|there| there.permissions().mode() & 0o111 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Makes a file executable by everybody who may read it.
///
/// # Errors
/// The system's, with the path.
#[cfg(unix)]
pub fn make_executable(path: impl AsRef<Path>) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = path.as_ref();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .map_err(|e| path_error("change the mode of", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file() {
        let error = read("/no/such/file").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }

    #[test]
    fn an_atomic_write_leaves_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap(), b"two");
        assert_eq!(entries(dir.path()).unwrap(), vec![path]);
    }
    #[test]
    fn what_another_process_of_the_same_number_writes_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        // In a container each process may have the number of one in another.
        let next = temporary_path(&path);
        let number = next.to_str().unwrap().rsplit('.').nth(1).unwrap();
        let number: u64 = number.parse().unwrap();
        let process = std::process::id();
        let theirs = (1..=20).map(|later| format!(".x.{process}.{}.tmp", number + later));
        let theirs: Vec<PathBuf> = theirs.map(|name| dir.path().join(name)).collect();
        for path in &theirs {
            write(path, b"theirs").unwrap();
        }
        write_atomic(&path, b"one").unwrap();
        assert_eq!(read(&path).unwrap(), b"one");
        for path in &theirs {
            assert_eq!(read(path).unwrap(), b"theirs");
        }
    }
}
