//! Files of a session that a call names by their handles, brought to where its backend finds them.
//!
//! A file lies where it was made until a call wants it elsewhere. A backend of this machine gets
//! it in the working directory, one whose commands run elsewhere by `files.put`.

use std::collections::BTreeSet;
use std::path::Path;

use conjure_core::context::FilePaths;
use conjure_skill_sdk::protocol::{FileRef, FilesPut, op};

use super::lease::{BackendLease, ask};
use super::surroundings::Surroundings;
use crate::artifacts::Artifacts;

/// The files of a session, for one call.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) artifacts: &'a Artifacts,
    pub(super) around: &'a Surroundings,
}

impl Files<'_> {
    /// Whether a word of a call stands for a file: a handle, or what the file's backend calls it.
    /// What the working directory has itself is meant as it is.
    pub(super) fn is_handle(&self, word: &str) -> bool {
        self.artifacts.handle_of(word).is_some() && !self.around.working_dir.join(word).exists()
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
        let found = self.artifacts.resolve(&handle).await;
        let from = found.map_err(|error| error.to_string())?;
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        let name = match self.artifacts.name_of(&handle) {
            Some(known) => format!("{handle}-{known}"),
            None => format!("{handle}-{name}"),
        };
        let elsewhere = to.filter(|lease| lease.plugin.manifest().has("files.put/1"));
        let brought = match elsewhere {
            Some(lease) => self.put(lease, &from, &name).await,
            None => self.here(&from, &name),
        };
        brought.map_err(|reason| format!("the file {handle} could not be brought there: {reason}"))
    }

    /// A path in the working directory: the file's own, or that of a copy.
    fn here(&self, from: &Path, name: &str) -> Result<String, String> {
        let dir = &self.around.working_dir;
        if from.starts_with(dir) {
            return Ok(from.display().to_string());
        }
        let to = dir.join(name);
        crate::fs::copy_over(from, &to).map_err(|error| error.to_string())?;
        Ok(to.display().to_string())
    }

    /// Where the backend has it.
    async fn put(&self, lease: &BackendLease, from: &Path, name: &str) -> Result<String, String> {
        let dir = &self.around.exchange_dir;
        let is_there = from.starts_with(dir) || from.starts_with(&self.around.working_dir);
        // A plugin reads the host's files in the working and the exchange directory only.
        let crossing = (!is_there).then(|| dir.join(format!("put-{}", uuid::Uuid::now_v7())));
        if let Some(crossing) = &crossing {
            crate::fs::copy_over(from, crossing).map_err(|error| error.to_string())?;
        }
        let path = crossing.as_deref().unwrap_or(from);
        let file = FileRef {
            name: name.to_owned(),
            path: Some(path.display().to_string()),
            ..FileRef::default()
        };
        let put = FilesPut { file };
        let there = ask::<_, FileRef>(&lease.instance, self.around, op::FILES_PUT, put).await;
        if let Some(crossing) = &crossing {
            crate::fs::remove_file(crossing);
        }
        let there = there.map_err(|error| error.to_string())?;
        there
            .path
            .ok_or_else(|| "the backend took it and did not say where it is".to_owned())
    }
}
