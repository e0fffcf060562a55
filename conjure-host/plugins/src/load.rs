//! Opens libraries: the one place where code of a file becomes code of this process.
//!
//! A library is opened once for each content, from the store's copy, on a thread with a deadline,
//! and never closed: its code may be on any stack. Libraries are counted, because each takes a
//! thread-local key of the system and the process ends when there is none left.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use conjure_abi::abi_stable::library::AbiHeaderRef;
use conjure_abi::{HeaderFields, ROOT_SYMBOL, RootRef};
use conjure_skill_sdk::protocol::Manifest;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tokio::sync::OnceCell;

use super::file::{LibraryCandidate, pin};
use super::health::PluginLimits;
use super::known::{self, KnownLibrary};
use super::loaded::{Factory, LoadedPlugin, PluginSource};
use super::{CopyStore, Pin, PluginError, PluginFile, Sha256, layout};

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
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            settled: Duration::from_secs(3),
            library_limit: LIBRARY_LIMIT,
            operations: Vec::new(),
            limits: PluginLimits::default(),
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
    /// A loader whose copies are in a store.
    pub fn new(store: CopyStore, options: LoaderOptions) -> Self {
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
        LOST.load(Ordering::Acquire)
    }

    /// Judges a file and loads the plugin in it. Blocks for as long as that takes, at most the
    /// deadline. `named` says that a person named this very file.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn load(&self, path: &Path, named: bool) -> Result<LoadedPlugin, PluginError> {
        let candidate = LibraryCandidate::open(path)?;
        match known::look_up(&self.store, &candidate) {
            Some(library) => self.load_known(library, &candidate, named),
            None => self.load_file(candidate.read(named)?),
        }
    }

    /// Lists a library that was judged and opened before; it is opened when it is needed.
    fn load_known(
        &self,
        library: KnownLibrary,
        candidate: &LibraryCandidate,
        named: bool,
    ) -> Result<LoadedPlugin, PluginError> {
        let pin = pin(&library.path, named);
        refuse_unpinned(&library.path, &pin)?;
        let manifest = self.accept(&library.path, &library.header, &library.manifest)?;
        let source = PluginSource::File {
            path: library.path.clone(),
            sha256: library.sha256,
            header: Box::new(library.header.clone()),
            pin,
            stamp: candidate.stamp(),
        };
        let factory = Factory::Deferred(Arc::new(DeferredLibrary::new(self.clone(), library)));
        let limits = self.options.limits.clone();
        Ok(LoadedPlugin::new(manifest, source, factory, limits))
    }

    /// Loads the plugin in a file that was judged.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn load_file(&self, file: PluginFile) -> Result<LoadedPlugin, PluginError> {
        refuse_unpinned(&file.path, &file.pin)?;
        let library = self.library(&file)?;
        let manifest = self.accept(&file.path, &file.header, &library.manifest)?;
        if let Err(error) = self.store.put_manifest(&file.sha256, &library.manifest) {
            tracing::debug!(
                "the manifest of {} is not kept: {error}",
                file.path.display()
            );
        }
        known::remember(&self.store, &file, self.options.settled);
        let source = PluginSource::File {
            path: file.path,
            sha256: file.sha256,
            header: Box::new(file.header),
            pin: file.pin,
            stamp: file.stamp,
        };
        let factory = Factory::Library(library.root);
        Ok(LoadedPlugin::new(
            manifest,
            source,
            factory,
            self.options.limits.clone(),
        ))
    }

    /// The manifest that was kept when the library with this hash was last loaded. Runs no code
    /// of the plugin.
    pub fn kept_manifest(&self, sha256: &Sha256) -> Option<Manifest> {
        serde_json::from_slice(&self.store.manifest(sha256)?).ok()
    }

    /// The library with the file's contents: the one that is open already, or a new one.
    fn library(&self, file: &PluginFile) -> Result<OpenLibrary, PluginError> {
        self.open_once(&file.path, &file.header, &file.sha256, || self.put(file))
    }

    /// Puts the bytes of a file into the store.
    fn put(&self, file: &PluginFile) -> Result<PathBuf, PluginError> {
        let copy = self.store.put(&file.sha256, &file.bytes);
        copy.map_err(|source| PluginError::Store {
            path: file.path.clone(),
            store: self.store.dir().to_owned(),
            source: Arc::new(source),
        })
    }

    /// Opens a library that was only listed so far.
    fn open_known(&self, known: &KnownLibrary) -> Result<OpenLibrary, PluginError> {
        let opened = self.open_once(&known.path, &known.header, &known.sha256, || {
            if known::holds(&self.store, known) {
                return Ok(self.store.copy_path(&known.sha256));
            }
            // The copy is gone or another one. What is at the path is judged anew, and is what was
            // listed, or nothing is opened.
            let file = PluginFile::read(&known.path, true)?;
            if file.sha256 != known.sha256 {
                return Err(PluginError::Changed {
                    path: known.path.clone(),
                });
            }
            let copy = self.put(&file)?;
            known::remember(&self.store, &file, self.options.settled);
            Ok(copy)
        });
        match &opened {
            Ok(opened) if *opened.manifest == *known.manifest => {}
            // What is wrong with it is found when it is judged anew.
            Ok(_) => {
                known::forget(&self.store, &known.path);
                tracing::warn!(
                    target: "plugin",
                    "{}: its manifest is another one than when it was last loaded; until it is \
                     loaded again it has the tools of that time",
                    known.path.display()
                );
            }
            Err(_) => known::forget(&self.store, &known.path),
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
        if let Some(culprit) = lock(&STUCK).first() {
            return Err(PluginError::Blocked {
                path: path.to_owned(),
                culprit: culprit.clone(),
            });
        }
        let copy = copy()?;
        self.count(path)?;
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

    fn count(&self, path: &Path) -> Result<(), PluginError> {
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
        json: &[u8],
    ) -> Result<Manifest, PluginError> {
        let unusable = |reason: String| PluginError::Manifest {
            path: path.to_owned(),
            name: header.name.clone(),
            reason,
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
        let manifest: Manifest = serde_json::from_value(value)
            .map_err(|error| unusable(format!("it does not have the form of one ({error})")))?;
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
                    "its {field} is `{said}`, and the file's header says `{in_header}`"
                )));
            }
        }
        self.serves(path, &manifest)?;
        Ok(manifest)
    }

    /// Whether this host serves every operation that the plugin cannot do without.
    pub(super) fn serves(&self, path: &Path, manifest: &Manifest) -> Result<(), PluginError> {
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

fn refuse_unpinned(path: &Path, pin: &Pin) -> Result<(), PluginError> {
    match pin {
        Pin::No { reason } => Err(PluginError::NotPinned {
            path: path.to_owned(),
            reason: reason.clone(),
        }),
        _ => Ok(()),
    }
}

/// A library that is known and not open yet.
pub(super) struct DeferredLibrary {
    loader: Loader,
    known: KnownLibrary,
    opened: OnceCell<RootRef>,
}

impl DeferredLibrary {
    fn new(loader: Loader, known: KnownLibrary) -> Self {
        Self {
            loader,
            known,
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
                let opened = library.loader.open_known(&library.known)?;
                Ok(opened.root)
            });
            opened.await.unwrap_or_else(|error| {
                Err(PluginError::Host {
                    path: self.known.path.clone(),
                    reason: error.to_string(),
                })
            })
        };
        self.opened.get_or_try_init(open).await.copied()
    }
}

