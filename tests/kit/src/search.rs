//! Looking through files for a text that should be in none of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::KitError;

/// What came of a search.
#[derive(Debug, Default)]
pub struct Search {
    /// How many files were looked through.
    pub files: usize,
    /// Files that have the text in them.
    pub found: Vec<PathBuf>,
}

/// Looks through all files below a directory for a text, as its bytes. Sockets and the like are left
/// out.
///
/// # Errors
/// [`KitError::File`] when one cannot be read.
pub fn search(dir: &Path, text: &str) -> Result<Search, KitError> {
    let mut search = Search::default();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(KitError::file(&dir))? {
            let path = entry.map_err(KitError::file(&dir))?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.is_file() {
                let bytes = fs::read(&path).map_err(KitError::file(&path))?;
                let mut parts = bytes.windows(text.len().max(1));
                search.files += 1;
                search
                    .found
                    .extend(parts.any(|part| part == text.as_bytes()).then_some(path));
            }
        }
    }
    Ok(search)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_in_any_file_below() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(dir.path().join("one"), b"\xff before the secret").unwrap();
        fs::write(deep.join("two"), "secret").unwrap();
        fs::write(deep.join("three"), "secre").unwrap();
        let mut search = search(dir.path(), "secret").unwrap();
        search.found.sort();
        assert_eq!(search.files, 3);
        assert_eq!(search.found, [deep.join("two"), dir.path().join("one")]);
    }
}
