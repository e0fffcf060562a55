//! Files that are still with the backend which made them: fetched when somebody asks for them, once,
//! and kept in the database from then on.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::StatusCode;

use super::files::find_file;
use super::problem::Problem;
use super::state::App;
use conjure_runtime::manager::{FetchError, FetchedFile};
use conjure_store::{ArtifactRow, StoreError, ThreadId};

/// How long a backend may take to give a file.
const FETCH_TIMEOUT: Duration = Duration::from_secs(600);
/// Files that are fetched at the same time.
pub(super) const MAX_FETCHES: usize = 8;

/// Files that are on their way: whoever asks for one of them waits for it.
#[derive(Default)]
pub(super) struct Fetching(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Fetching {
    /// What is held while a file is fetched.
    fn of(&self, file: &ArtifactRow) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, one| one.strong_count() > 0);
        let name = format!("{}/{}", file.thread, file.entry_seq);
        let known = all.get(&name).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let one = Arc::new(tokio::sync::Mutex::new(()));
            all.insert(name, Arc::downgrade(&one));
            one
        })
    }
}

/// Where a file is now.
pub(super) enum FetchedLocation {
    /// In the database.
    Blob(String),
    /// On this machine, because the database could not take it.
    Path(PathBuf),
}

/// Fetches a file of a thread from its backend, through `session` or one that has the thread.
pub(super) async fn fetch(
    app: &App,
    thread: &ThreadId,
    file: &ArtifactRow,
    session: Option<&str>,
) -> Result<FetchedLocation, Problem> {
    let fetching = async {
        let one = app.fetching.of(file);
        let _one = one.lock().await;
        // Somebody else may have fetched it meanwhile.
        if let Some(blob) = find_file(&app.store, thread, &file.id).await?.blob {
            return Ok(FetchedLocation::Blob(blob));
        }
        let _room = app.fetches.acquire().await;
        let fetched = app
            .manager
            .fetch_file(thread, &file.id, &file.source, session);
        save_fetched(
            app,
            file,
            fetched.await.map_err(|error| problem(file, error))?,
        )
        .await
    };
    tokio::select! {
        fetched = tokio::time::timeout(FETCH_TIMEOUT, fetching) => fetched.unwrap_or_else(|_| {
            let reason = format!("it took longer than {} s", FETCH_TIMEOUT.as_secs());
            let backend = file.source.clone();
            Err(problem(file, FetchError::Backend { backend, reason }))
        }),
        () = app.closing.cancelled() => {
            Err(Problem::unavailable("ending", "the server is ending"))
        }
    }
}

/// Keeps a file that came.
async fn save_fetched(
    app: &App,
    file: &ArtifactRow,
    fetched: FetchedFile,
) -> Result<FetchedLocation, Problem> {
    let FetchedFile { path, is_spare } = fetched;
    let kept = async {
        let opened = conjure_config::fs::open_no_follow(&path);
        let (opened, ..) = opened.map_err(|source| StoreError::Io {
            what: "read",
            path: path.clone(),
            source: Arc::new(source),
        })?;
        let bytes = tokio::fs::File::from_std(opened);
        let blob = app.store.put_blob(&file.thread, bytes).await?;
        app.store.keep_artifact(file, &blob).await?;
        Ok::<_, StoreError>(blob.sha256)
    };
    match kept.await {
        Ok(blob) => {
            // One that the log places somewhere is not a copy of ours.
            if is_spare && file.location.is_none() {
                conjure_config::fs::remove_file(&path);
            }
            Ok(FetchedLocation::Blob(blob))
        }
        Err(error) => {
            tracing::warn!(file = file.id, "given, and not kept: {error}");
            Ok(FetchedLocation::Path(path))
        }
    }
}

fn problem(file: &ArtifactRow, error: FetchError) -> Problem {
    let (id, said) = (&file.id, error.to_string());
    let (away, backend) = match error {
        FetchError::Manager(error) => return error.into(),
        FetchError::NoSession { backend, .. } => {
            let why = format!("the bytes of {id} are not here: {said}");
            (Problem::conflict("not-here", why), backend)
        }
        FetchError::Backend { backend, .. } => {
            let why = format!(
                "{id} could not be fetched: {said}; `conjure doctor` says how backends are"
            );
            let problem = Problem::new(StatusCode::BAD_GATEWAY, "backend", why);
            (problem, backend)
        }
    };
    away.with_member("backend", backend)
}
