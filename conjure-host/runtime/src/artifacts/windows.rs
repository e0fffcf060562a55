//! Attribution to calls of files that were found beside them, rather than told of by who made them.
//!
//! A command does not say what it writes: its executor looks at the directory before and after, and
//! finds what anybody changed meanwhile. The system tells no unprivileged program who changed a file
//! (fanotify leaves the process out), so what counts is when it was changed: where only one call of
//! those that run in the directory can have done it, it is that call's; else nobody can tell.

mod foreign_calls;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use foreign_calls::ForeignCalls;

/// What stands for the backend where nobody can tell which it was.
pub const UNKNOWN_SOURCE: &str = "unknown";

/// How far the file system's clock may be behind: it counts in ticks.
const SLACK: Duration = Duration::from_millis(12);
/// How many calls that are over are kept before those that no other one ran beside are dropped.
const KEPT: usize = 256;

/// A session that works in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    /// The session.
    pub(crate) session: String,
    /// Working directory of the session, its links resolved.
    pub(crate) dir: Arc<Path>,
    /// Whether other processes may work there too.
    pub(crate) is_shared: bool,
}

/// When the calls of a host run, each in the directory of its session. One that is over is kept for
/// as long as a call runs that began before its end.
#[derive(Debug, Default)]
pub(crate) struct CallWindows {
    windows: Mutex<Windows>,
    elsewhere: Option<ForeignCalls>,
}

#[derive(Debug, Default)]
struct Windows {
    /// In the order of their numbers.
    all: Vec<ArtifactWindow>,
    next: u64,
    running: usize,
}

/// The time span of a call, in which it may have written files.
#[derive(Debug)]
struct ArtifactWindow {
    number: u64,
    worker: Arc<Worker>,
    backend: Arc<str>,
    finds_files: bool,
    span: CallInterval,
}

/// When a call ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallInterval {
    begun: SystemTime,
    ended: Option<SystemTime>,
}

impl CallInterval {
    /// Whether a file whose time is this may have been changed in it.
    fn covers(&self, time: SystemTime) -> bool {
        let begun = self.begun.checked_sub(SLACK).unwrap_or(self.begun);
        begun <= time && self.reaches(time)
    }

    /// Whether it was not over yet.
    fn reaches(&self, time: SystemTime) -> bool {
        self.ended.is_none_or(|ended| ended >= time)
    }
}

/// A call that runs, until this is dropped.
#[derive(Debug)]
pub(crate) struct CallWindow<'a> {
    windows: &'a CallWindows,
    worker: Arc<Worker>,
    number: u64,
    begun: SystemTime,
    /// Whether other processes are told.
    is_told: bool,
    /// The calls of other processes, read for the first file that was found.
    from_elsewhere: OnceLock<Vec<CallInterval>>,
}

/// Writer of a file that a call found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// The call that found it: no other one can have.
    Finder,
    /// Another call of the same session alone, of this backend.
    Other {
        backend: Arc<str>,
        /// Whether that call finds the file itself.
        finds_files: bool,
    },
    /// A call of another session alone.
    OtherSession,
    /// Several calls can have.
    Unknown,
}

impl CallWindows {
    /// Windows of a process beside others that have this data directory.
    pub(crate) fn beside(data_dir: &Path) -> Self {
        Self {
            windows: Mutex::default(),
            elsewhere: Some(ForeignCalls::new(data_dir.join("calls"))),
        }
    }

    /// A call begins. `finds_files`: its executor looks for the files that it made.
    pub(crate) fn begin(
        &self,
        worker: &Arc<Worker>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        self.begin_at(SystemTime::now(), worker, backend, finds_files)
    }

    fn begin_at(
        &self,
        begun: SystemTime,
        worker: &Arc<Worker>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        let mut window = self.open(begun, worker, backend, finds_files);
        let elsewhere = self.elsewhere.as_ref().filter(|_| worker.is_shared);
        if let Some(elsewhere) = elsewhere {
            elsewhere.begin(window.number, window.begun, &worker.dir);
            window.is_told = true;
        }
        window
    }

    /// Like [`Self::begin`], for a call that is over before another process would have read of it.
    pub(crate) fn begin_in_place(
        &self,
        worker: &Arc<Worker>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        self.open(SystemTime::now(), worker, backend, finds_files)
    }

