//! Attribution to calls of files that were found beside them, rather than told of by who made them.
//!
//! A command does not say what it writes: its executor looks at the directory before and after, and
//! finds what anybody changed meanwhile. The system tells no unprivileged program who changed a file
//! (fanotify leaves the process out), so what counts is when it was changed: where only one call of
//! those that run in the directory can have done it, it is that call's; else nobody can tell.

mod foreign_calls;
mod location;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use foreign_calls::ForeignCalls;
pub(crate) use location::CallLocation;

/// What stands for the backend where nobody can tell which it was.
pub const UNKNOWN_SOURCE: &str = "unknown";

/// How far the file system's clock may be behind: it counts in ticks.
const SLACK: Duration = Duration::from_millis(12);
/// How many calls that are over are kept before those that no other one ran beside are dropped.
const CAPACITY: usize = 256;

/// Location where a call works, once its executor has told it.
pub(crate) type LocationSlot = Arc<OnceLock<CallLocation>>;

/// A session that works in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SessionWorkspace {
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
    foreign_calls: Option<ForeignCalls>,
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
    workspace: Arc<SessionWorkspace>,
    backend: Arc<str>,
    finds_files: bool,
    span: CallInterval,
    location: LocationSlot,
}

/// When a call ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallInterval {
    start: SystemTime,
    end: Option<SystemTime>,
}

impl CallInterval {
    /// Whether a file whose time is this may have been changed in it.
    fn covers(&self, time: SystemTime) -> bool {
        let begun = self.start.checked_sub(SLACK).unwrap_or(self.start);
        begun <= time && self.reaches(time)
    }

    /// Whether it was not over yet.
    fn reaches(&self, time: SystemTime) -> bool {
        self.end.is_none_or(|ended| ended >= time)
    }
}

/// A call that runs, until this is dropped.
#[derive(Debug)]
pub(crate) struct CallWindow<'a> {
    windows: &'a CallWindows,
    workspace: Arc<SessionWorkspace>,
    number: u64,
    begun: SystemTime,
    location: LocationSlot,
    /// Whether other processes are told.
    is_published: bool,
    /// The calls of other processes, read for the first file that was found.
    foreign_intervals: OnceLock<Vec<CallInterval>>,
}

/// Writer of a file that a call found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileWriter {
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
    pub(crate) fn for_data_dir(data_dir: &Path) -> Self {
        Self {
            windows: Mutex::default(),
            foreign_calls: Some(ForeignCalls::new(data_dir.join("calls"))),
        }
    }

    /// A call begins. `finds_files`: its executor looks for the files that it made.
    pub(crate) fn begin(
        &self,
        workspace: &Arc<SessionWorkspace>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        self.begin_at(SystemTime::now(), workspace, backend, finds_files)
    }

    fn begin_at(
        &self,
        begun: SystemTime,
        workspace: &Arc<SessionWorkspace>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        let mut window = self.open(begun, workspace, backend, finds_files);
        let elsewhere = self.foreign_calls.as_ref().filter(|_| workspace.is_shared);
        if let Some(elsewhere) = elsewhere {
            elsewhere.begin(window.number, window.begun, &workspace.dir);
            window.is_published = true;
        }
        window
    }

    /// Like [`Self::begin`], for a call that is over before another process would have read of it.
    pub(crate) fn begin_inline(
        &self,
        workspace: &Arc<SessionWorkspace>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        self.open(SystemTime::now(), workspace, backend, finds_files)
    }

    fn open(
        &self,
        begun: SystemTime,
        workspace: &Arc<SessionWorkspace>,
        backend: &Arc<str>,
        finds_files: bool,
    ) -> CallWindow<'_> {
        let location = LocationSlot::default();
        let mut windows = self.lock();
        let number = windows.next;
        windows.next += 1;
        windows.running += 1;
        windows.all.push(ArtifactWindow {
            number,
            workspace: Arc::clone(workspace),
            backend: Arc::clone(backend),
            finds_files,
            span: CallInterval {
                start: begun,
                end: None,
            },
            location: Arc::clone(&location),
        });
        CallWindow {
            windows: self,
            workspace: Arc::clone(workspace),
            number,
            begun,
            location,
            is_published: false,
            foreign_intervals: OnceLock::new(),
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
            own.span.end = Some(now);
        }
        self.running = self.running.saturating_sub(1);
        if self.running == 0 {
            self.all.clear();
        } else if self.all.len() > CAPACITY.max(2 * self.running) {
            let running = self.all.iter().filter(|one| one.span.end.is_none());
            let first = running.map(|one| one.span.start).min().unwrap_or(now);
            self.all.retain(|one| one.span.reaches(first));
        }
    }
}

