//! A plugin's file, read and judged before anything in it runs.
//!
//! Opening a library runs its constructors, so everything that can be decided is decided here:
//! who could have written the file, whether it is whole, whether it is for this machine, and what
//! its header says. The bytes that were judged are the bytes that are opened later; the file
//! itself is not looked at again.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use conjure_abi::{ABI_MAJOR, HEADER_LEN, HeaderError, HeaderFields};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use serde::{Deserialize, Serialize};

use super::elf::{self, LibraryContents, StructureError};
use super::program::{self, ProgramDescription};
use super::{PluginError, Sha256};
use conjure_config::platform;

/// The most bytes that a plugin's file may have: 512 MiB, enough for one with debug information.
pub const FILE_LIMIT: u64 = 512 * 1024 * 1024;

/// A file that has passed every check that needs no code of the plugin.
#[derive(Debug)]
pub struct PluginFile {
    /// Path that the file was read from.
    pub path: PathBuf,
    /// All bytes of the file; of a program those of its bundle.
    pub bytes: Vec<u8>,
    /// Hash of the bytes.
    pub sha256: Sha256,
    /// What its header says, or its description in the same words.
    pub header: HeaderFields,
    /// The description of a program; `None` for a library.
    pub program: Option<ProgramDescription>,
    /// Whether it may run inside the host.
    pub pin: Pin,
    /// How to recognise the file when it changes.
    pub stamp: FileStamp,
    /// The section of the header, at most as long as a header is; of a program the description.
    pub(super) header_section: Box<[u8]>,
    /// What says that the file is still the one that was read.
    pub(super) identity: FileIdentity,
}

/// Whether a plugin may run inside the host, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// A person named this very file.
    Named,
    /// Only the host's user and root can change the directory or any above it.
    OwnDirectory,
    /// Others could have put the file there.
    Unpinned {
        /// The place, and why others can change it.
        reason: String,
    },
    /// The plugin is part of the host's program.
    Linked,
}

impl Pin {
    /// Whether the plugin may run inside the host.
    pub fn is_pinned(&self) -> bool {
        !matches!(self, Self::Unpinned { .. })
    }
}

/// How to recognise that a path holds another file now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    /// Size of the file in bytes.
    pub size: u64,
    modified: (i64, i64),
    /// Stamps of the other files that a program's description names, folded into one; 0 for a library.
    #[serde(default)]
    files: u64,
}

impl FileStamp {
    /// The stamp of what is at the path now, links followed, with the files that a description
    /// names; nothing when there is nothing.
    pub fn of(path: &Path) -> Option<Self> {
        let own = Self::of_single_file(path)?;
        Some(match program::is_description(path) {
            true => own.with_files(program::stamp(path)),
            false => own,
        })
    }

    /// The stamp of the very file.
    pub(super) fn of_single_file(path: &Path) -> Option<Self> {
        rustix::fs::stat(path).ok().map(|stat| Self::from(&stat))
    }

    fn with_files(self, files: u64) -> Self {
        Self { files, ..self }
    }
}

impl From<&Stat> for FileStamp {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        clippy::cast_sign_loss,
        clippy::useless_conversion,
        reason = "the fields have other types on other platforms"
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            files: 0,
        }
    }
}

/// A file and the state that it is in: nobody but the kernel sets when an inode last changed, and
/// every write to a file does that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    stamp: FileStamp,
    changed: (i64, i64),
}

impl FileIdentity {
    /// Identity of what is at the path itself; `None` where that is a link or no regular file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let stat = rustix::fs::lstat(path).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        regular.then(|| Self::from(&stat))
    }

    /// Whether the file was left alone for so long, so that a write since then would show.
    pub(super) fn is_settled(&self, after: Duration) -> bool {
        let (seconds, nanos) = self.stamp.modified.max(self.changed);
        let last = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok());
        let last = last.map(|(seconds, nanos)| UNIX_EPOCH + Duration::new(seconds, nanos));
        last.and_then(|last| last.elapsed().ok())
            .is_some_and(|age| age >= after)
    }
}