    fn open(
        &self,
        begun: SystemTime,
        worker: &Arc<Worker>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        let mut windows = self.lock();
        let number = windows.next;
        windows.next += 1;
        windows.running += 1;
        windows.all.push(ArtifactWindow {
            number,
            worker: Arc::clone(worker),
            backend: Arc::clone(backend),
            finds_files,
            span: CallInterval { begun, ended: None },
        });
        CallWindow {
            windows: self,
            worker: Arc::clone(worker),
            number,
            begun,
            is_told: false,
            from_elsewhere: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Windows {
    fn end(&mut self, number: u64, now: SystemTime) {
        if let Ok(at) = self.all.binary_search_by_key(&number, |one| one.number)
            && let Some(own) = self.all.get_mut(at)
        {
            own.span.ended = Some(now);
        }
        self.running = self.running.saturating_sub(1);
        if self.running == 0 {
            self.all.clear();
        } else if self.all.len() > KEPT.max(2 * self.running) {
            let running = self.all.iter().filter(|one| one.span.ended.is_none());
            let first = running.map(|one| one.span.begun).min().unwrap_or(now);
            self.all.retain(|one| one.span.reaches(first));
        }
    }
}

impl CallWindow<'_> {
    /// Writer of a file that this call found. To be asked when the call's work is over: what begins
    /// elsewhere after that changed nothing that was found.
    pub(crate) fn of(&self, path: &Path) -> Wrote {
        // It is gone again, so nobody else will find it.
        let Some(time) = conjure_config::fs::changed_at(path) else {
            return Wrote::Finder;
        };
        self.at(time, self.from_elsewhere.get_or_init(|| self.elsewhere()))
    }

    /// The calls of other processes that ran beside this one.
    fn elsewhere(&self) -> Vec<CallInterval> {
        match &self.windows.elsewhere {
            Some(elsewhere) if self.is_told => elsewhere.beside(&self.worker.dir, self.begun),
            _ => Vec::new(),
        }
    }

    fn at(&self, time: SystemTime, elsewhere: &[CallInterval]) -> Wrote {
        let windows = self.windows.lock();
        let dir = &self.worker.dir;
        // What was over before this call began, its executor saw before it ran the command.
        let mut beside = windows.all.iter().filter(|other| {
            other.number != self.number
                && other.span.reaches(self.begun)
                && are_nested(&other.worker.dir, dir)
                && other.span.covers(time)
        });
        let there = elsewhere.iter().filter(|span| span.covers(time)).count();
        let own = CallInterval {
            begun: self.begun,
            ended: None,
        };
        let is_alone = |mut others: usize| {
            others += there;
            others == 0
        };
        match (own.covers(time), beside.next()) {
            (true, other) if is_alone(usize::from(other.is_some())) => Wrote::Finder,
            (true, _) => Wrote::Unknown,
            (false, Some(one)) if is_alone(beside.count()) => {
                match one.worker.session == self.worker.session {
                    true => Wrote::Other {
                        backend: Arc::clone(&one.backend),
                        finds_files: one.finds_files,
                    },
                    false => Wrote::OtherSession,
                }
            }
            (false, None) if there == 1 => Wrote::OtherSession,
            // Its time is none of this call's: it was brought along, as by `mv` of a directory.
            (false, None) if there == 0 && !self.has_company(&windows, elsewhere) => Wrote::Finder,
            (false, _) => Wrote::Unknown,
        }
    }

    /// Whether any other call ran meanwhile.
    fn has_company(&self, windows: &Windows, elsewhere: &[CallInterval]) -> bool {
        let mut others = windows.all.iter().filter(|other| {
            other.number != self.number
                && other.span.reaches(self.begun)
                && are_nested(&other.worker.dir, &self.worker.dir)
        });
        !elsewhere.is_empty() || others.next().is_some()
    }
}

impl Drop for CallWindow<'_> {
    fn drop(&mut self) {
        let now = SystemTime::now();
        self.windows.lock().end(self.number, now);
        if self.is_told
            && let Some(elsewhere) = &self.windows.elsewhere
        {
            elsewhere.end(self.number, now);
        }
    }
}

/// Whether one of two directories is or holds the other.
fn are_nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(session: &str, dir: &str) -> Arc<Worker> {
        Arc::new(Worker {
            session: session.to_owned(),
            dir: Arc::from(Path::new(dir)),
            is_shared: true,
        })
    }