impl CallWindow<'_> {
    /// Writer of a file that this call found. To be asked when the call's work is over: what begins
    /// elsewhere after that changed nothing that was found.
    pub(crate) fn writer_of(&self, path: &Path) -> FileWriter {
        // It is gone again, so nobody else will find it.
        let Some(time) = conjure_config::fs::changed_at(path) else {
            return FileWriter::Finder;
        };
        self.writer_at(
            time,
            self.foreign_intervals
                .get_or_init(|| self.read_foreign_intervals()),
        )
    }

    /// Number of the call among those of the host.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the call of this number is this one, or ran at the same time for a while.
    pub(crate) fn overlaps(&self, number: u64) -> bool {
        let windows = self.windows.lock();
        let mut all = windows.all.iter();
        number == self.number || all.any(|one| one.number == number && one.span.reaches(self.begun))
    }

    /// Slot for the location where the call works.
    pub(crate) fn location(&self) -> &LocationSlot {
        &self.location
    }

    /// Writer of a file elsewhere that this call found there. What time it has there says nothing
    /// here, so no other call may have worked at the same location meanwhile. To be asked when the
    /// call's work is over.
    pub(crate) fn of_elsewhere(&self) -> FileWriter {
        let Some(own) = self.location.get() else {
            return FileWriter::Finder;
        };
        let windows = self.windows.lock();
        let is_beside = windows.all.iter().any(|other| {
            let there = other.location.get();
            other.number != self.number
                && other.span.reaches(self.begun)
                && there.is_some_and(|there| there.may_be(own))
        });
        match is_beside {
            true => FileWriter::Unknown,
            false => FileWriter::Finder,
        }
    }

    /// The calls of other processes that ran beside this one.
    fn read_foreign_intervals(&self) -> Vec<CallInterval> {
        match &self.windows.foreign_calls {
            Some(elsewhere) if self.is_published => {
                elsewhere.overlapping(&self.workspace.dir, self.begun)
            }
            _ => Vec::new(),
        }
    }

    fn writer_at(&self, time: SystemTime, elsewhere: &[CallInterval]) -> FileWriter {
        let windows = self.windows.lock();
        // What was over before this call began, its executor saw before it ran the command.
        let mut beside = windows.all.iter().filter(|other| {
            other.number != self.number
                && other.span.reaches(self.begun)
                && self.meets(other)
                && other.span.covers(time)
        });
        let there = elsewhere.iter().filter(|span| span.covers(time)).count();
        let own = CallInterval {
            start: self.begun,
            end: None,
        };
        let is_alone = |mut others: usize| {
            others += there;
            others == 0
        };
        match (own.covers(time), beside.next()) {
            (true, other) if is_alone(usize::from(other.is_some())) => FileWriter::Finder,
            (true, _) => FileWriter::Unknown,
            (false, Some(one)) if is_alone(beside.count()) => {
                match one.workspace.session == self.workspace.session {
                    true => FileWriter::Other {
                        backend: Arc::clone(&one.backend),
                        finds_files: one.finds_files,
                    },
                    false => FileWriter::OtherSession,
                }
            }
            (false, None) if there == 1 => FileWriter::OtherSession,
            // Its time is none of this call's: it was brought along, as by `mv` of a directory.
            (false, None) if there == 0 && !self.has_concurrent_calls(&windows, elsewhere) => {
                FileWriter::Finder
            }
            (false, _) => FileWriter::Unknown,
        }
    }

    /// Whether another call may write where this one does: in the same directory of this machine, or
    /// elsewhere at a location that may be this one's.
    fn meets(&self, other: &ArtifactWindow) -> bool {
        let are_one = || {
            let (own, there) = (self.location.get()?, other.location.get()?);
            Some(own.has_machine() && there.has_machine() && own.may_be(there))
        };
        are_nested(&other.workspace.dir, &self.workspace.dir) || are_one() == Some(true)
    }

    /// Whether any other call ran meanwhile.
    fn has_concurrent_calls(&self, windows: &Windows, elsewhere: &[CallInterval]) -> bool {
        let mut others = windows.all.iter().filter(|other| {
            other.number != self.number && other.span.reaches(self.begun) && self.meets(other)
        });
        !elsewhere.is_empty() || others.next().is_some()
    }
}