/// A library that is open for good.
#[derive(Clone)]
struct OpenLibrary {
    root: RootRef,
    manifest: Arc<[u8]>,
}

type SharedLoad = Arc<Mutex<Option<Result<OpenLibrary, PluginError>>>>;

/// What came of each content that this process has opened.
static LIBRARIES: LazyLock<Mutex<HashMap<Sha256, SharedLoad>>> = LazyLock::new(Mutex::default);

static OPENED: AtomicUsize = AtomicUsize::new(0);

static LOST: AtomicUsize = AtomicUsize::new(0);

/// Libraries that hang while the system opens them. It opens one at a time.
static STUCK: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Ends the process with an exit code.
///
/// Use it instead of [`std::process::exit`] in a program that loads plugins: at the ordinary end
/// the system waits for a library that hangs while it is opened, for ever. Then this ends the
/// process without running what is registered for its end.
pub fn end_process(code: i32) -> ! {
    use std::io::Write as _;
    if lock(&STUCK).is_empty() {
        std::process::exit(code);
    }
    let _ = std::io::stdout().flush();
    _exit(code)
}

#[expect(
    unsafe_code,
    reason = "the standard library has no such end of a process"
)]
// SAFETY: this is the signature that POSIX gives the function, and any argument is fine.
unsafe extern "C" {
    safe fn _exit(code: std::ffi::c_int) -> !;
}

const STAGES: [&str; 4] = [
    "opening it (a constructor in it)",
    "the comparison of its types",
    "its root function",
    "its manifest function",
];

