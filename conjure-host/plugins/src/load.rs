//! Opens libraries: the one place where code of a file becomes code of this process.
//!
//! A library is opened once for each content, from the store's copy, on a thread with a deadline,
//! and never closed: its code may be on any stack. Libraries are counted, because each takes a
//! thread-local key of the system and the process ends when there is none left.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_abi::{HeaderFields, RootRef};
use conjure_skill_sdk::protocol::Manifest;
use tokio::sync::OnceCell;

use super::file::{LibraryCandidate, pin};
use super::health::PluginLimits;
use super::library_records::{self, RecordedLibrary};
use super::loaded::{Factory, LoadedPlugin, PluginSource};
use super::open::{self, OpenLibrary, open_with_deadline};
use super::packaged::{PackagedOrigin, PackagedPlugins};
use super::worker::{PluginWorkers, WorkerFile, WorkerOptions};
use super::{CopyStore, Pin, PluginError, PluginFile, Sha256, hang_records};

/// Different libraries that one process opens at the most. The system has 1,024 thread-local
/// keys, a library takes at least one, and taking the last one ends the process.
pub const LIBRARY_LIMIT: usize = 800;

/// How a host loads plugins.
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// How long opening a library and asking it for its manifest may take; 10 s.
    pub deadline: Duration,
    /// For how long a file must have been left alone before it is listed from what is recorded of
    /// it; 3 s, since some file systems count time in steps of two.
    pub settled: Duration,
    /// Different libraries that the process opens at the most; [`LIBRARY_LIMIT`].
    pub library_limit: usize,
    /// Host operations that the host serves, such as `kv.get/1`. `call.cancelled/1` and
    /// `call.writable/1` are always served.
    pub operations: Vec<String>,
    /// What each plugin may use.
    pub limits: PluginLimits,
    /// The packages of the data directory, whose lock is kept to.
    pub packaged: Option<PackagedPlugins>,
    /// How plugins run in processes of their own; without it none does.
    pub worker: Option<WorkerOptions>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            settled: Duration::from_secs(3),
            library_limit: LIBRARY_LIMIT,
            operations: Vec::new(),
            limits: PluginLimits::default(),
            packaged: None,
            worker: None,
        }
    }
}

/// Opens plugins.
#[derive(Debug, Clone)]
pub struct Loader {
    store: CopyStore,
    options: LoaderOptions,
}

impl Loader {
    /// A loader whose copies are in a store. What changes of installed plugins left half is ended.
    pub fn new(store: CopyStore, options: LoaderOptions) -> Self {
        if let Some(packaged) = &options.packaged {
            packaged.recover_interrupted();
        }
        Self { store, options }
    }

    /// The store.
    pub fn store(&self) -> &CopyStore {
        &self.store
    }

    /// How plugins are loaded.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Different libraries that this process has opened.
    pub fn opened() -> usize {
        OPENED.load(Ordering::Acquire)
    }

    /// Threads of this process that were lost to libraries which hung while they were loaded.
    pub fn lost_threads() -> usize {
        open::LOST_THREADS.load(Ordering::Acquire)
    }