impl Drop for CallWindow<'_> {
    fn drop(&mut self) {
        let now = SystemTime::now();
        self.windows.lock().end(self.number, now);
        if self.is_published
            && let Some(elsewhere) = &self.windows.foreign_calls
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
    use conjure_skill_sdk::protocol::PluginEvent;
    use serde_json::json;

    use super::*;

    fn workspace(session: &str, dir: &str) -> Arc<SessionWorkspace> {
        Arc::new(SessionWorkspace {
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
        let (workspace, at) = (workspace("one", "/dir"), moments());
        let local = windows.begin_at(at(0), &workspace, &backend("local"), true);
        assert_eq!(local.writer_at(at(1), &[]), FileWriter::Finder);
        let docker = windows.begin_at(at(2), &workspace, &backend("docker"), true);
        assert_eq!(local.writer_at(at(3), &[]), FileWriter::Unknown);
        assert_eq!(docker.writer_at(at(3), &[]), FileWriter::Unknown);
        // Well before the other began it can only have been the first.
        let other = FileWriter::Other {
            backend: backend("local"),
            finds_files: true,
        };
        assert_eq!(docker.writer_at(at(1), &[]), other);
        assert_eq!(local.writer_at(at(1), &[]), FileWriter::Finder);
        drop(local);
        let later = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(docker.writer_at(later, &[]), FileWriter::Finder);
        drop(docker);
        assert!(windows.lock().all.is_empty());
    }

    #[test]
    fn calls_of_one_backend_and_of_other_sessions_count_too() {
        let (windows, at) = (CallWindows::default(), moments());
        let (one, other) = (workspace("one", "/dir"), workspace("other", "/dir/deep"));
        let away = workspace("away", "/elsewhere");
        let first = windows.begin_at(at(0), &one, &backend("local"), true);
        let _far = windows.begin_at(at(0), &away, &backend("local"), true);
        assert_eq!(first.writer_at(at(1), &[]), FileWriter::Finder);
        let second = windows.begin_at(at(2), &other, &backend("local"), true);
        assert_eq!(first.writer_at(at(3), &[]), FileWriter::Unknown);
        assert_eq!(second.writer_at(at(1), &[]), FileWriter::OtherSession);
    }

    #[test]
    fn what_was_over_before_a_call_began_did_nothing_that_it_found() {
        let windows = CallWindows::default();
        let workspace = workspace("one", "/dir");
        let _long = windows.begin(&self::workspace("x", "/away"), &backend("local"), true);
        drop(windows.begin(&workspace, &backend("local"), true));
        let next = windows.begin(&workspace, &backend("local"), true);
        assert_eq!(next.writer_at(SystemTime::now(), &[]), FileWriter::Finder);
    }

    #[test]
    fn calls_of_another_process_count_as_those_of_another_session() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (
            CallWindows::for_data_dir(dir.path()),
            CallWindows::for_data_dir(dir.path()),
        );
        let (one, at) = (workspace("one", "/dir"), moments());
        let own = here.begin_at(at(0), &one, &backend("local"), true);
        assert_eq!(
            own.writer_at(at(1), &own.read_foreign_intervals()),
            FileWriter::Finder
        );
        let other = there.begin_at(at(2), &workspace("two", "/dir"), &backend("local"), true);
        assert_eq!(
            own.writer_at(at(1), &own.read_foreign_intervals()),
            FileWriter::Finder
        );
        assert_eq!(
            other.writer_at(at(1), &other.read_foreign_intervals()),
            FileWriter::OtherSession
        );
        assert_eq!(
            own.writer_at(at(3), &own.read_foreign_intervals()),
            FileWriter::Unknown
        );
        drop(other);
        assert_eq!(
            own.writer_at(at(3), &own.read_foreign_intervals()),
            FileWriter::Unknown,
            "it ran then"
        );
        drop(there);
        let gone = own.read_foreign_intervals();
        assert_eq!(
            own.writer_at(at(3), &gone),
            FileWriter::Unknown,
            "its process is gone since"
        );
        let later = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(own.writer_at(later, &gone), FileWriter::Finder);
    }

    #[test]
    fn a_call_elsewhere_counts_where_its_location_may_be_that_of_this_directory() {
        let (windows, at) = (CallWindows::default(), moments());
        let call = |dir: &str, location: Option<(&str, &str)>| {
            let window = windows.begin_at(at(0), &workspace("one", dir), &backend("x"), true);
            if let Some((machine, dir)) = location {
                let event = json!({ "event": "location", "machine": machine, "dirs": [dir] });
                let location = CallLocation::from_event(PluginEvent::Other(event));
                window.location().get_or_init(|| location.unwrap());
            }
            window
        };
        let own = call("/dir", Some(("m", "1:1")));
        let others = [
            None,
            Some(("m", "1:2")),
            Some(("", "1:1")),
            Some(("n", "1:1")),
        ];
        let _others = others.map(|location| call("/away", location));
        assert_eq!(own.writer_at(at(1), &[]), FileWriter::Finder);
        let beside = call("/away", Some(("m", "1:1")));
        assert_eq!(own.writer_at(at(1), &[]), FileWriter::Unknown);
        assert_eq!(beside.writer_at(at(1), &[]), FileWriter::Unknown);
    }

    #[test]
    fn a_files_own_time_is_what_counts() {
        let dir = tempfile::tempdir().unwrap();
        let windows = CallWindows::for_data_dir(dir.path());
        let own = windows.begin(&workspace("one", "/dir"), &backend("local"), true);
        let file = dir.path().join("file");
        std::fs::write(&file, "alone").unwrap();
        assert_eq!(own.writer_of(&file), FileWriter::Finder);
        let _other = windows.begin_at(
            SystemTime::now() - Duration::from_secs(9),
            &workspace("two", "/dir"),
            &backend("local"),
            true,
        );
        assert_eq!(own.writer_of(&file), FileWriter::Unknown);
        assert_eq!(own.writer_of(&dir.path().join("gone")), FileWriter::Finder);
    }
}
