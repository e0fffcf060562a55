//! The files of a thread that nobody has open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_core::log::{Entry, EntryBody};

use super::error::SessionError;
use super::host_state::HostState;
use super::session_dirs::{SessionDirs, files_dir};
use crate::artifacts::{Artifact, FileError, RecordedFile};
use conjure_config::SessionSpec;
use conjure_store::ThreadId;

/// The files that a log tells of, in order; of a handle that is there twice the later one.
pub(crate) fn recorded_files(entries: &[Entry]) -> Vec<RecordedFile> {
    let mut files: Vec<RecordedFile> = Vec::new();
    for entry in entries {
        let EntryBody::File {
            artifact,
            source,
            place,
            remote,
            holder,
            ..
        } = &entry.body
        else {
            continue;
        };
        let file = RecordedFile {
            reference: artifact.clone(),
            source: source.clone(),
            recorded_path: place.as_ref().map(PathBuf::from),
            remote: remote.clone(),
            holder: holder.clone(),
        };
        let known = |known: &&mut RecordedFile| known.reference.id == artifact.id;
        match files.iter_mut().find(known) {
            Some(known) => *known = file,
            None => files.push(file),
        }
    }
    files
}

/// Files of a log as artifacts, each with its path if it is still there, or was fetched by a session on
/// the thread.
pub(crate) fn files(entries: &[Entry], data_dir: &Path, thread: &ThreadId) -> Vec<Artifact> {
    let cache = files_dir(data_dir, thread);
    let artifact = |file: RecordedFile| Artifact {
        path: path_of(&file, &cache),
        id: file.reference.id,
        name: file.reference.name,
        media_type: file.reference.media_type,
        size: file.reference.size,
        sha256: None,
        source: file.source,
        remote: file.remote,
        holder: file.holder,
    };
    recorded_files(entries).into_iter().map(artifact).collect()
}

fn path_of(file: &RecordedFile, cache: &Path) -> Option<PathBuf> {
    let place = file.recorded_path.clone();
    let place = place.filter(|path| path.is_absolute() && path.is_file());
    place.or_else(|| cached_file(file, cache))
}

/// Where a file is that was fetched before.
fn cached_file(file: &RecordedFile, cache: &Path) -> Option<PathBuf> {
    file.cached_path(cache).filter(|path| path.is_file())
}

/// The backend instance that hands a file of a thread out, by the file's handle.
pub(crate) fn fetch_backend(entries: &[Entry], handle: &str) -> Option<String> {
    let mut files = recorded_files(entries).into_iter();
    let file = files.find(|file| file.reference.id == handle)?;
    Some(file.fetch_backend().to_owned())
}

/// Where a file of a thread is that a session fetched, by its handle.
pub(crate) fn find_cached(
    entries: &[Entry],
    data_dir: &Path,
    thread: &ThreadId,
    handle: &str,
) -> Option<PathBuf> {
    let mut files = recorded_files(entries).into_iter();
    let file = files.find(|file| file.reference.id == handle)?;
    cached_file(&file, &files_dir(data_dir, thread))
}

/// Fetches files of a thread, by handle, from the backends that have them. Writes nothing to its
/// log.
///
/// # Errors
/// When the backends cannot be made ready. A file that is not to be had is an error of its own.
pub(crate) async fn fetch(
    shared: Arc<HostState>,
    spec: SessionSpec,
    thread: &ThreadId,
    entries: &[Entry],
    handles: &[String],
) -> Result<BTreeMap<String, Result<PathBuf, FileError>>, SessionError> {
    let dirs = SessionDirs::make(&shared, &spec, thread, None, None)?;
    let mut toolbox = dirs.attach(&spec, entries).await?;
    let artifacts = &dirs.services.artifacts;
    artifacts.restore(&recorded_files(entries), |backend| toolbox.fetch(backend));
    let mut found = BTreeMap::new();
    for handle in handles {
        found.insert(handle.clone(), artifacts.resolve(handle).await);
    }
    toolbox.close().await;
    Ok(found)
}