impl From<&Stat> for FileIdentity {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        clippy::useless_conversion,
        reason = "the fields have other types on other platforms"
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            stamp: FileStamp::from(stat),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// A file whose owner, mode and size were judged, open and not yet read.
pub(super) struct LibraryCandidate {
    path: PathBuf,
    file: OwnedFd,
    stat: Stat,
}

impl LibraryCandidate {
    /// Opens a file and judges who could have written it.
    pub(super) fn open(path: &Path) -> Result<Self, PluginError> {
        let (dir, file) = open(path)?;
        let stat = examine(path, &dir, &file)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            stat,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn stamp(&self) -> FileStamp {
        FileStamp::from(&self.stat)
    }

    pub(super) fn identity(&self) -> FileIdentity {
        FileIdentity::from(&self.stat)
    }

    /// Refuses the file where it is larger than a description may be.
    pub(super) fn check_description_size(self) -> Result<Self, PluginError> {
        program::judge_size(&self.path, self.stamp().size)?;
        Ok(self)
    }

    /// Reads it and judges what is in it.
    pub(super) fn read(self, named: bool) -> Result<PluginFile, PluginError> {
        self.header()?.into_plugin_file(named)
    }

    /// Reads it and judges its header.
    fn header(self) -> Result<FileWithHeader, PluginError> {
        let (path, mut stamp, identity) = (self.path.clone(), self.stamp(), self.identity());
        let is_description = program::is_description(&path);
        let bytes = contents(match is_description {
            true => self.check_description_size()?,
            false => self,
        })?;
        let (bytes, header_section, header, program) = if is_description {
            let gathered = program::gather(&path, &bytes)?;
            stamp = stamp.with_files(gathered.fingerprint);
            let header = gathered.description.header();
            (
                gathered.bytes,
                bytes.into(),
                header,
                Some(gathered.description),
            )
        } else if program::is_bundle(&bytes) {
            let (text, description) = program::judge(&path, &bytes)?;
            (bytes, text.into(), description.header(), Some(description))
        } else {
            let section = header_section(&path, &bytes)?;
            let header = judge_header(&path, section)?;
            let length = section.len().min(HEADER_LEN);
            let section = section.get(..length).unwrap_or_default().into();
            (bytes, section, header, None)
        };
        Ok(FileWithHeader {
            path,
            bytes,
            header,
            program,
            stamp,
            header_section,
            identity,
        })
    }
}

/// A file that was read, and of which nothing behind the header is judged yet.
struct FileWithHeader {
    path: PathBuf,
    bytes: Vec<u8>,
    header: HeaderFields,
    program: Option<ProgramDescription>,
    stamp: FileStamp,
    header_section: Box<[u8]>,
    identity: FileIdentity,
}

impl FileWithHeader {
    /// Judges the rest of it.
    fn into_plugin_file(self, named: bool) -> Result<PluginFile, PluginError> {
        if self.program.is_none() {
            elf::check_loadable(&self.bytes).map_err(|error| structure_error(&self.path, error))?;
        }
        Ok(PluginFile {
            sha256: Sha256::of(&self.bytes),
            pin: pin(&self.path, named),
            path: self.path,
            bytes: self.bytes,
            header: self.header,
            program: self.program,
            stamp: self.stamp,
            header_section: self.header_section,
            identity: self.identity,
        })
    }
}

/// Whether the plugin at a path may run inside the host.
pub(super) fn pin(path: &Path, named: bool) -> Pin {
    match named {
        true => Pin::Named,
        false => pin_by_directory(path),
    }
}

impl PluginFile {
    /// Reads a file and judges it. `named` says that a person named this very file.
    ///
    /// # Errors
    /// The first check that fails. No code of the plugin has run.
    pub fn read(path: &Path, named: bool) -> Result<Self, PluginError> {
        LibraryCandidate::open(path)?.read(named)
    }

    /// Like [`PluginFile::read`], for the plugin of this name; nothing where the file is another one.
    /// That one's bytes behind the header are neither judged nor hashed, which takes most of the time.
    ///
    /// # Errors
    /// As [`PluginFile::read`], of another one as far as its header.
    pub fn read_of(path: &Path, name: &str, named: bool) -> Result<Option<Self>, PluginError> {
        let headed = LibraryCandidate::open(path)?.header()?;
        match headed.header.name == name {
            true => headed.into_plugin_file(named).map(Some),
            false => Ok(None),
        }
    }

