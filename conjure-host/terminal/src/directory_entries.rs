//! Entries of a directory, one after the other: whoever wants only some reads no more of it, since a
//! directory may have millions.

use std::path::Path;

use conjure_config::fs;
use rustix::fs::{Dir, DirEntry, FileType, Mode, OFlags};

/// An entry whose name is UTF-8.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirectoryEntry {
    pub(crate) name: String,
    /// Whether it is a directory, and no link to one.
    pub(crate) is_dir: bool,
}

/// The entries of a directory in the order of the file system; none of one that cannot be read.
pub(crate) fn directory_entries(dir: &Path) -> impl Iterator<Item = DirectoryEntry> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(dir, flags, Mode::empty()).and_then(Dir::new);
    let entries = opened.into_iter().flatten();
    entries
        .map_while(Result::ok)
        .filter_map(move |entry| directory_entry(dir, &entry))
}

fn directory_entry(dir: &Path, entry: &DirEntry) -> Option<DirectoryEntry> {
    let name = entry.file_name().to_str().ok()?;
    if matches!(name, "." | "..") {
        return None;
    }
    let is_dir = match entry.file_type() {
        FileType::Directory => true,
        FileType::Unknown => is_real_dir(&dir.join(name)),
        _ => false,
    };
    Some(DirectoryEntry {
        name: name.to_owned(),
        is_dir,
    })
}

/// Whether a path is a directory, for file systems that do not list the types of their entries.
fn is_real_dir(path: &Path) -> bool {
    fs::read_link(path).is_err() && fs::is_dir(path).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_told_from_files_and_from_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("sub", dir.path().join("link")).unwrap();
        let mut entries: Vec<DirectoryEntry> = directory_entries(dir.path()).collect();
        entries.sort();
        let entries = entries.iter().map(|it| (it.name.as_str(), it.is_dir));
        let expected = [("file", false), ("link", false), ("sub", true)];
        assert_eq!(entries.collect::<Vec<_>>(), expected);
        for name in ["file", "nothing"] {
            assert_eq!(directory_entries(&dir.path().join(name)).count(), 0);
        }
    }
}
