//! Files that were found beside a call: whose they are, and which are the host's own copies.

use std::path::Path;
use std::sync::PoisonError;

use conjure_skill_sdk::protocol::FileRef;

use super::copies::Copies;
use super::digest::{ReadCheck, digest_checked};
use super::windows::{CallWindow, CallWindows, FileWriter, UNKNOWN_SOURCE};
use super::{Artifact, Artifacts, Fetch, FileError, HashBudget};
use conjure_config::platform::copy_mark;

/// Calls that may write, and copies of the host's own, as far as a host knows: they tell the files of
/// its sessions apart.
#[derive(Debug, Default)]
pub(crate) struct WriteTracker {
    pub(super) windows: CallWindows,
    pub(super) copies: Copies,
}

impl WriteTracker {
    /// Beside other processes that have this data directory.
    pub(crate) fn for_data_dir(data_dir: &Path) -> Self {
        Self {
            windows: CallWindows::for_data_dir(data_dir),
            copies: Copies::default(),
        }
    }
}

/// The result of attributing a found file to a call.
#[derive(Debug)]
pub(crate) enum FileMatch {
    /// The call made the file.
    Own(Artifact),
    /// Another call made it, or nobody can tell which; it is news for the session.
    Other(Artifact),
    /// The file is none of the session's, or known as it is.
    Nothing,
}

impl Artifacts {
    /// Takes a file in that was found beside a call, whose backend did not say that it made it. A
    /// copy of the host's own is no file, and what a call of another session made none of this one;
    /// of a file that nobody can be said to have made the source is [`UNKNOWN_SOURCE`].
    ///
    /// # Errors
    /// As for [`Artifacts::register_within`].
    pub(crate) fn register_found(
        &self,
        window: Option<&CallWindow<'_>>,
        backend: &str,
        file: &FileRef,
        fetch: Option<Fetch>,
        budget: &HashBudget,
    ) -> Result<FileMatch, FileError> {
        let check = |bytes, read| budget.reserve(bytes, read);
        let Some(path) = file.path.as_deref().map(Path::new) else {
            return self.register_found_elsewhere(window, backend, file, fetch, &check);
        };
        if self.is_copy(path, &check) {
            return Ok(FileMatch::Nothing);
        }
        let before = self.sha256_at(path);
        let wrote = window.map_or(FileWriter::Unknown, |window| window.writer_of(path));
        let source = match &wrote {
            FileWriter::Finder => backend,
            FileWriter::Unknown => UNKNOWN_SOURCE,
            FileWriter::Other {
                backend,
                finds_files: false,
            } => backend.as_ref(),
            // That call finds it too, if it has not yet.
            FileWriter::Other { .. } | FileWriter::OtherSession => return Ok(FileMatch::Nothing),
        };
        let artifact = self.register_with(source, file, fetch, false, &check)?;
        // Of a file that was there already as it is now somebody else has told.
        let is_news = before.is_none() || before != artifact.sha256;
        Ok(match wrote {
            _ if !is_news => FileMatch::Nothing,
            FileWriter::Finder => FileMatch::Own(artifact),
            _ => FileMatch::Other(artifact),
        })
    }

    /// Whether a file is a copy that the host put there, as it was.
    fn is_copy(&self, path: &Path, check: ReadCheck<'_>) -> bool {
        let sha256 = || {
            let real = path.canonicalize().ok()?;
            digest_checked(&real, check).ok().map(|(sha256, _)| sha256)
        };
        self.write_tracker.copies.has(path, sha256) || copy_mark::is_marked(path, sha256)
    }

    /// The hash of the file that is known at a path.
    fn sha256_at(&self, path: &Path) -> Option<String> {
        let path = path.canonicalize().ok()?;
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.values().find_map(|held| {
            let known = held.artifact.lock().unwrap_or_else(PoisonError::into_inner);
            (known.path.as_ref() == Some(&path)).then(|| known.sha256.clone())?
        })
    }
}