    /// The compiler that built it, as far as the file says that: whole where the library has it,
    /// else what the header had room for.
    #[must_use]
    pub fn compiler(&self) -> String {
        let whole = elf::compiler(&self.bytes);
        let is_same = |whole: &String| whole.starts_with(self.header.rustc.as_str());
        whole
            .filter(is_same)
            .unwrap_or_else(|| self.header.rustc.clone())
    }
}

impl PluginFile {
    /// What the file holds beside what a host needs of it.
    #[must_use]
    pub fn contents(&self) -> LibraryContents {
        elf::contents(&self.bytes)
    }
}

/// Opens the directory, then the file in it; a link is not followed and a pipe does not block.
fn open(path: &Path) -> Result<(OwnedFd, OwnedFd), PluginError> {
    let read = |error: rustix::io::Errno| PluginError::Read {
        path: path.to_owned(),
        source: Arc::new(error.into()),
    };
    let name = path.file_name().ok_or_else(|| PluginError::NotRegular {
        path: path.to_owned(),
        found: "a directory",
        target: None,
    })?;
    let dir = rustix::fs::open(
        parent(path),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(read)?;
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
        Ok(file) => Ok((dir, file)),
        Err(rustix::io::Errno::LOOP) => Err(PluginError::NotRegular {
            path: path.to_owned(),
            found: "a symbolic link",
            target: std::fs::canonicalize(path).ok(),
        }),
        Err(rustix::io::Errno::NXIO | rustix::io::Errno::OPNOTSUPP) => {
            Err(PluginError::NotRegular {
                path: path.to_owned(),
                found: "a socket or a device",
                target: None,
            })
        }
        Err(error) => Err(read(error)),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn examine(path: &Path, dir: &OwnedFd, file: &OwnedFd) -> Result<Stat, PluginError> {
    let stat = |fd: &OwnedFd| {
        rustix::fs::fstat(fd).map_err(|error| PluginError::Read {
            path: path.to_owned(),
            source: Arc::new(error.into()),
        })
    };
    let file = stat(file)?;
    let found = match FileType::from_raw_mode(file.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a named pipe"),
        _ => Some("a socket or a device"),
    };
    if let Some(found) = found {
        return Err(PluginError::NotRegular {
            path: path.to_owned(),
            found,
            target: None,
        });
    }
    check_ownership(path, "the file", path, &file)?;
    check_ownership(path, "its directory", parent(path), &stat(dir)?)?;
    let size = FileStamp::from(&file).size;
    if size > FILE_LIMIT {
        return Err(PluginError::TooLarge {
            path: path.to_owned(),
            size,
            limit: FILE_LIMIT,
        });
    }
    Ok(file)
}

/// Judges who could have put a file into a directory that leads to it.
pub(super) fn judge_dir(path: &Path, dir: &Path) -> Result<(), PluginError> {
    let stat = rustix::fs::stat(dir).map_err(|error| PluginError::Read {
        path: path.to_owned(),
        source: Arc::new(error.into()),
    })?;
    check_ownership(path, "its directory", dir, &stat)
}

fn check_ownership(
    path: &Path,
    what: &'static str,
    subject: &Path,
    stat: &Stat,
) -> Result<(), PluginError> {
    let user = platform::current_user();
    if stat.st_uid != user && stat.st_uid != 0 {
        return Err(PluginError::Owner {
            path: path.to_owned(),
            what,
            subject: subject.to_owned(),
            owner: stat.st_uid,
            user,
        });
    }
    if let Some(by) = writers(stat) {
        return Err(PluginError::Writable {
            path: path.to_owned(),
            what,
            subject: subject.to_owned(),
            by,
            mode: mode(stat),
        });
    }
    Ok(())
}

/// Finds who can write to a file beside its owner and the host's user.
fn writers(stat: &Stat) -> Option<&'static str> {
    let mode = mode(stat);
    if mode & 0o002 != 0 {
        Some("everyone")
    } else if mode & 0o020 != 0 && !platform::is_private_group(stat.st_gid) {
        Some("its group")
    } else {
        None
    }
}

#[allow(
    clippy::unnecessary_cast,
    clippy::useless_conversion,
    clippy::cast_lossless,
    reason = "the field has another type on other platforms"
)]
fn mode(stat: &Stat) -> u32 {
    stat.st_mode as u32 & 0o7777
}

/// All bytes of a file, if they stay the same while they are read.
pub(super) fn contents(candidate: LibraryCandidate) -> Result<Vec<u8>, PluginError> {
    let LibraryCandidate { path, file, stat } = candidate;
    let read = |error: std::io::Error| PluginError::Read {
        path: path.clone(),
        source: Arc::new(error),
    };
    let stamp = FileStamp::from(&stat);
    let mut file = File::from(file);
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0) + 1);
    // One byte more than it should have, so that a file that grows is noticed and not swallowed.
    (&mut file)
        .take(stamp.size + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    let after = rustix::fs::fstat(&file).map_err(|e| read(e.into()))?;
    if FileStamp::from(&after) != stamp || bytes.len() as u64 != stamp.size {
        return Err(PluginError::Changed { path: path.clone() });
    }
    Ok(bytes)
}

