//! Files and directories that only their owner may read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::path::Path;

use crate::StoreError;

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
pub(crate) fn own(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly {
            what: "open the database",
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
