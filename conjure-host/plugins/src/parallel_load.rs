//! Loads of several files beside each other, so that one which hangs in its worker adds its wait to no
//! other's.
//!
//! Only of what runs in workers: the system opens one library at a time in a process, so what runs in
//! this one is left to be loaded in its turn.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::registry::PathState;
use super::{FoundLibrary, LoadedPlugin, Loader, PluginError};

/// Files that are loaded at the same time at the most, however many processors there are. In directories
/// that are watched as many are: those that hang take no time of a processor from the others.
pub(super) const MAX_LOADS: usize = 8;

/// What came of a file.
#[derive(Default)]
pub(super) struct ParallelLoad {
    /// What was at the path before it was loaded.
    pub(super) state: Option<PathState>,
    /// Nothing where it has to wait for its turn.
    pub(super) outcome: Option<Result<LoadedPlugin, PluginError>>,
}

impl ParallelLoad {
    fn of(loader: &Loader, FoundLibrary { path, named }: &FoundLibrary) -> Self {
        Self {
            state: PathState::of(path),
            outcome: match loader.load_in_worker(path, *named) {
                // It may have been replaced, and its lock with it, while it was read.
                Err(PluginError::Locked { .. }) => None,
                loaded => loaded.transpose(),
            },
        }
    }
}

/// Loads files beside each other; what came of them, in their order.
pub(super) fn load_in_parallel(loader: &Loader, found: &[FoundLibrary]) -> Vec<ParallelLoad> {
    let loads = in_parallel(found, |library| ParallelLoad::of(loader, library));
    loads.into_iter().map(Option::unwrap_or_default).collect()
}

/// What comes of each item, in their order; nothing of one whose work panics, which costs no other.
fn in_parallel<I: Sync, T: Send + Sync>(
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
) -> Vec<Option<T>> {
    let slots: Vec<OnceLock<T>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work_through = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(slot)) = (items.get(number), slots.get(number)) else {
                return;
            };
            if let Ok(done) = catch_unwind(AssertUnwindSafe(|| work(item))) {
                let _ = slot.set(done);
            }
        }
    };
    let threads = threads(thread::available_parallelism().map_or(1, NonZero::get));
    thread::scope(|scope| {
        for _ in 1..items.len().min(threads) {
            let builder = thread::Builder::new().name("plugin-load".to_owned());
            // Where there is no room for another thread, fewer do it.
            let _ = builder.spawn_scoped(scope, work_through);
        }
        work_through();
    });
    slots.into_iter().map(OnceLock::into_inner).collect()
}

/// How many files are loaded at the same time where so many programs run at the same time: more would
/// take each other's time until one seems to hang. Two at the least, so that beside one which does hang
/// the others go on.
fn threads(processors: usize) -> usize {
    processors.clamp(2, MAX_LOADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_loaded_at_once_than_the_machine_has_time_for() {
        assert_eq!([1, 2, 4, 64].map(threads), [2, 2, 4, MAX_LOADS]);
    }

    #[test]
    fn one_that_panics_costs_no_other() {
        let items: Vec<i32> = (0..40).collect();
        let done = in_parallel(&items, |item| {
            assert!(item % 2 == 0, "{item} is odd");
            item * 10
        });
        let wanted = items.iter().map(|item| (item % 2 == 0).then(|| item * 10));
        assert_eq!(done, wanted.collect::<Vec<_>>());
    }
}