fn open_with_deadline(
    file: &Path,
    header: &HeaderFields,
    copy: PathBuf,
    deadline: Duration,
) -> Result<OpenLibrary, PluginError> {
    let handover = Arc::new(Handover::default());
    let stage = Arc::new(AtomicU8::new(0));
    let (path, header) = (file.to_owned(), header.clone());
    thread::Builder::new()
        .name("plugin-load".to_owned())
        .spawn({
            let (stage, handover) = (Arc::clone(&stage), Arc::clone(&handover));
            move || {
                let opened = catch_unwind(AssertUnwindSafe(|| open(&path, &header, &copy, &stage)));
                came_back(&path, &stage, 4);
                let outcome = opened.unwrap_or_else(|_| {
                    Err(PluginError::Host {
                        path,
                        reason: "the host broke while it opened it; this is a bug of it".to_owned(),
                    })
                });
                if !handover.give(outcome) {
                    LOST.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })
        .map_err(|error| PluginError::Host {
            path: file.to_owned(),
            reason: format!("it has no thread ({error})"),
        })?;
    handover.take(deadline).unwrap_or_else(|| {
        let mut stuck = lock(&STUCK);
        let stage = stage.load(Ordering::Acquire);
        if stage == 0 {
            stuck.push(file.to_owned());
        }
        drop(stuck);
        Err(PluginError::Hung {
            path: file.to_owned(),
            stage: STAGES.get(usize::from(stage)).copied().unwrap_or("it"),
            limit: deadline,
        })
    })
}

/// The way of a result from the thread that opens a library to the one that waits.
///
/// No channel: while a constructor hangs, the system's lock is held under which a thread registers
/// what its thread-locals need at its end, and the first use of a channel does that.
#[derive(Default)]
struct Handover {
    state: Mutex<Handed>,
    came: Condvar,
}

#[derive(Default)]
enum Handed {
    #[default]
    Nothing,
    Outcome(Result<OpenLibrary, PluginError>),
    GivenUp,
}

impl Handover {
    /// Says whether somebody still waits for it.
    fn give(&self, outcome: Result<OpenLibrary, PluginError>) -> bool {
        let mut state = lock(&self.state);
        if matches!(*state, Handed::GivenUp) {
            return false;
        }
        *state = Handed::Outcome(outcome);
        self.came.notify_one();
        true
    }

    /// Waits for it; nothing when the time is up, and then the thread counts as lost.
    fn take(&self, limit: Duration) -> Option<Result<OpenLibrary, PluginError>> {
        let nothing = |state: &mut Handed| matches!(state, Handed::Nothing);
        let (mut state, _) = self
            .came
            .wait_timeout_while(lock(&self.state), limit, nothing)
            .unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, Handed::GivenUp) {
            Handed::Outcome(outcome) => Some(outcome),
            Handed::Nothing | Handed::GivenUp => {
                LOST.fetch_add(1, Ordering::AcqRel);
                None
            }
        }
    }
}

/// The system has opened the library, or refused to.
fn came_back(path: &Path, stage: &AtomicU8, next: u8) {
    let mut stuck = lock(&STUCK);
    stage.store(next, Ordering::Release);
    stuck.retain(|other| other != path);
}

fn open(
    path: &Path,
    header: &HeaderFields,
    copy: &Path,
    stage: &AtomicU8,
) -> Result<OpenLibrary, PluginError> {
    #[expect(unsafe_code, reason = "opening a library runs its constructors")]
    // SAFETY: the bytes of the copy were judged (owner, structure, machine, header), and only
    // this user can change the copy. That a constructor of a pinned plugin is sound is what
    // pinning says.
    let library = unsafe { Library::open(Some(copy), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        PluginError::Open {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    })?;
    came_back(path, stage, 1);
    let no_symbol = || PluginError::Symbol {
        path: path.to_owned(),
        symbol: "conjure_root_v1",
    };
    #[expect(
        unsafe_code,
        reason = "the symbol's type is the contract of the ABI's major version"
    )]
    // SAFETY: a library whose header has this major version exports an `AbiHeader` (which begins
    // with a magic string that `upgrade` checks) under this symbol. The library is never closed,
    // so the reference is good for the rest of the process.
    let root_header = unsafe { library.get::<AbiHeaderRef>(ROOT_SYMBOL) }
        .map(|symbol| *symbol)
        .map_err(|_| no_symbol());
    // Leaked on purpose, on failure too: a constructor may have left a thread behind.
    let _ = library.into_raw();
    let differs = |reason: String| PluginError::Layout {
        path: path.to_owned(),
        plugin: format!("{} {}", header.name, header.version),
        built: format!("SDK {} by {}", header.sdk, header.rustc),
        reason,
    };
    let root_header = root_header?
        .upgrade()
        .map_err(|error| differs(format!("another `abi_stable` ({error})")))?;
    let plugin = root_header
        .layout()
        .ok_or_else(|| differs("it carries no layout to compare".to_owned()))?;
    layout::check(plugin).map_err(differs)?;
    stage.store(2, Ordering::Release);
    #[expect(
        unsafe_code,
        reason = "the root is typed after its layout was compared"
    )]
    // SAFETY: the layout that the library gives for its root was just found to fit `RootRef`, in
    // one direction or the other, and no side relies on items that the other does not have.
    let root = unsafe { root_header.unchecked_layout::<RootRef>() }.map_err(|error| {
        PluginError::Builder {
            path: path.to_owned(),
            name: header.name.clone(),
            reason: error.to_string(),
        }
    })?;
    stage.store(3, Ordering::Release);
    let manifest = root.manifest()();
    Ok(OpenLibrary {
        root,
        manifest: manifest.as_slice().into(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
