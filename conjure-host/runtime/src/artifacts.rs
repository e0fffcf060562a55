//! Artifacts: every file that a session's calls made, wherever it is.
//!
//! A file is fetched from where it is only when somebody needs it, once, into a cache. A name or
//! an id from outside never becomes a path.

mod artifact;
mod attribution;
mod cache_path;
mod copies;
mod digest;
mod elsewhere;
mod hash_budget;
mod media_type;
mod open_artifact;
mod pdf;
mod registration;
mod text_encoding;
mod windows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use conjure_config::fs::{move_no_follow, open_no_follow};
use conjure_skill_sdk::protocol::FileRef;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub use artifact::{Artifact, FileError, RecordedFile};
pub(crate) use attribution::{FileMatch, WriteTracker};
pub use conjure_config::file_name::safe_name;
pub(crate) use copies::IncomingCopy;
pub(crate) use digest::digest_path;
use digest::{ReadCheck, digest_checked};
pub(crate) use hash_budget::HashBudget;
pub(crate) use media_type::{is_lookable, is_media_type, sniff};
pub use media_type::{media_type, media_type_of};
pub use open_artifact::OpenArtifact;
pub use pdf::is_encrypted_pdf;
pub(crate) use text_encoding::text_of;
use windows::SessionWorkspace;
pub use windows::UNKNOWN_SOURCE;
pub(crate) use windows::{CallLocation, CallWindow, LocationSlot};

/// Fetches a file from a backend to a path that does not exist yet.
pub type Fetch =
    Arc<dyn Fn(String, PathBuf) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The files of one session.
pub struct Artifacts {
    /// Directories in which a backend's files may be.
    roots: Vec<PathBuf>,
    cache: PathBuf,
    /// What the host keeps; a working directory that holds it does not make it the session's.
    host_dir: Option<PathBuf>,
    /// The exchange directory, which ends with the session; a file in it is moved into the cache.
    exchange_dir: Option<PathBuf>,
    /// Where files of the exchange directory have been moved to.
    relocations: Mutex<BTreeMap<PathBuf, PathBuf>>,
    files: Mutex<BTreeMap<String, Arc<ArtifactSlot>>>,
    /// Locked while a file that lies with its backend is looked up and registered.
    remote_registration: Mutex<()>,
    write_tracker: Arc<WriteTracker>,
    /// The session, among those that write.
    workspace: Arc<SessionWorkspace>,
    /// Turns for reading large files that plugins name while they run.
    read_permits: registration::ReadPermits,
    /// The session is over.
    ended: CancellationToken,
}

/// An artifact and where it was fetched to.
struct ArtifactSlot {
    artifact: Mutex<Artifact>,
    remote: Option<(String, Fetch)>,
    /// Whether who made it said so; else it was found beside a call.
    is_reported: AtomicBool,
    /// Path under which an earlier session had the file.
    recorded_path: Option<PathBuf>,
    /// Path that the file was fetched to; locked while it is being fetched.
    fetched: tokio::sync::Mutex<Option<PathBuf>>,
    /// Call that made the file or found it, where the file lies with its backend.
    finder: Mutex<Option<elsewhere::FinderCall>>,
}

impl Artifacts {
    /// No files yet. `roots` are where files may be; `cache` is where remote ones come to.
    pub fn new(roots: Vec<PathBuf>, cache: PathBuf) -> Self {
        let roots: Vec<PathBuf> = roots
            .into_iter()
            .map(|root| root.canonicalize().unwrap_or(root))
            .collect();
        let workspace = SessionWorkspace {
            session: String::new(),
            dir: Arc::from(roots.first().map_or(Path::new(""), PathBuf::as_path)),
            is_shared: false,
        };
        Self {
            roots,
            cache,
            host_dir: None,
            exchange_dir: None,
            relocations: Mutex::default(),
            files: Mutex::new(BTreeMap::new()),
            remote_registration: Mutex::default(),
            write_tracker: Arc::default(),
            workspace: Arc::new(workspace),
            read_permits: registration::ReadPermits::default(),
            ended: CancellationToken::new(),
        }
    }

