//! Files of a session that a call names by their handles, brought to where its backend finds them.
//!
//! A file lies where it was made until a call wants it elsewhere. A backend of this machine gets
//! it in the working directory, one whose commands run elsewhere by `files.put`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_core::context::FilePaths;
use conjure_skill_sdk::protocol::{FileRef, FilesPut, op};

use super::backend_lease::BackendLease;
use super::lease::ask;
use super::request_context::RequestContext;
use crate::artifacts::{Artifacts, IncomingCopy, OpenArtifact, digest_path};
use conjure_config::platform::copy_mark;

/// The files of a session, for one call.
#[derive(Clone, Copy)]
pub(super) struct StagedFiles<'a> {
    pub(super) artifacts: &'a Artifacts,
    pub(super) request_context: &'a RequestContext,
}

impl StagedFiles<'_> {
    /// Whether a word of a call stands for a file: a handle, or what the file's backend calls it.
    /// What the working directory has itself is meant as it is.
    pub(super) fn is_handle(&self, word: &str) -> bool {
        self.artifacts.handle_of(word).is_some()
            && !self.request_context.working_dir.join(word).exists()
    }

    /// Brings files to a backend; without one, to the working directory.
    ///
    /// # Errors
    /// Why the first that is not to be had is not.
    pub(super) async fn paths(
        &self,
        handles: BTreeSet<String>,
        to: Option<&BackendLease>,
    ) -> Result<FilePaths, String> {
        let mut paths = FilePaths::new();
        for handle in handles {
            let path = self.path(&handle, to).await?;
            paths.insert(handle, path);
        }
        Ok(paths)
    }

    async fn path(&self, word: &str, to: Option<&BackendLease>) -> Result<String, String> {
        let handle = self.artifacts.handle_of(word);
        let handle = handle.unwrap_or_else(|| word.to_owned());
        let found = self.artifacts.open(&handle).await;
        let from = Arc::new(found.map_err(|error| error.to_string())?);
        let name = self.artifacts.name_of(&handle).unwrap_or_default();
        let name = format!("{handle}-{name}");
        let arriving = self.artifacts.expect_copy(&name);
        let elsewhere = to.filter(|lease| lease.serving_plugin().manifest().has("files.put/1"));
        let staged = match elsewhere {
            Some(lease) => self.put(lease, &from, name, &arriving).await,
            None => self.local_path(&from, name).await,
        };
        let staged = staged
            .map_err(|reason| format!("the file {handle} could not be brought there: {reason}"))?;
        self.mark(arriving, from, &staged).await;
        Ok(staged)
    }

    /// Remembers a copy, and marks it where it lies in the working directory, which other processes
    /// may look at too.
    async fn mark(&self, arriving: IncomingCopy<'_>, from: Arc<OpenArtifact>, staged: &str) {
        let name = Path::new(staged).file_name();
        let copy = name.map(|name| self.request_context.working_dir.join(name));
        let marked = tokio::task::spawn_blocking(move || {
            let (sha256, _) = from.digest().ok()?;
            // The bytes that lie there are what counts; a file of a container may be none of these.
            if let Some(copy) = copy.filter(|copy| *copy != from.path)
                && copy.symlink_metadata().is_ok_and(|found| found.is_file())
                && digest(&copy).as_ref() == Some(&sha256)
            {
                copy_mark::mark(&copy, &sha256);
            }
            Some(sha256)
        });
        if let Ok(Some(sha256)) = marked.await {
            arriving.complete(&sha256);
        }
    }

    /// A path in the working directory: the file's own, or that of a copy. A copy that somebody
    /// changed is somebody's work, and stays.
    async fn local_path(&self, from: &Arc<OpenArtifact>, name: String) -> Result<String, String> {
        let dir = &self.request_context.working_dir;
        let path = match from.path.starts_with(dir) {
            true => from.path.clone(),
            false => copy(Arc::clone(from), dir.clone(), name).await?,
        };
        Ok(path.display().to_string())
    }

    /// Where the backend has it. It reads a copy in the exchange directory, whatever a command puts in
    /// the place of the file meanwhile.
    async fn put(
        &self,
        lease: &BackendLease,
        from: &Arc<OpenArtifact>,
        name: String,
        arriving: &IncomingCopy<'_>,
    ) -> Result<String, String> {
        let dir = &self.request_context.exchange_dir;
        let crossing = format!("put-{}", uuid::Uuid::now_v7());
        let path = copy(Arc::clone(from), dir.clone(), crossing).await?;
        let file = FileRef {
            name,
            path: Some(path.display().to_string()),
            ..FileRef::default()
        };
        let put = FilesPut { file };
        let there = ask::<_, FileRef>(
            lease.serving().await,
            self.request_context,
            op::FILES_PUT,
            put,
        )
        .await;
        conjure_config::fs::remove_file(&path);
        let there = there.map_err(|error| error.to_string())?;
        if let Some(id) = there.id {
            arriving.came_elsewhere(id);
        }
        there
            .path
            .ok_or_else(|| "the backend took it and did not say where it is".to_owned())
    }
}

fn digest(path: &Path) -> Option<String> {
    digest_path(path).ok().map(|(sha256, _)| sha256)
}

/// Copies a file without keeping the other tasks of a worker thread waiting.
async fn copy(from: Arc<OpenArtifact>, dir: PathBuf, name: String) -> Result<PathBuf, String> {
    let copying =
        tokio::task::spawn_blocking(move || conjure_config::fs::copy_into(&from.file, dir, &name));
    match copying.await {
        Ok(copied) => copied.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_copy_is_used_again_and_what_became_of_one_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("made");
        std::fs::write(&from, "made").unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let artifacts = Artifacts::new(vec![dir.path().to_owned()], dir.path().join("cache"));
        let opened = Arc::new(artifacts.open_inside(&from).unwrap());
        let bring = || copy(Arc::clone(&opened), work.clone(), "file-1-a.csv".to_owned());
        let first = bring().await.unwrap();
        assert_eq!(first, work.join("file-1-a.csv"));
        assert_eq!(bring().await.unwrap(), first);
        std::fs::write(&first, "mine").unwrap();
        let second = bring().await.unwrap();
        assert_eq!(second, work.join("2-file-1-a.csv"));
        assert_eq!(std::fs::read(&second).unwrap(), b"made");
        assert_eq!(std::fs::read(&first).unwrap(), b"mine");
        // Nor is a link followed.
        std::fs::remove_file(&second).unwrap();
        std::os::unix::fs::symlink(&from, &second).unwrap();
        assert_eq!(bring().await.unwrap(), work.join("3-file-1-a.csv"));
    }
}
