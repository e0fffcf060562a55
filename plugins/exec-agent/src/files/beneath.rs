//! Opens and writes files beneath a root, one path component at a time.
//!
//! Each component is opened relative to the handle of the one before and no link is followed, so
//! nothing that changes meanwhile can lead outside.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::paths::RootedPath;
use crate::error::{AgentError, Result};

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// How a directory on the way to a root is opened: it is only gone through, where the system has a word
/// for that.
#[cfg(any(target_os = "linux", target_os = "android"))]
const PASSING_FLAGS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const PASSING_FLAGS: OFlags = DIRECTORY_FLAGS;

/// A file or directory that is open for reading.
#[derive(Debug)]
pub enum OpenFile {
    /// A regular file, and how many bytes it has.
    File(File, u64),
    /// A directory.
    Directory(OwnedFd),
}

/// Opens a file or a directory.
///
/// # Errors
/// When it is not there, is neither of the two, or may not be read.
pub fn open(place: &RootedPath) -> Result<OpenFile> {
    let opened = |error| place.error("opened", error);
    let Some((parent, name)) = parent(place, false).map_err(opened)? else {
        let root = open_root(place.root()).map_err(opened)?;
        return Ok(OpenFile::Directory(root));
    };
    // Without NONBLOCK, opening a pipe waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::openat(&parent, &name, flags, Mode::empty()).map_err(opened)?;
    let stat = rustix::fs::fstat(&fd).map_err(opened)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(OpenFile::File(
            File::from(fd),
            u64::try_from(stat.st_size).unwrap_or(0),
        )),
        FileType::Directory => Ok(OpenFile::Directory(fd)),
        _ => Err(not_regular(place)),
    }
}

/// Opens a root, on the way to which there was no link when its path was resolved: one that came since
/// is not followed.
fn open_root(root: &Path) -> rustix::io::Result<OwnedFd> {
    let mut names = root.iter().peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let flags = match names.peek() {
            Some(_) => PASSING_FLAGS,
            None => DIRECTORY_FLAGS,
        };
        at = Some(match &at {
            None => rustix::fs::open(name, flags, Mode::empty())?,
            Some(above) => rustix::fs::openat(above, name, flags, Mode::empty())?,
        });
    }
    at.ok_or(Errno::NOENT)
}

/// Opens a directory inside another one.
pub(super) fn open_directory(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(parent, name, DIRECTORY_FLAGS, Mode::empty())
}

/// Writes a file so that a reader sees the old content or the new one and nothing between.
/// Missing directories are made. Says whether there was a file before.
pub(super) fn write(
    place: &RootedPath,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<bool> {
    let written = |error: Errno| place.error("written", error);
    let Some((parent, name)) = parent(place, true).map_err(written)? else {
        return Err(place.error("written", Errno::ISDIR));
    };
    let old = match rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(Mode::from_raw_mode(stat.st_mode)),
            FileType::Directory => return Err(place.error("written", Errno::ISDIR)),
            _ => return Err(not_regular(place)),
        },
        Err(Errno::NOENT) => None,
        Err(error) => return Err(written(error)),
    };
    let temporary = temporary_name();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&parent, &temporary, flags, Mode::from_raw_mode(0o666))
        .map_err(written)?;
    let mut file = File::from(fd);
    let done = fill(&mut file)
        .and_then(|()| file.flush())
        .and_then(|()| match old {
            Some(mode) => Ok(rustix::fs::fchmod(&file, mode)?),
            None => Ok(()),
        })
        .and_then(|()| Ok(rustix::fs::renameat(&parent, &temporary, &parent, &name)?));
    if let Err(error) = done {
        let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
        return Err(place.error("written", error));
    }
    Ok(old.is_some())
}

/// The directory that a place is in, and the place's name in it; nothing for a root.
fn parent(place: &RootedPath, make: bool) -> rustix::io::Result<Option<(OwnedFd, OsString)>> {
    let mut names = place.names().peekable();
    let mut dir = open_root(place.root())?;
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return Ok(Some((dir, name.to_owned())));
        }
        if make {
            match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        dir = open_directory(&dir, name)?;
    }
    Ok(None)
}

/// How the name of a file begins that is not whole yet, and how it ends; numbers are between.
const TEMPORARY_NAME: (&str, &str) = (".conjure-", ".tmp");

fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (begin, end) = TEMPORARY_NAME;
    format!("{begin}{}-{number}{end}", std::process::id())
}

/// Whether a name is that of a file which an agent writes: it gets its own name once it is whole.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    let (begin, end) = TEMPORARY_NAME;
    let number = name.to_str().and_then(|name| {
        let (process, number) = name
            .strip_prefix(begin)?
            .strip_suffix(end)?
            .split_once('-')?;
        Some([process, number])
    });
    number.is_some_and(|both| both.iter().all(|part| part.parse::<u64>().is_ok()))
}

fn not_regular(place: &RootedPath) -> AgentError {
    AgentError::new(format!(
        "`{}` is neither a file nor a directory (a pipe, a socket or a device)",
        place.requested()
    ))
}

/// Opens a regular file for reading, with its size.
///
/// # Errors
/// As [`open`], and for a directory.
pub fn open_file(place: &RootedPath) -> Result<(File, u64)> {
    match open(place)? {
        OpenFile::File(file, size) => Ok((file, size)),
        OpenFile::Directory(_) => Err(place.error("read", io::ErrorKind::IsADirectory)),
    }
}