    /// A call of this backend begins, and may write. `finds_files`: its executor looks for the files
    /// that it made.
    pub(crate) fn begin(&self, backend: &Arc<str>, finds_files: bool) -> CallWindow<'_> {
        self.write_tracker
            .windows
            .begin(&self.workspace, backend, finds_files)
    }

    /// Like [`Self::begin`], for a call that is run on the spot.
    pub(crate) fn begin_inline(&self, backend: &Arc<str>) -> CallWindow<'_> {
        self.write_tracker
            .windows
            .begin_inline(&self.workspace, backend, false)
    }

    /// The host will put a copy of a file there, under this name or a like one. It is no file of
    /// whoever finds it.
    pub(crate) fn expect_copy(&self, name: &str) -> IncomingCopy<'_> {
        self.write_tracker.copies.expect(name)
    }

    /// Sets the directory in which the host keeps its own files: they are nobody's artifacts.
    #[must_use]
    pub fn with_host_dir(mut self, hosts_own: &Path) -> Self {
        self.host_dir = hosts_own.canonicalize().ok();
        self
    }

    /// Makes these the files of a session, which works in the first of its directories. To be called
    /// behind [`Artifacts::with_host_dir`].
    #[must_use]
    pub(crate) fn with_session(mut self, writes: &Arc<WriteTracker>, session: &str) -> Self {
        let dir = Arc::clone(&self.workspace.dir);
        let own = self.host_dir.as_ref();
        let workspace = SessionWorkspace {
            session: session.to_owned(),
            is_shared: own.is_none_or(|own| !dir.starts_with(own)),
            dir,
        };
        self.write_tracker = Arc::clone(writes);
        self.workspace = Arc::new(workspace);
        self
    }

    /// Sets the exchange directory, one of the roots. It ends with the session, so a file in it is moved
    /// into the cache when it is registered.
    #[must_use]
    pub fn with_exchange_dir(mut self, exchange: &Path) -> Self {
        self.exchange_dir = exchange.canonicalize().ok();
        self
    }

    /// Whether a file is the host's own, which a session neither lists nor hands out.
    pub fn is_host_file(&self, file: &FileRef) -> bool {
        let path = file.path.as_ref().map(Path::new);
        let real = path.and_then(|path| path.canonicalize().ok());
        real.is_some_and(|real| self.is_host_path(&real))
    }

    /// Like [`Self::is_host_file`], for a path whose links are resolved.
    fn is_host_path(&self, real: &Path) -> bool {
        let Some(own) = &self.host_dir else {
            return false;
        };
        let nearest = self
            .roots
            .iter()
            .filter(|root| real.starts_with(root))
            .map(|r| r.as_os_str().len());
        let cached = self
            .cache
            .canonicalize()
            .is_ok_and(|cache| real.starts_with(cache));
        real.starts_with(own) && !cached && nearest.max().unwrap_or(0) < own.as_os_str().len()
    }

    /// Takes a file in that a backend made. The same path again keeps its handle, with the hash and
    /// size of what is there now. Reads the whole file, without keeping other tasks of a runtime
    /// with several threads waiting.
    ///
    /// # Errors
    /// [`FileError::Refused`] when it lies outside the session's directories, is no regular file,
    /// or can neither be found nor fetched.
    pub fn register(
        &self,
        backend: &str,
        file: &FileRef,
        fetch: Option<Fetch>,
    ) -> Result<Artifact, FileError> {
        self.register_with(backend, file, fetch, true, &|_, _| Ok(()))
    }

    /// Like [`Self::register`], for one of several files that are named at once.
    ///
    /// # Errors
    /// As for [`Self::register`], and where they have too many bytes together or nobody waits any more.
    pub(crate) fn register_within(
        &self,
        backend: &str,
        file: &FileRef,
        fetch: Option<Fetch>,
        budget: &HashBudget,
    ) -> Result<Artifact, FileError> {
        let check = |bytes, read| budget.reserve(bytes, read);
        self.register_with(backend, file, fetch, true, &check)
    }

    /// Ends the reading of files that only the session waits for.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// How much is read of files that no call named, until the session ends.
    pub(crate) fn budget(&self) -> HashBudget {
        HashBudget::new(self.ended.clone())
    }

    fn register_with(
        &self,
        backend: &str,
        file: &FileRef,
        fetch: Option<Fetch>,
        is_reported: bool,
        check: ReadCheck<'_>,
    ) -> Result<Artifact, FileError> {
        let refused = |reason: String| FileError::Refused {
            backend: backend.to_owned(),
            name: file.name.clone(),
            reason,
        };
        let name = safe_name(&file.name);
        let said = file.media_type.clone().filter(|said| is_media_type(said));
        let media_type = said.unwrap_or_else(|| media_type(&name));
        let mut artifact = Artifact {
            id: String::new(),
            name,
            media_type,
            size: file.size,
            sha256: file.sha256.clone(),
            source: backend.to_owned(),
            path: None,
            remote: None,
            holder: None,
        };
        let remote = match (&file.path, &file.id, fetch) {
            (Some(path), _, _) => {
                let path = self
                    .permanent_path(Path::new(path), &artifact.name)
                    .map_err(refused)?;
                let (sha256, size) = digest_checked(&path, check)
                    .map_err(|e| refused(format!("`{}` cannot be read: {e}", path.display())))?;
                artifact.sha256 = Some(sha256);
                artifact.size = Some(size);
                artifact.path = Some(path);
                None
            }
            (None, Some(id), Some(fetch)) => {
                artifact.remote = Some(id.clone());
                Some((id.clone(), fetch))
            }
            (None, Some(_), None) => {
                return Err(refused("the backend has no `files.get`".to_owned()));
            }
            (None, None, _) => return Err(refused("it has neither path nor id".to_owned())),
        };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for held in files.values() {
            let mut known = held.artifact.lock().unwrap_or_else(PoisonError::into_inner);
            let same_file = match (&artifact.path, &held.remote, &remote) {
                (Some(path), _, _) => known.path.as_ref() == Some(path),
                (None, Some((known_id, _)), Some((id, _))) => {
                    known_id == id
                        && known.source == artifact.source
                        && known.sha256 == artifact.sha256
                }
                _ => false,
            };
            if !same_file {
                continue;
            }
            // Who changed it last made it; who only saw it there did not. What is told counts for
            // more than what was found.
            let is_changed = known.sha256 != artifact.sha256;
            if is_changed {
                known.sha256 = artifact.sha256;
                known.size = artifact.size;
            }
            if is_changed || (is_reported && !held.is_reported.load(Ordering::Relaxed)) {
                known.source = artifact.source;
                held.is_reported.store(is_reported, Ordering::Relaxed);
            }
            return Ok(known.clone());
        }
        let highest = files.keys().filter_map(|id| number(id)).max().unwrap_or(0);
        artifact.id = format!("file-{}", highest + 1);
        let held = ArtifactSlot {
            artifact: Mutex::new(artifact.clone()),
            remote,
            is_reported: AtomicBool::new(is_reported),
            recorded_path: None,
            fetched: tokio::sync::Mutex::default(),
            finder: Mutex::default(),
        };
        files.insert(artifact.id.clone(), Arc::new(held));
        Ok(artifact)
    }

    /// Takes in what an earlier session on the thread knew. A place that is no longer one of the
    /// session's is left out. What was fetched before is where it came to; else it is fetched again
    /// where its backend can be asked for it (`fetch`, by the backend's name), or is known and not to
    /// be had. Of a handle that is there twice the later one counts. New files are numbered on from
    /// the highest handle.
    pub fn restore(&self, known: &[RecordedFile], fetch: impl Fn(&str) -> Option<Fetch>) {
        for file in known {
            let RecordedFile {
                reference, source, ..
            } = file;
            let path = file.recorded_path.as_deref();
            let path = path.and_then(|place| self.resolve_recorded(place));
            let path = path.or_else(|| file.cached_path(&self.cache));
            let read = path.as_deref().and_then(|path| digest_path(path).ok());
            let (sha256, size) = match read {
                Some((sha256, size)) => (Some(sha256), Some(size)),
                None => (None, reference.size),
            };
            let artifact = Artifact {
                id: reference.id.clone(),
                name: safe_name(&reference.name),
                media_type: reference.media_type.clone(),
                size,
                path: path.filter(|_| sha256.is_some()),
                sha256,
                source: source.clone(),
                remote: file.remote.clone(),
                holder: file.holder.clone(),
            };
            let held = ArtifactSlot {
                artifact: Mutex::new(artifact),
                remote: file.remote.clone().zip(fetch(file.fetch_backend())),
                is_reported: AtomicBool::new(true),
                recorded_path: file.recorded_path.clone(),
                fetched: tokio::sync::Mutex::default(),
                finder: Mutex::default(),
            };
            self.files
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(reference.id.clone(), Arc::new(held));
        }
    }

    /// A place as the log has it: absolute, or below one of the roots. It is as it was written, so that
    /// no link that came since is followed.
    fn resolve_recorded(&self, place: &Path) -> Option<PathBuf> {
        let mut paths = self.roots.iter().map(|root| root.join(place));
        paths.find(|path| self.is_allowed(path) && open_no_follow(path).is_ok())
    }

    /// Keeps text that is too long for a model as a file of the session.
    ///
    /// # Errors
    /// [`FileError::Refused`] when the disk says no.
    pub fn spill(&self, backend: &str, name: &str, text: &str) -> Result<Artifact, FileError> {
        self.keep_bytes(backend, name, "text/plain", text.as_bytes())
    }

    /// Keeps bytes that came without a file as a file of the session.
    ///
    /// # Errors
    /// [`FileError::Refused`] when the disk says no.
    pub fn keep_bytes(
        &self,
        backend: &str,
        name: &str,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<Artifact, FileError> {
        self.keep(backend, name, media_type, |to| {
            conjure_config::fs::write(to, bytes)
        })
    }

    /// Registers what `put` puts into the cache.
    fn keep(
        &self,
        backend: &str,
        name: &str,
        media_type: &str,
        put: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<Artifact, FileError> {
        let written = conjure_config::fs::create_dir_all(&self.cache).and_then(|()| {
            let path = self
                .cache
                .join(format!("{}-{}", uuid::Uuid::now_v7(), safe_name(name)));
            put(&path).map(|()| path)
        });
        let path = written.map_err(|error| FileError::Refused {
            backend: backend.to_owned(),
            name: name.to_owned(),
            reason: format!("it cannot be kept: {error}"),
        })?;
        let mut file = FileRef::at(path.display().to_string());
        file.name = name.to_owned();
        file.media_type = Some(media_type.to_owned());
        self.register(backend, &file, None)
    }

    /// Takes a file over that the host has: from here on it is in the cache, a file of the session.
    ///
    /// # Errors
    /// [`FileError::Refused`] when the disk says no.
    pub(crate) fn take_over(
        &self,
        source: &str,
        from: &Path,
        name: &str,
        media_type: &str,
    ) -> Result<Artifact, FileError> {
        self.keep(source, name, media_type, |to| {
            conjure_config::fs::move_file(from, to)
        })
    }

    /// All files, in the order in which they were made.
    pub fn list(&self) -> Vec<Artifact> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Artifact> = files
            .values()
            .map(|held| {
                held.artifact
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
            })
            .collect();
        all.sort_by_key(|artifact| number(&artifact.id).unwrap_or(0));
        all
    }

    /// Whether there is no file yet.
    pub fn is_empty(&self) -> bool {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.is_empty()
    }

    /// The handle of a file that a word stands for: its handle, or what its backend calls it.
    pub fn handle_of(&self, word: &str) -> Option<String> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((handle, _)) = files.get_key_value(word) {
            return Some(handle.clone());
        }
        let called =
            |held: &Arc<ArtifactSlot>| held.remote.as_ref().is_some_and(|(id, _)| id == word);
        let (handle, _) = files.iter().find(|(_, held)| called(held))?;
        Some(handle.clone())
    }

    /// What a file is called.
    pub fn name_of(&self, handle: &str) -> Option<String> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let held = files.get(handle)?;
        let known = held.artifact.lock().unwrap_or_else(PoisonError::into_inner);
        Some(known.name.clone())
    }

    fn find(&self, file: &str) -> Result<Arc<ArtifactSlot>, FileError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = files.get(file) {
            return Ok(Arc::clone(held));
        }
        let newest = files
            .values()
            .filter_map(|held| {
                let known = held.artifact.lock().unwrap_or_else(PoisonError::into_inner);
                (known.name == file).then(|| (number(&known.id), held))
            })
            .max_by_key(|(number, _)| *number);
        match newest {
            Some((_, held)) => Ok(Arc::clone(held)),
            None => Err(FileError::FileNotFound {
                file: file.to_owned(),
            }),
        }
    }

    /// The path at which a file stays: its own with its links resolved, or one in the cache if it
    /// came in the exchange directory.
    fn permanent_path(&self, path: &Path, name: &str) -> Result<PathBuf, String> {
        let Some(exchange) = &self.exchange_dir else {
            return self.resolve_in_roots(path);
        };
        let mut moved = self
            .relocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let real = match self.resolve_in_roots(path) {
            Ok(real) => real,
            // It may have been told of before, and moved.
            Err(reason) => {
                return real_parent(path)
                    .and_then(|path| moved.get(&path).cloned())
                    .ok_or(reason);
            }
        };
        if !real.starts_with(exchange) {
            return Ok(real);
        }
        let failed = |error: std::io::Error| format!("it cannot be kept: {error}");
        conjure_config::fs::create_private_dir(&self.cache).map_err(failed)?;
        let to = match moved.get(&real) {
            Some(to) => to.clone(),
            None => self
                .cache
                .canonicalize()
                .map_err(failed)?
                .join(format!("{}-{name}", uuid::Uuid::now_v7())),
        };
        move_no_follow(&real, &to).map_err(failed)?;
        moved.insert(real, to.clone());
        Ok(to)
    }

    /// The path with its links resolved, if it is a regular file in one of the roots.
    fn resolve_in_roots(&self, path: &Path) -> Result<PathBuf, String> {
        let real = path
            .canonicalize()
            .map_err(|e| format!("`{}`: {e}", path.display()))?;
        if !self.is_allowed(&real) {
            return Err(format!(
                "`{}` is outside the session's directories",
                path.display()
            ));
        }
        if !real.is_file() {
            return Err(format!("`{}` is not a regular file", path.display()));
        }
        Ok(real)
    }

    /// Whether a path without links is in one of the session's directories, and not the host's own.
    fn is_allowed(&self, real: &Path) -> bool {
        let cache = self.cache.canonicalize().ok();
        let mut allowed = self.roots.iter().chain(cache.as_ref());
        allowed.any(|root| real.starts_with(root)) && !self.is_host_path(real)
    }
}

/// A path of which only the last component may be missing, the links before it resolved.
fn real_parent(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// What a handle counts; a log that somebody else wrote may hold others. Bounded, so that there is
/// always a next one.
fn number(id: &str) -> Option<u32> {
    id.strip_prefix("file-")?
        .parse()
        .ok()
        .filter(|number| *number < u32::MAX)
}

#[cfg(test)]
mod tests;
