//! What is known of one file of a session, and why a file is not to be had.

use std::path::PathBuf;

use conjure_core::chat::ArtifactRef;
use serde::Serialize;

/// A file of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    /// Handle of the file, such as `file-3`.
    pub id: String,
    /// Name for a person: one component, without anything that a path could hold.
    pub name: String,
    /// Media type, such as `text/csv`.
    pub media_type: String,
    /// Size in bytes, when known.
    pub size: Option<u64>,
    /// SHA-256 in lower-case hex, when its bytes are here.
    pub sha256: Option<String>,
    /// The backend instance that made it.
    pub source: String,
    /// Path on this machine; `None` while the file is elsewhere.
    pub path: Option<PathBuf>,
    /// Name that its backend gives it, when the file is or was elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The backend instance that hands the file out, where that is not its source.
    #[serde(skip)]
    pub holder: Option<String>,
}

/// A file that an earlier session on the thread knew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedFile {
    /// Handle of the file, and what it is.
    pub reference: ArtifactRef,
    /// The backend instance that made it.
    pub source: String,
    /// Path at which the file was: absolute, or below one of the session's directories.
    pub recorded_path: Option<PathBuf>,
    /// Name that its backend gives it.
    pub remote: Option<String>,
    /// The backend instance that hands the file out, where that is not its source.
    pub holder: Option<String>,
}

impl Artifact {
    /// The reference that messages carry.
    pub fn reference(&self) -> ArtifactRef {
        ArtifactRef {
            id: self.id.clone(),
            name: self.name.clone(),
            media_type: self.media_type.clone(),
            size: self.size,
        }
    }

    /// The backend instance that hands the file out.
    pub fn fetch_backend(&self) -> &str {
        self.holder.as_deref().unwrap_or(&self.source)
    }

    /// Why it is not to be had, where nobody can fetch it. `file` is how it was asked for, and
    /// `recorded_path` where an earlier session had it.
    pub(super) fn missing(&self, file: &str, recorded_path: Option<&PathBuf>) -> FileError {
        let file = file.to_owned();
        if self.remote.is_some() {
            let backend = self.fetch_backend().to_owned();
            return FileError::Elsewhere { file, backend };
        }
        match self.path.as_ref().or(recorded_path) {
            Some(path) => FileError::Gone {
                file,
                path: path.clone(),
            },
            None => FileError::FileNotFound { file },
        }
    }
}

impl RecordedFile {
    /// The backend instance that hands the file out.
    pub(crate) fn fetch_backend(&self) -> &str {
        self.holder.as_deref().unwrap_or(&self.source)
    }
}

/// Why a file is not to be had.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FileError {
    /// No such file.
    #[error("there is no file `{file}` in this session")]
    FileNotFound {
        /// What was asked for.
        file: String,
    },
    /// The file was on this machine and is not any more.
    #[error(
        "the file `{file}` is gone: it was `{}`, which is there no more, is another thing by now, such \
         as a link, or is outside the session's directories. Have it made again",
        path.display()
    )]
    Gone {
        /// What was asked for.
        file: String,
        /// Path at which the file was.
        path: PathBuf,
    },
    /// The file is with a backend that the session does not have, or that hands out no files.
    #[error(
        "the file `{file}` is still with the backend `{backend}`, which this session does not have \
         or which hands out no files; a session whose configuration has this backend can fetch it"
    )]
    Elsewhere {
        /// What was asked for.
        file: String,
        /// The backend instance that has it.
        backend: String,
    },
    /// The file is elsewhere and could not be fetched.
    #[error("the file {file_id} could not be fetched: {reason}")]
    DownloadFailed {
        /// Handle of the file.
        file_id: String,
        /// What the backend said.
        reason: String,
    },
    /// What a backend offered is not a file that may be taken.
    #[error("backend `{backend}` offered the file `{name}`, which is refused: {reason}")]
    Refused {
        /// The backend instance to blame.
        backend: String,
        /// The name that it gave.
        name: String,
        /// What is wrong with the file.
        reason: String,
    },
}
