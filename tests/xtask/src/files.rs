//! Folders that are filled and emptied: what the standard library has no function for.

use std::{fs, io, path::Path};

use anyhow::{Context, Result};

/// Copies a file, or a folder with all that is in it; links are left out.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy `{}`", from.display());
    let kind = fs::symlink_metadata(from).with_context(failed)?.file_type();
    if kind.is_dir() {
        fs::create_dir_all(to).with_context(failed)?;
        for entry in fs::read_dir(from).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_file() {
        fs::copy(from, to).with_context(failed)?;
    }
    Ok(())
}

/// Removes a folder with all that is in it, if it is there.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Makes a folder empty, whether it is there or not.
pub(crate) fn empty(folder: &Path) -> Result<()> {
    remove(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))
}