/// The section that holds the header of a whole library of this machine.
fn header_section<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a [u8], PluginError> {
    let section = elf::header_section(bytes).map_err(|error| structure_error(path, error))?;
    section.ok_or_else(|| PluginError::NoHeader {
        path: path.to_owned(),
        section: elf::SECTION,
    })
}

fn structure_error(path: &Path, error: StructureError) -> PluginError {
    let path = path.to_owned();
    match error {
        StructureError::NotALibrary { found } => PluginError::NotALibrary {
            path,
            found,
            needed: platform::LIBRARY_FORMAT,
        },
        StructureError::Incomplete { what } => PluginError::Incomplete { path, what },
        StructureError::Target { found, needed } => PluginError::Target {
            path,
            found,
            needed,
        },
    }
}

/// What a header says, if this host takes it.
pub(super) fn judge_header(path: &Path, section: &[u8]) -> Result<HeaderFields, PluginError> {
    let path = || path.to_owned();
    let header = HeaderFields::read(section).map_err(|error| match error {
        HeaderError::Major { found } => PluginError::Major {
            path: path(),
            found,
            needed: ABI_MAJOR,
        },
        HeaderError::Short { found } => header_error(path(), format!("it has only {found} bytes")),
        HeaderError::Magic => {
            header_error(path(), "it does not begin with the magic bytes".to_owned())
        }
        HeaderError::Length { found } => {
            header_error(path(), format!("it gives its length as {found} bytes"))
        }
        HeaderError::Field { field } => {
            header_error(path(), format!("its field `{field}` is not valid"))
        }
    })?;
    if usize::from(header.pointer_size) != size_of::<usize>() {
        return Err(PluginError::PointerSize {
            path: path(),
            found: header.pointer_size,
            needed: size_of::<usize>(),
        });
    }
    if header.name.is_empty() || header.name.chars().any(char::is_control) {
        return Err(header_error(
            path(),
            "its field `name` is not valid".to_owned(),
        ));
    }
    if semver::Version::parse(&header.version).is_err() {
        return Err(header_error(
            path(),
            format!("its version `{}` is not a semantic version", header.version),
        ));
    }
    Ok(header)
}

fn header_error(path: PathBuf, what: String) -> PluginError {
    PluginError::Header { path, what }
}

/// Whether nobody but the host's user and root can put another file at the path: each directory
/// up to the root is theirs, and not writable by others unless it is sticky.
fn pin_by_directory(path: &Path) -> Pin {
    let dir = match std::fs::canonicalize(parent(path)) {
        Ok(dir) => dir,
        Err(error) => {
            return Pin::Unpinned {
                reason: error.to_string(),
            };
        }
    };
    for (depth, ancestor) in dir.ancestors().enumerate() {
        let stat = match rustix::fs::stat(ancestor) {
            Ok(stat) => stat,
            Err(error) => {
                return Pin::Unpinned {
                    reason: format!("{}: {error}", ancestor.display()),
                };
            }
        };
        if stat.st_uid != 0 && stat.st_uid != platform::current_user() {
            return Pin::Unpinned {
                reason: format!("{} belongs to user {}", ancestor.display(), stat.st_uid),
            };
        }
        let sticky = depth > 0 && mode(&stat) & 0o1000 != 0;
        if let Some(by) = writers(&stat).filter(|_| !sticky) {
            return Pin::Unpinned {
                reason: format!("{} can be written by {by}", ancestor.display()),
            };
        }
    }
    Pin::OwnDirectory
}
