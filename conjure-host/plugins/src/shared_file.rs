//! Files that several people use: one that is there stays what it is, with its mode, its group and the links
//! that lead to it, and only what stands in it becomes another.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use conjure_config::fs;

/// Writes a file: a new one as the user's mask says, one that is there as it is. Readers see the old
/// contents or the new ones, where the file is the user's own.
///
/// # Errors
/// The system's; also where nobody may write to the file that is there.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = led_to(path);
    let Ok(there) = std::fs::metadata(&path) else {
        return fs::write_atomic_for_all(&path, bytes);
    };
    check_writable(&path)?;
    match beside(&path, &there, bytes) {
        Ok(new) => fs::rename(&new, &path).inspect_err(|_| fs::remove_file(&new)),
        // What takes its place would belong to others: it is written to instead.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => fs::write(&path, bytes),
        // A full disk above all, on which what is there would be lost.
        Err(error) => Err(error),
    }
}

/// Whether the file may be written to, if there is one: by its mode, which a privileged user is not held
/// by, and by whoever asks.
///
/// # Errors
/// The system's.
pub(super) fn check_writable(path: &Path) -> io::Result<()> {
    let failed = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot write {}: {error}", path.display()),
        )
    };
    let there = match std::fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if there.permissions().readonly() {
        let kind = io::ErrorKind::PermissionDenied;
        return Err(failed(io::Error::new(kind, "nobody may write to it")));
    }
    let opened = std::fs::OpenOptions::new().append(true).open(path);
    opened.map(drop).map_err(failed)
}

/// A new file beside one, with its owner, its group and its mode.
fn beside(path: &Path, there: &std::fs::Metadata, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let dir = path.parent().unwrap_or(Path::new(""));
    let dir = match dir.as_os_str().is_empty() {
        true => Path::new("."),
        false => dir,
    };
    let new = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".tmp")
        .tempfile_in(dir)?;
    fs::write(new.path(), bytes)?;
    let made = new.as_file().metadata()?;
    let owner = (made.uid() != there.uid()).then(|| there.uid());
    let group = (made.gid() != there.gid()).then(|| there.gid());
    if owner.is_some() || group.is_some() {
        std::os::unix::fs::chown(new.path(), owner, group)?;
    }
    std::fs::set_permissions(new.path(), there.permissions())?;
    Ok(new.into_temp_path().keep()?)
}

/// The file that links lead to, also where it is not there yet.
fn led_to(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match fs::read_link(path) {
        Ok(named) => path.with_file_name("").join(named),
        Err(_) => path.to_owned(),
    }
}