    /// Judges a file and loads the plugin in it. Blocks for as long as that takes, at most the
    /// deadline. `named` says that a person named this very file.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn load(&self, path: &Path, named: bool) -> Result<LoadedPlugin, PluginError> {
        match self.load_once(path, named) {
            // It may have been replaced, and its lock with it, while it was read.
            Err(PluginError::Locked { .. }) => self.load_once(path, named),
            loaded => loaded,
        }
    }

    fn load_once(&self, path: &Path, named: bool) -> Result<LoadedPlugin, PluginError> {
        let candidate = LibraryCandidate::open(path)?;
        match library_records::look_up(&self.store, &candidate) {
            Some(library) => self.load_recorded(library, &candidate, named),
            None => self.load_file(candidate.read(named)?),
        }
    }

    /// As [`Loader::load`], of what runs in a worker; nothing of what would be opened in this process,
    /// which is to be loaded in its turn.
    pub(super) fn load_in_worker(
        &self,
        path: &Path,
        named: bool,
    ) -> Result<Option<LoadedPlugin>, PluginError> {
        let candidate = LibraryCandidate::open(path)?;
        if let Some(library) = library_records::look_up(&self.store, &candidate) {
            // Nothing of it runs yet.
            return self.load_recorded(library, &candidate, named).map(Some);
        }
        if self.is_for_this_process(path) {
            // It is read and judged once, in its turn.
            return Ok(None);
        }
        let file = candidate.read(named)?;
        refuse_unpinned(&file.path, &file.pin)?;
        let (header, is_program) = (&file.header, file.program.is_some());
        let origin = self.origin(path, &file.sha256, header)?;
        let place =
            self.choose_placement(path, &file.sha256, header, is_program, origin.as_ref())?;
        let in_worker = place.worker.is_some();
        in_worker.then(|| self.load_file(file)).transpose()
    }

    /// Has what is at a path tried again, also where it hung when it was loaded last.
    pub fn forget_hang(&self, path: &Path) {
        hang_records::forget(&self.store, path);
    }

    /// Lists a library that was judged and opened before; it is opened when it is needed.
    fn load_recorded(
        &self,
        library: RecordedLibrary,
        candidate: &LibraryCandidate,
        named: bool,
    ) -> Result<LoadedPlugin, PluginError> {
        let pin = pin(&library.path, named);
        refuse_unpinned(&library.path, &pin)?;
        let program = library.program.clone();
        let origin = self.origin(&library.path, &library.sha256, &library.header)?;
        let place = self.choose_placement(
            &library.path,
            &library.sha256,
            &library.header,
            program.is_some(),
            origin.as_ref(),
        )?;
        check_manifest(
            &library.path,
            &library.header,
            origin.as_ref(),
            &library.manifest,
        )?;
        let manifest = self.accept(
            &library.path,
            &library.header,
            program.is_some(),
            &library.manifest,
        )?;
        let source = PluginSource::File {
            path: library.path.clone(),
            sha256: library.sha256,
            header: Box::new(library.header.clone()),
            program: program.clone().map(Box::new),
            pin,
            isolation_reason: place.reason,
            is_packaged: origin.is_some(),
            stamp: candidate.stamp(),
        };
        let factory = match place.worker {
            Some(worker) => {
                let file = WorkerFile {
                    path: library.path,
                    sha256: library.sha256,
                    header: library.header,
                    program,
                };
                Factory::Worker(PluginWorkers::new(self.clone(), worker.clone(), file))
            }
            None => Factory::Deferred(Arc::new(DeferredLibrary::new(self.clone(), library))),
        };
        let limits = self.options.limits.clone();
        Ok(LoadedPlugin::new(manifest, source, factory, limits))
    }

    /// Loads the plugin in a file that was judged.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn load_file(&self, file: PluginFile) -> Result<LoadedPlugin, PluginError> {
        refuse_unpinned(&file.path, &file.pin)?;
        let is_program = file.program.is_some();
        let origin = self.origin(&file.path, &file.sha256, &file.header)?;
        let place = self.choose_placement(
            &file.path,
            &file.sha256,
            &file.header,
            is_program,
            origin.as_ref(),
        )?;
        hang_records::refuse(&self.store, &file)?;
        let loaded = match place.worker {
            Some(worker) => self.in_worker(worker, &file),
            None => {
                let library = self.library(&file);
                library.map(|it| (it.manifest, Factory::Library(it.root)))
            }
        };
        if let Err(PluginError::Hung { .. } | PluginError::HungInWorker { .. }) = &loaded {
            hang_records::remember(&self.store, &file, self.options.deadline);
        }
        let (json, factory) = loaded?;
        check_manifest(&file.path, &file.header, origin.as_ref(), &json)?;
        let manifest = self.accept(&file.path, &file.header, is_program, &json)?;
        if let Err(error) = self.store.put_manifest(&file.sha256, &json) {
            tracing::debug!(
                "the manifest of {} is not kept: {error}",
                file.path.display()
            );
        }
        library_records::remember(&self.store, &file, self.options.settled);
        let source = PluginSource::File {
            path: file.path,
            sha256: file.sha256,
            header: Box::new(file.header),
            program: file.program.map(Box::new),
            pin: file.pin,
            isolation_reason: place.reason,
            is_packaged: origin.is_some(),
            stamp: file.stamp,
        };
        Ok(LoadedPlugin::new(
            manifest,
            source,
            factory,
            self.options.limits.clone(),
        ))
    }

    /// Where plugins are installed, in a host with a data directory.
    pub(crate) fn installed_dir(&self) -> Option<&Path> {
        self.options.packaged.as_ref().map(PackagedPlugins::plugins)
    }

    /// Where a library came from, if it came in a package. What the lock does not know is refused.
    fn origin(
        &self,
        path: &Path,
        sha256: &Sha256,
        header: &HeaderFields,
    ) -> Result<Option<PackagedOrigin>, PluginError> {
        match &self.options.packaged {
            Some(packaged) => packaged.judge(path, &header.name, sha256),
            None => Ok(None),
        }
    }

    /// Asks a plugin in a worker for its manifest.
    fn in_worker(
        &self,
        worker: &WorkerOptions,
        file: &PluginFile,
    ) -> Result<(Arc<[u8]>, Factory), PluginError> {
        self.store_copy(file)?;
        let library = WorkerFile {
            path: file.path.clone(),
            sha256: file.sha256,
            header: file.header.clone(),
            program: file.program.clone(),
        };
        let worker = PluginWorkers::new(self.clone(), worker.clone(), library);
        let manifest = worker.manifest(self.options.deadline)?;
        Ok((manifest.into(), Factory::Worker(worker)))
    }

    /// The store's copy of a library that was judged, also when its file holds another one by now.
    ///
    /// # Errors
    /// [`PluginError::Changed`] when the copy is gone too.
    pub(super) fn copy_of(&self, path: &Path, sha256: &Sha256) -> Result<PathBuf, PluginError> {
        let copy = match library_records::is_current(&self.store, path, sha256) {
            true => Some(self.store.copy_path(sha256)),
            false => self.store.verified_copy(sha256),
        };
        if let Some(copy) = copy {
            library_records::touch(&self.store, path, sha256);
            return Ok(copy);
        }
        // What is at the path is judged anew, and is what was loaded, or nothing is opened.
        let file = PluginFile::read(path, true)?;
        if file.sha256 != *sha256 {
            return Err(PluginError::Changed {
                path: path.to_owned(),
            });
        }
        let copy = self.store_copy(&file)?;
        library_records::remember(&self.store, &file, self.options.settled);
        Ok(copy)
    }

    /// The manifest that was kept when the library with this hash was last loaded. Runs no code
    /// of the plugin.
    pub fn stored_manifest(&self, sha256: &Sha256) -> Option<Manifest> {
        serde_json::from_slice(&self.store.manifest(sha256)?).ok()
    }

    /// The library with the file's contents: the one that is open already, or a new one.
    fn library(&self, file: &PluginFile) -> Result<OpenLibrary, PluginError> {
        self.open_once(&file.path, &file.header, &file.sha256, || {
            self.store_copy(file)
        })
    }

    /// Puts the bytes of a file into the store.
    fn store_copy(&self, file: &PluginFile) -> Result<PathBuf, PluginError> {
        let copy = self.store.put(&file.sha256, &file.bytes);
        copy.map_err(|source| PluginError::Store {
            path: file.path.clone(),
            store: self.store.dir().to_owned(),
            source: Arc::new(source),
        })
    }

    /// Opens a library that was only listed so far.
    fn open_recorded(&self, known: &RecordedLibrary) -> Result<OpenLibrary, PluginError> {
        let copy = || self.copy_of(&known.path, &known.sha256);
        let opened = self.open_once(&known.path, &known.header, &known.sha256, copy);
        match &opened {
            Ok(opened) if *opened.manifest == *known.manifest => {}
            // What is wrong with it is found when it is judged anew.
            Ok(_) => {
                library_records::forget(&self.store, &known.path);
                tracing::warn!(
                    target: "plugin",
                    "{}: its manifest is another one than when it was last loaded; until it is \
                     loaded again it has the tools of that time",
                    known.path.display()
                );
            }
            Err(_) => library_records::forget(&self.store, &known.path),
        }
        opened
    }

    /// The library with these contents that is open already, or the one in the copy.
    fn open_once(
        &self,
        path: &Path,
        header: &HeaderFields,
        sha256: &Sha256,
        copy: impl FnOnce() -> Result<PathBuf, PluginError>,
    ) -> Result<OpenLibrary, PluginError> {
        let slot = {
            let mut slots = lock(&LIBRARIES);
            Arc::clone(slots.entry(*sha256).or_default())
        };
        // Only loads of the same contents wait for each other.
        let mut slot = lock(&slot);
        if let Some(outcome) = &*slot {
            return outcome.clone();
        }
        // The system opens one at a time: who waits for another one is not the one that hangs.
        let _opening = lock(&OPENING);
        if let Some(culprit) = open::hung_library() {
            return Err(PluginError::Blocked {
                path: path.to_owned(),
                culprit,
            });
        }
        let copy = copy()?;
        self.count_opened(path)?;
        let outcome = open_with_deadline(path, header, copy, self.options.deadline);
        match &outcome {
            // The system opened nothing, so it may do so later.
            Err(PluginError::Open { .. } | PluginError::Host { .. }) => {
                OPENED.fetch_sub(1, Ordering::AcqRel);
            }
            // Whatever came of it, another attempt with the same bytes would do the same.
            _ => *slot = Some(outcome.clone()),
        }
        outcome
    }

    fn count_opened(&self, path: &Path) -> Result<(), PluginError> {
        let limit = self.options.library_limit;
        let counted = OPENED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |opened| {
            (opened < limit).then_some(opened + 1)
        });
        match counted {
            Ok(_) => Ok(()),
            Err(opened) => Err(PluginError::TooMany {
                path: path.to_owned(),
                opened,
            }),
        }
    }

    /// Reads the manifest and compares it with the header and with what this host serves.
    fn accept(
        &self,
        path: &Path,
        header: &HeaderFields,
        is_program: bool,
        json: &[u8],
    ) -> Result<Manifest, PluginError> {
        let (place, remedy) = match is_program {
            true => ("its description", "Mend the program, or its description"),
            false => (
                "the file's header",
                "Build it again with the current `conjure-skill-sdk`",
            ),
        };
        let unusable = |reason: String| PluginError::Manifest {
            path: path.to_owned(),
            name: header.name.clone(),
            reason,
            remedy,
        };
        let value: serde_json::Value = serde_json::from_slice(json)
            .map_err(|error| unusable(format!("it is not JSON ({error})")))?;
        if let Some(reason) = value.get("error") {
            return Err(PluginError::Builder {
                path: path.to_owned(),
                name: header.name.clone(),
                reason: reason
                    .as_str()
                    .map_or_else(|| reason.to_string(), str::to_owned),
            });
        }
        let manifest: Manifest = serde_path_to_error::deserialize(value).map_err(|error| {
            let place = match error.path().iter().len() {
                0 => String::new(),
                _ => format!("`{}`: ", error.path()),
            };
            let what = error.into_inner();
            unusable(format!("it does not have the form of one ({place}{what})"))
        })?;
        if manifest.manifest != 1 {
            return Err(unusable(format!(
                "its form is number {}, and this host reads number 1",
                manifest.manifest
            )));
        }
        for (field, said, in_header) in [
            ("name", manifest.name.as_str(), header.name.as_str()),
            ("version", &manifest.version, &header.version),
            ("kind", &manifest.kind, header.kind.as_str()),
        ] {
            if said != in_header {
                return Err(unusable(format!(
                    "its {field} is `{said}`, and {place} says `{in_header}`"
                )));
            }
        }
        self.check_operations(path, &manifest)?;
        Ok(manifest)
    }

    /// Whether this host serves every operation that the plugin cannot do without.
    pub(super) fn check_operations(
        &self,
        path: &Path,
        manifest: &Manifest,
    ) -> Result<(), PluginError> {
        let served = |operation: &String| {
            operation == "call.cancelled/1"
                || operation == "call.writable/1"
                || self.options.operations.contains(operation)
        };
        match manifest.requires.host.iter().find(|op| !served(op)) {
            None => Ok(()),
            Some(operation) => Err(PluginError::Requires {
                path: path.to_owned(),
                name: manifest.name.clone(),
                version: manifest.version.clone(),
                operation: operation.clone(),
            }),
        }
    }
}