    fn backend(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    /// A moment some seconds ago, and those that follow on it, in seconds.
    fn moments() -> impl Fn(u64) -> SystemTime {
        let first = SystemTime::now() - Duration::from_secs(60);
        move |seconds| first + Duration::from_secs(seconds)
    }

    #[test]
    fn a_file_is_the_only_calls_that_ran_when_it_was_changed() {
        let windows = CallWindows::default();
        let (worker, at) = (worker("one", "/dir"), moments());
        let local = windows.begin_at(at(0), &worker, &backend("local"), true);
        assert_eq!(local.at(at(1), &[]), Wrote::Finder);
        let docker = windows.begin_at(at(2), &worker, &backend("docker"), true);
        assert_eq!(local.at(at(3), &[]), Wrote::Unknown);
        assert_eq!(docker.at(at(3), &[]), Wrote::Unknown);
        // Well before the other began it can only have been the first.
        let other = Wrote::Other {
            backend: backend("local"),
            finds_files: true,
        };
        assert_eq!(docker.at(at(1), &[]), other);
        assert_eq!(local.at(at(1), &[]), Wrote::Finder);
        drop(local);
        let later = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(docker.at(later, &[]), Wrote::Finder);
        drop(docker);
        assert!(windows.lock().all.is_empty());
    }

    #[test]
    fn calls_of_one_backend_and_of_other_sessions_count_too() {
        let (windows, at) = (CallWindows::default(), moments());
        let (one, other) = (worker("one", "/dir"), worker("other", "/dir/deep"));
        let away = worker("away", "/elsewhere");
        let first = windows.begin_at(at(0), &one, &backend("local"), true);
        let _far = windows.begin_at(at(0), &away, &backend("local"), true);
        assert_eq!(first.at(at(1), &[]), Wrote::Finder);
        let second = windows.begin_at(at(2), &other, &backend("local"), true);
        assert_eq!(first.at(at(3), &[]), Wrote::Unknown);
        assert_eq!(second.at(at(1), &[]), Wrote::OtherSession);
    }

    #[test]
    fn what_was_over_before_a_call_began_did_nothing_that_it_found() {
        let windows = CallWindows::default();
        let worker = worker("one", "/dir");
        let _long = windows.begin(&self::worker("x", "/away"), &backend("local"), true);
        drop(windows.begin(&worker, &backend("local"), true));
        let next = windows.begin(&worker, &backend("local"), true);
        assert_eq!(next.at(SystemTime::now(), &[]), Wrote::Finder);
    }

    #[test]
    fn calls_of_another_process_count_as_those_of_another_session() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (
            CallWindows::beside(dir.path()),
            CallWindows::beside(dir.path()),
        );
        let (one, at) = (worker("one", "/dir"), moments());
        let own = here.begin_at(at(0), &one, &backend("local"), true);
        assert_eq!(own.at(at(1), &own.elsewhere()), Wrote::Finder);
        let other = there.begin_at(at(2), &worker("two", "/dir"), &backend("local"), true);
        assert_eq!(own.at(at(1), &own.elsewhere()), Wrote::Finder);
        assert_eq!(other.at(at(1), &other.elsewhere()), Wrote::OtherSession);
        assert_eq!(own.at(at(3), &own.elsewhere()), Wrote::Unknown);
        drop(other);
        assert_eq!(
            own.at(at(3), &own.elsewhere()),
            Wrote::Unknown,
            "it ran then"
        );
        drop(there);
        let gone = own.elsewhere();
        assert_eq!(
            own.at(at(3), &gone),
            Wrote::Unknown,
            "its process is gone since"
        );
        let later = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(own.at(later, &gone), Wrote::Finder);
    }

    #[test]
    fn a_files_own_time_is_what_counts() {
        let dir = tempfile::tempdir().unwrap();
        let windows = CallWindows::beside(dir.path());
        let own = windows.begin(&worker("one", "/dir"), &backend("local"), true);
        let file = dir.path().join("file");
        std::fs::write(&file, "alone").unwrap();
        assert_eq!(own.of(&file), Wrote::Finder);
        let _other = windows.begin_at(
            SystemTime::now() - Duration::from_secs(9),
            &worker("two", "/dir"),
            &backend("local"),
            true,
        );
        assert_eq!(own.of(&file), Wrote::Unknown);
        assert_eq!(own.of(&dir.path().join("gone")), Wrote::Finder);
    }
}
