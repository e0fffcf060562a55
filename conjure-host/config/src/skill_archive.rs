//! A skill folder as one file: an archive whose bytes are the same for the same files.
//!
//! What lies in a folder for other reasons is left out: names that begin with a dot, and what Python
//! keeps of its sources. So the archive of a folder that was unpacked from one is that very archive.

use std::io::{Cursor, Write as _};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::skill_folders::{FolderError, LoadedFolder};

/// The most bytes of the files of a skill: what a package may unpack to.
const LIMIT: usize = 64 * 1024 * 1024;

/// What the name of such an archive's file ends with.
pub const EXTENSION: &str = "skill";

/// Makes the archive of a skill folder.
///
/// # Errors
/// [`FolderError`]: a file that cannot be read, or too many bytes.
pub fn pack(skill: &LoadedFolder) -> Result<Vec<u8>, FolderError> {
    let name = skill.folder.name.as_str();
    let refused = |reason: String| FolderError::Package {
        path: skill.dir.clone(),
        reason,
    };
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let mut left = LIMIT;
    // The instructions first, by which such an archive is known.
    let others = skill.resources.iter().map(String::as_str);
    let others = others.filter(|path| !path.split('/').any(|part| part == "__pycache__"));
    for path in std::iter::once("SKILL.md").chain(others) {
        let file = skill.dir.join(path);
        let io = |source| FolderError::Io {
            path: file.clone(),
            source,
        };
        let size = crate::fs::size(&file).map_err(io)?;
        left = usize::try_from(size)
            .ok()
            .and_then(|size| left.checked_sub(size))
            .ok_or_else(|| refused(format!("its files have more than {LIMIT} bytes")))?;
        let bytes = crate::fs::read(&file).map_err(io)?;
        let mode = match crate::fs::is_executable(&file) {
            true => 0o755,
            false => 0o644,
        };
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::default())
            .unix_permissions(mode);
        let written = archive
            .start_file(format!("{name}/{path}"), options)
            .and_then(|()| Ok(archive.write_all(&bytes)?));
        written.map_err(|error| refused(error.to_string()))?;
    }
    let archive = archive.finish();
    let archive = archive.map_err(|error| refused(error.to_string()))?;
    Ok(archive.into_inner())
}

/// Whether these bytes are an archive that [`pack`] made, as far as their beginning says it.
pub fn is_archive(bytes: &[u8]) -> bool {
    let name = || {
        let length = bytes.get(26..28)?.try_into().ok()?;
        let length = usize::from(u16::from_le_bytes(length));
        bytes.get(30..30 + length)
    };
    bytes.starts_with(b"PK\x03\x04") && name().is_some_and(|name| name.ends_with(b"/SKILL.md"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{fs, skill_folders};

    #[test]
    fn an_archive_unpacks_to_a_folder_of_the_same_archive() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("reports");
        fs::create_dir_all(dir.join("scripts/__pycache__")).unwrap();
        let text = "---\nname: reports\ndescription: Writes reports\n---\nRun scripts/run.py\n";
        fs::write(dir.join("SKILL.md"), text).unwrap();
        fs::write(dir.join("scripts/run.py"), "print(1)").unwrap();
        fs::make_executable(dir.join("scripts/run.py")).unwrap();
        let archive = |dir: &Path| pack(&skill_folders::load_dir(dir).unwrap()).unwrap();
        let first = archive(&dir);
        assert!(is_archive(&first) && !is_archive(b"PK\x03\x04") && !is_archive(b"text"));
        // What other programs leave behind is no part of it.
        fs::write(dir.join("scripts/__pycache__/run.pyc"), "x").unwrap();
        fs::write(dir.join(".DS_Store"), "x").unwrap();
        assert_eq!(archive(&dir), first);
        let file = scratch.path().join("other.skill");
        fs::write(&file, &first).unwrap();
        let unpacked = skill_folders::load(&file, &scratch.path().join("to")).unwrap();
        assert_eq!(unpacked.dir.file_name(), Some("reports".as_ref()));
        assert_eq!(pack(&unpacked).unwrap(), first);
        fs::write(unpacked.dir.join("more.txt"), "x").unwrap();
        assert_ne!(archive(&unpacked.dir), first);
    }
}
