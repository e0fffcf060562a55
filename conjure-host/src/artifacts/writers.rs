//! Which call wrote a file that was found beside it, rather than told of by who made it.
//!
//! A command does not say what it writes: its executor looks at the directory before and after.
//! Where calls of several backends run at the same time each finds the files of all. What counts is
//! when a file was changed: if only one call ran then, it is that call's; else nobody can tell.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What stands for the backend where nobody can tell which it was.
pub const UNKNOWN_SOURCE: &str = "unknown";

/// How far the file system's clock may be behind: it counts in ticks.
const SLACK: Duration = Duration::from_millis(12);

/// The calls of a session that may write, and when each ran. One that is over is kept for as long
/// as a call runs that began before its end.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<Vec<Window>>);

#[derive(Debug)]
struct Window {
    number: u64,
    backend: Arc<str>,
    begun: SystemTime,
    ended: Option<SystemTime>,
}

impl Window {
    fn covers(&self, time: SystemTime) -> bool {
        let begun = self.begun.checked_sub(SLACK).unwrap_or(self.begun);
        begun <= time && self.ended.is_none_or(|ended| time <= ended + SLACK)
    }
}

/// A call that may write, until this is dropped.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    writers: &'a Writers,
    number: u64,
}

/// Who wrote a file that a call found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// The call that found it.
    Finder,
    /// A call of this backend, and not the one that found it.
    Other(Arc<str>),
    /// Several calls ran, of several backends.
    Unknown,
}

impl Writers {
    /// A call of this backend begins.
    pub(crate) fn begin(&self, backend: &Arc<str>) -> Writer<'_> {
        let mut windows = self.windows();
        let number = windows.last().map_or(0, |last| last.number + 1);
        windows.push(Window {
            number,
            backend: Arc::clone(backend),
            begun: SystemTime::now(),
            ended: None,
        });
        Writer {
            writers: self,
            number,
        }
    }

    fn windows(&self) -> std::sync::MutexGuard<'_, Vec<Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer<'_> {
    /// Who wrote a file that this call found.
    pub(crate) fn of(&self, path: &Path) -> Wrote {
        match crate::fs::changed_at(path) {
            Some(time) => self.at(time),
            // It is gone again, so nobody else will find it.
            None => Wrote::Finder,
        }
    }

    fn at(&self, time: SystemTime) -> Wrote {
        let windows = self.writers.windows();
        let mut running = windows.iter().filter(|window| window.covers(time));
        let Some(first) = running.next() else {
            return Wrote::Finder;
        };
        let mut finder = first.number == self.number;
        for window in running {
            if window.backend != first.backend {
                return Wrote::Unknown;
            }
            finder |= window.number == self.number;
        }
        if finder {
            Wrote::Finder
        } else {
            Wrote::Other(Arc::clone(&first.backend))
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let mut windows = self.writers.windows();
        let now = SystemTime::now();
        if let Some(own) = windows.iter_mut().find(|one| one.number == self.number) {
            own.ended = Some(now);
        }
        let running = windows.iter().filter(|window| window.ended.is_none());
        let first = running.map(|window| window.begun).min().unwrap_or(now);
        windows.retain(|window| {
            window
                .ended
                .is_none_or(|ended| first != now && ended + SLACK >= first)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn a_file_is_the_only_calls_that_ran_when_it_was_written() {
        let writers = Writers::default();
        let local = writers.begin(&backend("local"));
        let now = SystemTime::now();
        assert_eq!(local.at(now), Wrote::Finder);
        let docker = writers.begin(&backend("docker"));
        assert_eq!(local.at(SystemTime::now()), Wrote::Unknown);
        assert_eq!(docker.at(SystemTime::now()), Wrote::Unknown);
        // Well before the other began it can only have been the first.
        let before = now - SLACK;
        assert_eq!(docker.at(before), Wrote::Other(backend("local")));
        assert_eq!(local.at(before), Wrote::Finder);
        let later = SystemTime::now() + 3 * SLACK;
        drop(local);
        assert_eq!(docker.at(later), Wrote::Finder);
        drop(docker);
        assert!(writers.windows().is_empty());
    }

    #[test]
    fn calls_of_one_backend_are_one_source() {
        let writers = Writers::default();
        let one = writers.begin(&backend("local"));
        let other = writers.begin(&backend("local"));
        assert_eq!(one.at(SystemTime::now()), Wrote::Finder);
        assert_eq!(other.at(SystemTime::now()), Wrote::Finder);
    }
}
