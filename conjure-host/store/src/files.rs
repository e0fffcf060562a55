//! Files and directories that only their owner may read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use crate::StoreError;

const OPENING: &str = "open the database";
/// What opening a database takes of a disk, in bytes: SQLite makes a file of 32 KiB beside it.
const MIN_FREE_BYTES: u64 = 64 * 1024;

/// Makes a directory with its parents. One that is there keeps its mode.
pub(crate) fn create_private_dir(dir: &Path) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(dir)
        .map_err(StoreError::io("make the directory", dir))
}

/// Makes a file that must not be there yet, for writing.
pub(crate) fn create_private(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(StoreError::io("make", path))
}

/// Makes a file where there is none, and takes it from others where they might read it.
///
/// [`StoreError::ReadOnly`] where it can be read at most, [`StoreError::Full`] where there is no room
/// to make it.
pub(crate) fn ensure_private(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly {
            what: OPENING,
            reason: error.to_string(),
        },
        ErrorKind::PermissionDenied if is_readable(path) => StoreError::ReadOnly {
            what: OPENING,
            reason: error.to_string(),
        },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full {
            what: OPENING,
            reason: error.to_string(),
        },
        _ => StoreError::io("open", path)(error),
    })?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file.metadata().map(|data| data.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o077 != 0) {
            let private = std::fs::Permissions::from_mode(0o600);
            file.set_permissions(private)
                .map_err(StoreError::io("protect", path))?;
        }
    }
    Ok(())
}

/// Whether a file is there and can be read.
pub(crate) fn is_readable(path: &Path) -> bool {
    File::open(path).is_ok()
}

/// Whether files can be made beside this one.
pub(crate) fn is_dir_writable(path: &Path) -> bool {
    access(dir_of(path), Access::WRITE_OK).is_ok()
}

/// Whether the disk of a file has room for opening a database. Where that cannot be told it has.
pub(crate) fn has_room(path: &Path) -> bool {
    let Ok(about) = statvfs(dir_of(path)) else {
        return true;
    };
    about.f_bavail.saturating_mul(about.f_frsize) >= MIN_FREE_BYTES
}

fn dir_of(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}
