//! From a copy of a library to its root: the system's loader, the comparison of layouts, the manifest.
//!
//! In the host that happens on a thread with a deadline, since a library may hang while the system
//! opens it; a worker process opens its library itself, and is ended by the host.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use conjure_abi::abi_stable::library::AbiHeaderRef;
use conjure_abi::{HeaderFields, ROOT_SYMBOL, RootRef};
use conjure_config::error_chain::with_causes;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{PluginError, layout};

/// What a library's header says of it, as errors name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LibraryLabel {
    pub(super) name: String,
    pub(super) version: String,
    /// The version of the SDK.
    pub(super) sdk: String,
    /// The compiler.
    pub(super) rustc: String,
}

impl From<&HeaderFields> for LibraryLabel {
    fn from(header: &HeaderFields) -> Self {
        Self {
            name: header.name.clone(),
            version: header.version.clone(),
            sdk: header.sdk.clone(),
            rustc: header.rustc.clone(),
        }
    }
}

/// A library that is open for good.
#[derive(Clone)]
pub(super) struct OpenLibrary {
    pub(super) root: RootRef,
    pub(super) manifest: Arc<[u8]>,
}

/// Threads that were lost to libraries which hung while they were loaded.
pub(super) static LOST_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Libraries that hang while the system opens them. It opens one at a time.
static HUNG_LIBRARIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The library that hangs while the system opens it, if there is one.
pub(super) fn hung_library() -> Option<PathBuf> {
    lock(&HUNG_LIBRARIES).first().cloned()
}

/// Ends the process with an exit code.
///
/// Use it instead of [`std::process::exit`] in a program that loads plugins: at the ordinary end
/// the system waits for a library that hangs while it is opened, for ever. Then this ends the
/// process without running what is registered for its end.
pub fn end_process(code: i32) -> ! {
    use std::io::Write as _;
    if lock(&HUNG_LIBRARIES).is_empty() {
        std::process::exit(code);
    }
    let _ = std::io::stdout().flush();
    _exit(code)
}

/// Ends the process now, whatever its threads do; runs nothing that is registered for its end.
pub(super) fn exit_immediately(code: i32) -> ! {
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

/// Opens a copy on a thread of its own, and waits for it up to the deadline.
///
/// # Errors
/// What is wrong with the library.
pub(super) fn open_with_deadline(
    file: &Path,
    header: &HeaderFields,
    copy: PathBuf,
    deadline: Duration,
) -> Result<OpenLibrary, PluginError> {
    let handover = Arc::new(ResultSlot::default());
    let stage = Arc::new(AtomicU8::new(0));
    let (path, label) = (file.to_owned(), LibraryLabel::from(header));
    thread::Builder::new()
        .name("plugin-load".to_owned())
        .spawn({
            let (stage, handover) = (Arc::clone(&stage), Arc::clone(&handover));
            move || {
                let opened = catch_unwind(AssertUnwindSafe(|| open(&path, &label, &copy, &stage)));
                finish_stage(&path, &stage, 4);
                let outcome = opened.unwrap_or_else(|_| {
                    Err(PluginError::Host {
                        path,
                        reason: "the host broke while it opened it; this is a bug of it".to_owned(),
                    })
                });
                if !handover.send(outcome) {
                    LOST_THREADS.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })
        .map_err(|error| PluginError::Host {
            path: file.to_owned(),
            reason: format!("it has no thread ({error})"),
        })?;
    handover.receive(deadline).unwrap_or_else(|| {
        let mut stuck = lock(&HUNG_LIBRARIES);
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
struct ResultSlot {
    state: Mutex<ResultSlotState>,
    ready: Condvar,
}

#[derive(Default)]
enum ResultSlotState {
    #[default]
    Empty,
    Outcome(Result<OpenLibrary, PluginError>),
    Abandoned,
}

impl ResultSlot {
    /// Says whether somebody still waits for it.
    fn send(&self, outcome: Result<OpenLibrary, PluginError>) -> bool {
        let mut state = lock(&self.state);
        if matches!(*state, ResultSlotState::Abandoned) {
            return false;
        }
        *state = ResultSlotState::Outcome(outcome);
        self.ready.notify_one();
        true
    }

    /// Waits for it; nothing when the time is up, and then the thread counts as lost.
    fn receive(&self, limit: Duration) -> Option<Result<OpenLibrary, PluginError>> {
        let nothing = |state: &mut ResultSlotState| matches!(state, ResultSlotState::Empty);
        let (mut state, _) = self
            .ready
            .wait_timeout_while(lock(&self.state), limit, nothing)
            .unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, ResultSlotState::Abandoned) {
            ResultSlotState::Outcome(outcome) => Some(outcome),
            ResultSlotState::Empty | ResultSlotState::Abandoned => {
                LOST_THREADS.fetch_add(1, Ordering::AcqRel);
                None
            }
        }
    }
}

/// The system has opened the library, or refused to.
fn finish_stage(path: &Path, stage: &AtomicU8, next: u8) {
    let mut stuck = lock(&HUNG_LIBRARIES);
    stage.store(next, Ordering::Release);
    stuck.retain(|other| other != path);
}

/// Opens a copy on the calling thread: `path` is the file that it is a copy of. `stage` counts on
/// what was reached.
///
/// # Errors
/// What is wrong with the library.
pub(super) fn open(
    path: &Path,
    label: &LibraryLabel,
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
            // What the system's loader says is the cause alone.
            reason: with_causes(&error),
        }
    })?;
    finish_stage(path, stage, 1);
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
        plugin: format!("{} {}", label.name, label.version),
        built: format!("SDK {} by {}", label.sdk, label.rustc),
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
            name: label.name.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_library_cannot_be_opened_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy.so");
        std::fs::write(&copy, "what").unwrap();
        let label = LibraryLabel {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            sdk: "1".to_owned(),
            rustc: "1".to_owned(),
        };
        let opened = open(Path::new("libx.so"), &label, &copy, &AtomicU8::new(0));
        let error = opened.err().unwrap().to_string();
        // What is wrong is said by the system's loader, of the file that it was given.
        let copy = copy.display().to_string();
        assert!(error.contains(&copy), "{error}");
    }
}
