//! Where the folders of a session's skills lead: looked at once, and kept.
//!
//! A command that may change what is above such a directory can put a link in its place. If its path were
//! looked at anew, it would lead wherever that link does.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where the folders of a session's skills lead, by the paths that the host names.
#[derive(Debug, Default)]
pub struct ResolvedSkillDirs(Mutex<HashMap<PathBuf, PathBuf>>);

impl ResolvedSkillDirs {
    /// Where a directory led when it was asked for first.
    ///
    /// # Errors
    /// The system's, as long as it never led anywhere.
    pub fn resolve(&self, dir: &Path) -> io::Result<PathBuf> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(real) = known.get(dir) {
            return Ok(real.clone());
        }
        let real = dir.canonicalize()?;
        known.insert(dir.to_owned(), real.clone());
        Ok(real)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_leads_where_it_led_at_first() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (one, two, link) = (root.join("one"), root.join("two"), root.join("link"));
        let dirs = ResolvedSkillDirs::default();
        assert!(dirs.resolve(&link).is_err());
        for dir in [&one, &two] {
            std::fs::create_dir(dir).unwrap();
            let _ = std::fs::remove_file(&link);
            symlink(dir, &link).unwrap();
            assert_eq!(dirs.resolve(&link).unwrap(), one);
        }
    }
}
