//! A file of a session that is open: what is read is what was looked at, whatever a command puts in
//! its place meanwhile.

use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use async_recursion::async_recursion as boxed;
use conjure_config::fs::{create_private_dir, move_no_follow, open_no_follow, range_of};

use super::digest::digest_reader;
use super::{Artifact, Artifacts, Fetch, FileError};

/// A file of a session, open for reading.
#[derive(Debug)]
pub struct OpenArtifact {
    /// Path of the file, without links.
    pub path: PathBuf,
    /// The file that was at this path when it was opened.
    pub file: File,
    /// Size in bytes.
    pub size: u64,
}

impl OpenArtifact {
    /// The file at a path without links; nothing where something else is there now.
    fn at(path: &Path) -> Option<Self> {
        let opened =
            open_no_follow(path).inspect_err(|error| tracing::debug!("not given: {error}"));
        let (file, size, _) = opened.ok()?;
        Some(Self {
            path: path.to_owned(),
            file,
            size,
        })
    }

    /// All of it; nothing where it has more than `most` bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn bytes(&self, most: u64) -> std::io::Result<Option<Vec<u8>>> {
        if self.size > most {
            return Ok(None);
        }
        // It may grow while it is read.
        let bytes = range_of(&self.file, 0, most.saturating_add(1))?;
        Ok((bytes.len() as u64 <= most).then_some(bytes))
    }

    /// Hash and size of the file, as [`digest_path`](super::digest_path) gives them.
    pub(crate) fn digest(&self) -> std::io::Result<(String, u64)> {
        let mut file = &self.file;
        file.rewind()?;
        digest_reader(file, self.size, &|_, _| Ok(()))
    }
}

impl Artifacts {
    /// Where a file is on this machine, as for [`Artifacts::open`]. Whoever reads it there opens it
    /// with [`open_no_follow`]: a command may put another thing in its place at any time.
    ///
    /// # Errors
    /// [`FileError`], but [`FileError::Refused`].
    #[boxed]
    pub async fn resolve(&self, file: &str) -> Result<PathBuf, FileError> {
        self.open(file).await.map(|opened| opened.path)
    }

    /// Opens a file, if it is still a regular one where it was and no link is on the way to it; a
    /// remote one is fetched first, once, and again only when what came is there no more.
    ///
    /// `file` is a handle, or a name: the newest file that has it.
    ///
    /// # Errors
    /// [`FileError`], but [`FileError::Refused`].
    #[boxed]
    pub async fn open(&self, file: &str) -> Result<OpenArtifact, FileError> {
        let held = self.find(file)?;
        let artifact = held
            .artifact
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(opened) = artifact.path.as_deref().and_then(OpenArtifact::at) {
            return Ok(opened);
        }
        let Some((id, fetch)) = &held.remote else {
            return Err(artifact.missing(file, held.recorded_path.as_ref()));
        };
        let mut fetched = held.fetched.lock().await;
        if let Some(opened) = fetched.as_deref().and_then(OpenArtifact::at) {
            return Ok(opened);
        }
        let came = self.fetch(&artifact, id, fetch).await;
        let digested = came.and_then(|opened| {
            let digest = opened.digest().map_err(|error| error.to_string())?;
            Ok((opened, digest))
        });
        let (opened, (sha256, size)) = digested.map_err(|reason| FileError::DownloadFailed {
            file_id: artifact.id.clone(),
            reason,
        })?;
        *fetched = Some(opened.path.clone());
        let mut known = held.artifact.lock().unwrap_or_else(PoisonError::into_inner);
        known.sha256 = Some(sha256);
        known.size = Some(size);
        known.path = Some(opened.path.clone());
        Ok(opened)
    }

    /// Fetches a file from its backend to its place in the cache.
    async fn fetch(
        &self,
        artifact: &Artifact,
        id: &str,
        fetch: &Fetch,
    ) -> Result<OpenArtifact, String> {
        let failed = |error: std::io::Error| error.to_string();
        create_private_dir(&self.cache).map_err(failed)?;
        let cache = self.cache.canonicalize().map_err(failed)?;
        let arriving = cache.join(format!("{}-{}", uuid::Uuid::now_v7(), artifact.name));
        fetch(id.to_owned(), arriving.clone()).await?;
        let to = artifact.cached_path(&cache);
        let to = to.unwrap_or_else(|| arriving.clone());
        move_no_follow(&arriving, &to).map_err(failed)?;
        OpenArtifact::at(&to).ok_or_else(|| "what came was replaced at once".to_owned())
    }

    /// Opens a file that somebody names by a path, if it is a regular one in the session's
    /// directories, links resolved.
    ///
    /// # Errors
    /// Why it is not opened.
    pub fn open_inside(&self, path: &Path) -> Result<OpenArtifact, String> {
        let real = self.resolve_in_roots(path)?;
        let moved = || format!("`{}` was replaced meanwhile", path.display());
        OpenArtifact::at(&real).ok_or_else(moved)
    }
}
