//! Lists a directory two levels deep.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType};

use super::beneath::open_directory;
use super::paths::RootedPath;
use super::view::PathView;
use crate::error::Result;

/// Maximum number of entries of a listing.
const MAX_ENTRIES: usize = 1_000;

/// Lists a directory: what is in it and in its directories, without hidden entries.
pub(super) fn list(place: &RootedPath, dir: &OwnedFd) -> Result<PathView> {
    let mut lines = Vec::new();
    let names = entries(dir).map_err(|error| place.error("listed", error))?;
    for entry in names {
        let inside = match entry.kind {
            FileType::Directory => open_directory(dir, entry.name.as_ref())
                .ok()
                .and_then(|inner| entries(&inner).ok()),
            _ => None,
        };
        let shown = entry.label();
        if let Some(inside) = inside {
            let inside: Vec<String> = inside
                .iter()
                .map(|inner| format!("{shown}{}", inner.label()))
                .collect();
            lines.push(shown);
            lines.extend(inside);
        } else {
            lines.push(shown);
        }
    }
    let more = lines.len().saturating_sub(MAX_ENTRIES);
    lines.truncate(MAX_ENTRIES);
    if lines.is_empty() {
        lines.push("(empty)".to_owned());
    }
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    lines.push(String::new());
    Ok(PathView {
        content: lines.join("\n"),
        directory: true,
        ..PathView::default()
    })
}

struct DirectoryEntry {
    name: std::ffi::OsString,
    kind: FileType,
}

impl DirectoryEntry {
    /// The name, with the sign of its kind behind it as `ls -F` has it.
    fn label(&self) -> String {
        let name = self.name.to_string_lossy();
        match self.kind {
            FileType::Directory => format!("{name}/"),
            FileType::Symlink => format!("{name}@"),
            _ => name.into_owned(),
        }
    }
}

/// The entries of a directory that are not hidden, in the order of their names.
fn entries(dir: &OwnedFd) -> rustix::io::Result<Vec<DirectoryEntry>> {
    use std::os::unix::ffi::OsStringExt;

    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !name.starts_with(b".") {
            found.push(DirectoryEntry {
                name: std::ffi::OsString::from_vec(name.to_vec()),
                kind: kind(dir, &entry),
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Kind of an entry, which some file systems do not tell with its name.
fn kind(dir: &OwnedFd, entry: &rustix::fs::DirEntry) -> FileType {
    match entry.file_type() {
        FileType::Unknown => rustix::fs::statat(
            dir,
            entry.file_name(),
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .map_or(FileType::Unknown, |stat| {
            FileType::from_raw_mode(stat.st_mode)
        }),
        known => known,
    }
}
