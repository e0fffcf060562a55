//! Files of threads that are still with the backends which made them: fetched through a session
//! that has the backend.

use std::path::PathBuf;

use async_recursion::async_recursion as boxed;
use tokio::time::Instant;

use super::opening::RETRY_INTERVAL;
use super::{Manager, ManagerError, lock};
use crate::artifacts::FileError;
use crate::session::{SessionError, fetch_backend, find_cached};
use conjure_config::SessionSpec;
use conjure_store::{RunFilter, SavedSession as Row, StoreError, ThreadId};

/// The newest turns of a thread whose sessions are asked.
const MAX_RUNS: u64 = 50;

/// A file that came.
pub struct FetchedFile {
    /// Path of the file on this machine.
    pub path: PathBuf,
    /// Whether it came just now, and no session that is open knows of it there.
    pub is_spare: bool,
}

/// Why a file does not come.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No session that is there could ask the backend.
    #[error(
        "it is with the backend `{backend}`, and {why}; choose the thread in a session that has \
         this backend, or name such a session"
    )]
    NoSession {
        /// The backend that has it.
        backend: String,
        /// What is known of the sessions.
        why: String,
    },
    /// The backend was asked.
    #[error("the backend `{backend}` did not give it: {reason}")]
    Backend {
        /// Name of the backend.
        backend: String,
        /// What it said.
        reason: String,
    },
    /// The session or the thread.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

impl Manager {
    /// Where a file of a thread is on this machine, once the backend that made it has given it:
    /// through the session that has the thread open, else through `session`, else, where none is
    /// named, through one that chose the thread or last spoke in it. A thread that somebody is
    /// about to open or to close is waited for. `backend` is asked where the thread's log does not
    /// say who hands the file out.
    #[boxed]
    pub async fn fetch_file(
        &self,
        thread: &ThreadId,
        file: &str,
        backend: &str,
        session: Option<&str>,
    ) -> Result<FetchedFile, FetchError> {
        let until = Instant::now() + self.inner.options.patience;
        loop {
            let fetched = Box::pin(self.fetch_file_now(thread, file, backend, session));
            match fetched.await {
                Err(FetchError::Manager(ManagerError::Store(StoreError::Busy { .. })))
                    if Instant::now() < until =>
                {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                done => return done,
            }
        }
    }

    async fn fetch_file_now(
        &self,
        thread: &ThreadId,
        file: &str,
        backend: &str,
        session: Option<&str>,
    ) -> Result<FetchedFile, FetchError> {
        let open = lock(&self.inner.active_threads).get(thread).cloned();
        let mut failed = None;
        if let Some(open) = open {
            match open.handle.resolve(file).await {
                // It has no such backend; another session may.
                Err(FileError::FileNotFound { .. } | FileError::Elsewhere { .. }) => {}
                Ok(path) => {
                    return Ok(FetchedFile {
                        path,
                        is_spare: false,
                    });
                }
                Err(error) => failed = Some(error).filter(|_| session.is_none()),
            }
        }
        let host = &self.inner.host;
        let entries = host.entries(thread).await.map_err(ManagerError::from)?;
        let recorded = fetch_backend(&entries, file);
        let backend = recorded.as_deref().unwrap_or(backend);
        if let Some(error) = failed {
            return Err(refused(backend, &error));
        }
        if let Some(path) = find_cached(&entries, host.data_dir(), thread, file) {
            return Ok(FetchedFile {
                path,
                is_spare: false,
            });
        }
        let rows = match session {
            Some(session) => vec![self.inner.row(session).await?],
            None => self.sessions_of(thread).await?,
        };
        let is_any = !rows.is_empty();
        for row in rows {
            let Some(spec) = self.spec_with(&row, backend).await? else {
                continue;
            };
            let handles = [file.to_owned()];
            let fetched = Box::pin(host.fetch_files(spec, thread, &handles)).await;
            let mut fetched = fetched.map_err(|error| match error {
                SessionError::Store(error) => FetchError::Manager(error.into()),
                error => FetchError::Backend {
                    backend: backend.to_owned(),
                    reason: error.to_string(),
                },
            })?;
            let none = || {
                Err(FileError::FileNotFound {
                    file: file.to_owned(),
                })
            };
            let path = fetched.remove(file).unwrap_or_else(none);
            return Ok(FetchedFile {
                path: path.map_err(|error| refused(backend, &error))?,
                is_spare: true,
            });
        }
        let why = match (session, is_any) {
            (Some(_), _) => "the session that was named has no such backend",
            (None, true) => "no session of this thread has it any more",
            (None, false) => "no session has this thread",
        };
        Err(FetchError::NoSession {
            backend: backend.to_owned(),
            why: why.to_owned(),
        })
    }

    /// The sessions that a thread belongs to: those that chose it, then those that spoke in it.
    async fn sessions_of(&self, thread: &ThreadId) -> Result<Vec<Row>, ManagerError> {
        let store = &self.inner.store;
        let mut rows = store.thread_sessions(thread).await?;
        for run in store
            .runs(RunFilter::Thread(thread), None, MAX_RUNS)
            .await?
        {
            let Some(id) = run.session_id else { continue };
            if rows.iter().any(|row| row.id == id) {
                continue;
            }
            match store.session(&id).await {
                Ok(row) => rows.push(row),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rows)
    }

    /// What a session is opened with, of its backends only this one; nothing where it has none of
    /// this name, or cannot be opened.
    async fn spec_with(
        &self,
        row: &Row,
        backend: &str,
    ) -> Result<Option<SessionSpec>, ManagerError> {
        let mut spec = match self.inner.checked_spec(row).await {
            Ok(spec) => spec,
            Err(error @ ManagerError::Store(_)) => return Err(error),
            Err(error) => {
                tracing::info!(session = row.id, "it cannot be opened for a file: {error}");
                return Ok(None);
            }
        };
        spec.backends.retain(|known| known.instance() == backend);
        Ok((!spec.backends.is_empty()).then_some(spec))
    }
}

fn refused(backend: &str, error: &FileError) -> FetchError {
    let reason = match error {
        FileError::FileNotFound { .. } | FileError::Elsewhere { .. } | FileError::Gone { .. } => {
            "it does not hand out files, or has this one no more"
        }
        FileError::DownloadFailed { reason, .. } | FileError::Refused { reason, .. } => reason,
    };
    FetchError::Backend {
        backend: backend.to_owned(),
        reason: reason.to_owned(),
    }
}
