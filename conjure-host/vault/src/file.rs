//! The key file: 32 bytes in base64 that only its owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::VaultError;
use crate::key::MasterKey;

/// More than any form of a key takes.
const MAX_FILE_BYTES: u64 = 4096;

/// The file in which a key waits that is to replace the one in `path`.
pub(crate) fn next_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    path.with_file_name(name)
}

/// The key in a file; nothing when there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<MasterKey>, VaultError> {
    let mut options = OpenOptions::new();
    // Neither a pipe nor a device makes this wait.
    options.read(true).custom_flags(nonblocking());
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("open", path)(error)),
    };
    let about = file.metadata().map_err(io("look at", path))?;
    let refused = |reason| VaultError::NotAFile {
        path: path.to_owned(),
        reason,
    };
    if !about.is_file() {
        return Err(refused("it is no regular file"));
    }
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    let mode = about.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(VaultError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    let mut text = Zeroizing::new(String::with_capacity(
        usize::try_from(MAX_FILE_BYTES).unwrap_or(0),
    ));
    let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
    read.map_err(io("read", path))?;
    let key = MasterKey::parse(&text).ok_or_else(|| VaultError::BadKey {
        location: format!("the key file `{}`", path.display()),
    })?;
    Ok(Some(key))
}

/// Keeps every other process from making a key for as long as it is held.
pub(crate) fn lock(path: &Path) -> Result<File, VaultError> {
    let dir = make_dir(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let path = dir.join(name);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let file = options.open(&path).map_err(io("lock", &path))?;
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive);
    locked.map_err(|error| io("lock", &path)(error.into()))?;
    Ok(file)
}

/// Puts a key into a file that is not there yet; the key that is there when somebody else was
/// quicker. Only under the lock.
pub(crate) fn create(path: &Path, key: &MasterKey) -> Result<MasterKey, VaultError> {
    let dir = make_dir(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let written = write(&fresh, key).and_then(|()| fs::hard_link(&fresh, path));
    let removed = fs::remove_file(&fresh);
    match written {
        Ok(()) => {
            removed.map_err(io("tidy up beside", path))?;
            sync_dir(dir).map_err(io("make", path))?;
            Ok(key.clone())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read(path)?.ok_or_else(|| io("make", path)(error))
        }
        Err(error) => Err(io("make", path)(error)),
    }
}

/// Lets the key that waits replace the one in `path`.
pub(crate) fn replace(path: &Path) -> Result<(), VaultError> {
    fs::rename(next_path(path), path).map_err(io("replace", path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    sync_dir(dir).map_err(io("replace", path))
}

fn make_dir(path: &Path) -> Result<&Path, VaultError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(io("make the directory of", path))?;
    Ok(dir)
}

fn write(path: &Path, key: &MasterKey) -> std::io::Result<()> {
    // What a process left behind that was ended half-way.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut text = key.to_text();
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

fn nonblocking() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> VaultError {
    let path = path.to_owned();
    move |source| VaultError::File { what, path, source }
}