/// Refuses a library that says something else of itself than what was allowed when it was installed.
fn check_manifest(
    path: &Path,
    header: &HeaderFields,
    origin: Option<&PackagedOrigin>,
    json: &[u8],
) -> Result<(), PluginError> {
    let allowed = origin.and_then(|origin| origin.manifest);
    if allowed.is_none_or(|allowed| allowed == Sha256::of(json)) {
        return Ok(());
    }
    Err(PluginError::OtherManifest {
        path: path.to_owned(),
        name: header.name.clone(),
    })
}

fn refuse_unpinned(path: &Path, pin: &Pin) -> Result<(), PluginError> {
    match pin {
        Pin::Unpinned { reason } => Err(PluginError::NotPinned {
            path: path.to_owned(),
            reason: reason.clone(),
        }),
        _ => Ok(()),
    }
}

/// A library that is known and not open yet.
pub(super) struct DeferredLibrary {
    loader: Loader,
    library: RecordedLibrary,
    opened: OnceCell<RootRef>,
}

impl DeferredLibrary {
    fn new(loader: Loader, known: RecordedLibrary) -> Self {
        Self {
            loader,
            library: known,
            opened: OnceCell::new(),
        }
    }

    /// Opens it, the first time.
    ///
    /// # Errors
    /// As [`Loader::load_file`]. It is tried again the next time, where that can change anything.
    pub(super) async fn root(self: &Arc<Self>) -> Result<RootRef, PluginError> {
        let open = || async {
            let library = Arc::clone(self);
            let opened = tokio::task::spawn_blocking(move || {
                let opened = library.loader.open_recorded(&library.library)?;
                Ok(opened.root)
            });
            opened.await.unwrap_or_else(|error| {
                Err(PluginError::Host {
                    path: self.library.path.clone(),
                    reason: error.to_string(),
                })
            })
        };
        self.opened.get_or_try_init(open).await.copied()
    }
}

type SharedLoad = Arc<Mutex<Option<Result<OpenLibrary, PluginError>>>>;

/// What came of each content that this process has opened.
static LIBRARIES: LazyLock<Mutex<HashMap<Sha256, SharedLoad>>> = LazyLock::new(Mutex::default);

static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Held while this process opens a library.
static OPENING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
