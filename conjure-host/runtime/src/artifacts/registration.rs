//! Taking in a file that a plugin names while it runs: aside, few at a time, and no longer than somebody
//! waits. A plugin can name a file of any size, and be gone in the next moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_skill_sdk::protocol::FileRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::digest::{LARGE, ReadCheck, abandoned_error};
use super::{Artifact, Artifacts, FileError};

/// How many large files of a plugin are read at the same time for a session.
const AT_ONCE: usize = 2;

/// Turns of plugins to read large files for a session: each plugin waits for its own files alone.
#[derive(Debug, Default)]
pub(super) struct ReadPermits(Mutex<BTreeMap<String, Arc<Semaphore>>>);

impl ReadPermits {
    /// Waits until this plugin may have one more read.
    async fn acquire(&self, plugin: &str) -> Option<OwnedSemaphorePermit> {
        let turns = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let turns = all.entry(plugin.to_owned());
            Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))))
        };
        // It is never closed.
        turns.acquire_owned().await.ok()
    }
}

impl Artifacts {
    /// [`Artifacts::register`] on a thread that may block. Whoever drops the future ends it.
    ///
    /// # Errors
    /// As for [`Artifacts::register`].
    pub(crate) async fn register_async(
        self: Arc<Self>,
        backend: &str,
        file: FileRef,
    ) -> Result<Artifact, FileError> {
        let artifacts = Arc::clone(&self);
        let turn = match is_small(&file) {
            true => None,
            false => self.read_permits.acquire(backend).await,
        };
        let (name, source) = (file.name.clone(), backend.to_owned());
        let dropped = CancellationToken::new();
        let _dropped = dropped.clone().drop_guard();
        let taken = tokio::task::spawn_blocking(move || {
            // Until the reading ends, whatever has become of who asked for it.
            let _turn = turn;
            let check = |_: u64, _: u64| match dropped.is_cancelled() {
                true => Err(abandoned_error()),
                false => Ok(()),
            };
            artifacts.register_checked(&source, &file, &check)
        });
        taken.await.unwrap_or_else(|error| {
            Err(FileError::Refused {
                backend: backend.to_owned(),
                name,
                reason: error.to_string(),
            })
        })
    }

    /// [`Artifacts::register`] as long as the check has nothing against it.
    pub(super) fn register_checked(
        &self,
        backend: &str,
        file: &FileRef,
        check: ReadCheck<'_>,
    ) -> Result<Artifact, FileError> {
        self.register_with(backend, file, None, true, check)
    }
}

/// Whether a file is read so soon that it need not wait for a turn.
fn is_small(file: &FileRef) -> bool {
    let path = file.path.as_deref();
    let size = path.and_then(|path| conjure_config::fs::size(path).ok());
    size.is_none_or(|size| size <= LARGE)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn no_plugin_waits_for_the_files_of_another_and_small_files_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, size: u64| {
            let path = dir.path().join(name);
            let made = std::fs::File::create(&path).unwrap();
            made.set_len(size).unwrap();
            FileRef::at(path.display().to_string())
        };
        let (large, small) = (file("large", LARGE + 1), file("small", LARGE));
        let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
        let artifacts = Arc::new(artifacts);
        let held = [(); AT_ONCE].map(|()| artifacts.read_permits.acquire("busy").now_or_never());
        assert!(held.iter().all(|held| matches!(held, Some(Some(_)))));
        let register = |plugin: &'static str, file: &FileRef| {
            Arc::clone(&artifacts).register_async(plugin, file.clone())
        };
        assert!(register("busy", &large).now_or_never().is_none());
        assert!(artifacts.list().is_empty());
        register("busy", &small).await.unwrap();
        register("other", &large).await.unwrap();
        drop(held);
        register("busy", &large).await.unwrap();
    }
}
