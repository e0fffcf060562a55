//! Loads of several files beside each other, so that one which hangs in its worker holds up no other.
//!
//! Only of what runs in workers: the system opens one library at a time in a process, so what runs in
//! this one is left to be loaded in its turn.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{FileStamp, FoundLibrary, LoadedPlugin, Loader, PluginError};

/// Files that are loaded at the same time at the most.
pub(super) const AT_ONCE: usize = 8;

/// What came of a file.
#[derive(Default)]
pub(super) struct ApartLoad {
    /// What was at the path before it was loaded.
    pub(super) stamp: Option<FileStamp>,
    /// Nothing where it has to wait for its turn.
    pub(super) outcome: Option<Result<LoadedPlugin, PluginError>>,
}

impl ApartLoad {
    fn of(loader: &Loader, FoundLibrary { path, named }: &FoundLibrary) -> Self {
        Self {
            stamp: FileStamp::of(path),
            outcome: match loader.load_apart(path, *named) {
                // It may have been replaced, and its lock with it, while it was read.
                Err(PluginError::Locked { .. }) => None,
                loaded => loaded.transpose(),
            },
        }
    }
}

/// How many files are loaded at the same time where so many programs run at the same time: more would
/// take each other's time until one seems to hang. Two at the least, so that one which does hang holds up
/// no other.
fn threads(processors: usize) -> usize {
    processors.clamp(2, AT_ONCE)
}

/// Loads files beside each other; what came of them, in their order.
pub(super) fn load_apart(loader: &Loader, found: &[FoundLibrary]) -> Vec<ApartLoad> {
    let slots: Vec<OnceLock<ApartLoad>> = found.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (Some(library), Some(slot)) = (found.get(number), slots.get(number)) else {
                return;
            };
            let _ = slot.set(ApartLoad::of(loader, library));
        }
    };
    let threads = threads(thread::available_parallelism().map_or(1, NonZero::get));
    thread::scope(|scope| {
        for _ in 1..found.len().min(threads) {
            let builder = thread::Builder::new().name("plugin-load-apart".to_owned());
            // Where there is no room for another thread, fewer do it.
            let _ = builder.spawn_scoped(scope, work);
        }
        work();
    });
    let loads = slots.into_iter().map(OnceLock::into_inner);
    loads.map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_loaded_at_once_than_the_machine_has_time_for() {
        assert_eq!([1, 2, 4, 64].map(threads), [2, 2, 4, AT_ONCE]);
    }
}
