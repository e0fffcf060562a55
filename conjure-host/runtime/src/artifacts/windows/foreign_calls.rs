//! When the calls of other processes run that have the same data directory.
//!
//! Each process appends to a file of its own, one line when a call begins and one when it ends, and
//! reads those of the others. It holds a lock for as long as it lives, so that what a killed one left
//! open is known to be that: the next call that begins writes that it is over. A process that cannot
//! write there is alone as far as it knows.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{CallInterval, SLACK, are_nested};

/// How long a file stays whose process is gone: calls that ran beside it may still ask.
const RETENTION: Duration = Duration::from_secs(600);
/// Bytes of a file from which on what is over is taken out of it.
const LARGE: u64 = 64 * 1024;

/// The files of all processes.
#[derive(Debug)]
pub(super) struct ForeignCalls {
    dir: PathBuf,
    /// Made at the first call.
    own: Mutex<Option<OwnCallFile>>,
    /// Files of processes that are gone, in which no call is open any more.
    closed: Mutex<BTreeSet<PathBuf>>,
}

/// The file in which this process notes its calls.
#[derive(Debug)]
struct OwnCallFile {
    name: String,
    calls: File,
    bytes: u64,
    /// Size in bytes above which the file is looked at again.
    shorten_above: u64,
    /// Tells that the process lives.
    _lock: File,
}

/// A call, as the process that runs it has noted it.
#[derive(Debug, Clone)]
struct ForeignCall {
    number: u64,
    dir: PathBuf,
    span: CallInterval,
}

impl ForeignCalls {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            own: Mutex::default(),
            closed: Mutex::default(),
        }
    }

    /// A call of this process begins.
    pub(super) fn begin(&self, number: u64, time: SystemTime, dir: &Path) {
        self.close_abandoned(time);
        self.append(&start_line(number, time, dir));
    }

    /// A call of this process is over.
    pub(super) fn end(&self, number: u64, time: SystemTime) {
        self.append(&end_line(number, time));
    }

    /// The calls of others that ran in a directory, or above or below it, since this time.
    pub(super) fn overlapping(&self, dir: &Path, since: SystemTime) -> Vec<CallInterval> {
        let mut spans = Vec::new();
        for (_, calls) in self.others() {
            let beside = calls
                .into_iter()
                .filter(|call| call.span.reaches(since) && are_nested(&call.dir, dir));
            spans.extend(beside.map(|call| call.span));
        }
        spans
    }

    /// Ends the calls that a process left open which is gone by now: they changed nothing of what a
    /// call changes that begins now. What such a process had started may need a moment more to end;
    /// that is too short for anybody to be told apart by.
    fn close_abandoned(&self, now: SystemTime) {
        let over = now.checked_sub(SLACK + Duration::from_millis(1));
        let over = over.unwrap_or(now);
        let mut settled = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = self.other_files().into_iter();
        let gone = gone.filter(|path| !is_old(path) && !is_alive(path));
        // Where it cannot be written, nobody can tell who changes what until the next call begins.
        let ended = gone.filter(|path| settled.contains(path) || end_abandoned(path, over));
        let ended: BTreeSet<PathBuf> = ended.collect();
        *settled = ended;
    }

    /// The files of other processes, and the calls in each.
    fn others(&self) -> Vec<(PathBuf, Vec<ForeignCall>)> {
        let files = self.other_files().into_iter();
        files
            .filter(|path| !is_old(path) || is_alive(path))
            .map(|path| (path.clone(), read(&path)))
            .collect()
    }

    fn other_files(&self) -> Vec<PathBuf> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let own = own.as_ref().map(|own| own.name.clone());
        let entries = conjure_config::fs::entries(&self.dir).unwrap_or_default();
        let files = entries.into_iter().filter(|path| {
            path.extension().is_some_and(|it| it == "calls")
                && path.file_stem().and_then(|name| name.to_str()) != own.as_deref()
        });
        files.collect()
    }

    fn append(&self, line: &str) {
        let mut slot = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = OwnCallFile::make(&self.dir);
        }
        let Some(own) = slot.as_mut() else {
            return;
        };
        if own.calls.write_all(line.as_bytes()).is_ok() {
            own.bytes += line.len() as u64;
        }
        if own.bytes > own.shorten_above {
            drop(slot);
            self.shorten();
        }
    }

    /// Takes out of the own file what was over before any call began that still runs.
    fn shorten(&self) {
        let others = self.others();
        let mut slot = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = slot.as_mut() else {
            return;
        };
        let path = self.dir.join(format!("{}.calls", own.name));
        let mut calls = read(&path);
        let running = others.iter().flat_map(|(_, calls)| calls).chain(&calls);
        let running = running.filter(|call| call.span.end.is_none());
        let first = running.map(|call| call.span.start).min();
        calls.retain(|call| first.is_some_and(|first| call.span.reaches(first)));
        let lines = calls.iter().flat_map(|call| {
            let end = call.span.end.map(|time| end_line(call.number, time));
            [
                Some(start_line(call.number, call.span.start, &call.dir)),
                end,
            ]
        });
        let text: String = lines.flatten().collect();
        if conjure_config::fs::write_atomic(&path, text.as_bytes()).is_ok()
            && let Ok(calls) = conjure_config::fs::append_to(&path)
        {
            own.calls = calls;
            own.bytes = text.len() as u64;
            // Where much of it has to stay, not each line is a reason to look again.
            own.shorten_above = LARGE.max(2 * own.bytes);
        }
    }

    /// Removes the files of processes that are gone, once nobody can ask about them.
    fn sweep(dir: &Path) {
        for path in conjure_config::fs::entries(dir).unwrap_or_default() {
            if is_old(&path) && !is_alive(&path) {
                conjure_config::fs::remove_file(&path);
            }
        }
    }
}

impl Drop for ForeignCalls {
    /// Leaves nothing behind where nobody else can ask.
    fn drop(&mut self) {
        let is_asked = self.others().iter().any(|(path, _)| is_alive(path));
        let own = self.own.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = own.take()
            && !is_asked
        {
            for kind in ["calls", "lock"] {
                conjure_config::fs::remove_file(self.dir.join(format!("{}.{kind}", own.name)));
            }
        }
    }
}

impl OwnCallFile {
    /// Nothing where it cannot be made.
    fn make(dir: &Path) -> Option<Self> {
        conjure_config::fs::create_private_dir(dir).ok()?;
        ForeignCalls::sweep(dir);
        let name = uuid::Uuid::now_v7().to_string();
        let lock = conjure_config::fs::create_new(dir.join(format!("{name}.lock"))).ok()?;
        lock.try_lock().ok()?;
        // Whoever sees this one sees the lock.
        let calls = conjure_config::fs::append_to(dir.join(format!("{name}.calls"))).ok()?;
        Some(Self {
            name,
            calls,
            bytes: 0,
            shorten_above: LARGE,
            _lock: lock,
        })
    }
}

/// Whether nobody wrote to a file for so long that nobody asks about it.
fn is_old(path: &Path) -> bool {
    let changed = path.metadata().and_then(|found| found.modified());
    changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > RETENTION))
}

/// Whether the process lives that has a file.
fn is_alive(path: &Path) -> bool {
    let lock = conjure_config::fs::open(path.with_extension("lock"));
    lock.is_ok_and(|lock| {
        matches!(
            lock.try_lock_shared(),
            Err(std::fs::TryLockError::WouldBlock)
        )
    })
}

/// Writes that the calls are over which a process left open in its file. Whether none is open then.
fn end_abandoned(path: &Path, time: SystemTime) -> bool {
    let calls = read(path);
    let open = calls.iter().filter(|call| call.span.end.is_none());
    let ends: String = open.map(|call| end_line(call.number, time)).collect();
    if ends.is_empty() {
        return true;
    }
    // The last line that is there may be cut off.
    let lines = format!("\n{ends}");
    conjure_config::fs::append_to(path)
        .and_then(|mut file| file.write_all(lines.as_bytes()))
        .is_ok()
}

/// The calls in a file. Of a process that is gone those that it left open may have run until a call
/// began that found it gone.
fn read(path: &Path) -> Vec<ForeignCall> {
    let text = conjure_config::fs::read_to_string(path).unwrap_or_default();
    let mut calls: Vec<ForeignCall> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let (Some(kind), Some(number), Some(time)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(number), Ok(nanos)) = (number.parse::<u64>(), time.parse::<u64>()) else {
            continue;
        };
        let time = UNIX_EPOCH + Duration::from_nanos(nanos);
        match (kind, words.next()) {
            ("begin", Some(dir)) => {
                if let Ok(dir) = serde_json::from_str(dir) {
                    let span = CallInterval {
                        start: time,
                        end: None,
                    };
                    calls.push(ForeignCall { number, dir, span });
                }
            }
            ("end", None) => {
                let open = calls.iter_mut().rev().find(|call| call.number == number);
                if let Some(call) = open {
                    call.span.end = Some(time);
                }
            }
            _ => {}
        }
    }
    calls
}

fn start_line(number: u64, time: SystemTime, dir: &Path) -> String {
    let dir = serde_json::Value::from(dir.to_string_lossy().into_owned());
    format!("begin {number} {} {dir}\n", nanos(time))
}

fn end_line(number: u64, time: SystemTime) -> String {
    format!("end {number} {}\n", nanos(time))
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path) -> usize {
        conjure_config::fs::entries(dir).unwrap_or_default().len()
    }

    fn bytes(dir: &tempfile::TempDir) -> u64 {
        let files = conjure_config::fs::entries(dir.path()).unwrap_or_default();
        files
            .iter()
            .filter_map(|path| conjure_config::fs::size(path).ok())
            .sum()
    }

    #[test]
    fn what_a_killed_process_left_open_is_over_for_calls_that_begin_later() {
        let dir = tempfile::tempdir().unwrap();
        let work = Path::new("/dir");
        // As a kill leaves it: a call without an end, and a lock that nobody holds.
        let start = SystemTime::now();
        std::fs::write(dir.path().join("gone.calls"), start_line(0, start, work)).unwrap();
        std::fs::write(dir.path().join("gone.lock"), "").unwrap();
        let one = ForeignCalls::new(dir.path().into());
        let beside = one.overlapping(work, start);
        assert_eq!(beside.len(), 1, "it may have run until now");
        let later = start + Duration::from_secs(60);
        one.begin(0, later, work);
        assert_eq!(one.overlapping(work, later), []);
        assert_eq!(one.overlapping(work, start).len(), 1, "it ran before");
        let another = ForeignCalls::new(dir.path().into());
        let ran = another.overlapping(work, later);
        assert_eq!(ran.len(), 1, "only the call that runs: {ran:?}");
    }

    #[test]
    fn a_call_is_over_whose_process_was_killed_while_it_wrote_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let work = Path::new("/dir");
        let start = SystemTime::now();
        let cut = format!("{}end 0", start_line(0, start, work));
        std::fs::write(dir.path().join("gone.calls"), cut).unwrap();
        std::fs::write(dir.path().join("gone.lock"), "").unwrap();
        let one = ForeignCalls::new(dir.path().into());
        assert_eq!(one.overlapping(work, start).len(), 1);
        let later = start + Duration::from_secs(60);
        one.begin(0, later, work);
        assert_eq!(one.overlapping(work, later), []);
    }

    #[test]
    fn a_file_stays_small_and_knows_what_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (
            ForeignCalls::new(dir.path().into()),
            ForeignCalls::new(dir.path().into()),
        );
        let start = SystemTime::now();
        one.begin(0, start, Path::new("/dir"));
        for number in 1..3000 {
            one.begin(number, SystemTime::now(), Path::new("/dir"));
            one.end(number, SystemTime::now());
        }
        let all = bytes(&dir);
        assert!(all > 3000 * 50, "all of it ran beside the first: {all}");
        one.end(0, SystemTime::now());
        for number in 3000..6000 {
            one.begin(number, SystemTime::now(), Path::new("/dir"));
            one.end(number, SystemTime::now());
        }
        let rest = bytes(&dir);
        assert!(rest < all, "{rest} of {all}");
        other.begin(0, SystemTime::now(), Path::new("/other"));
        let since = SystemTime::now();
        one.begin(9000, since, Path::new("/dir/deep"));
        let open = CallInterval {
            start: UNIX_EPOCH + Duration::from_nanos(nanos(since)),
            end: None,
        };
        assert_eq!(other.overlapping(Path::new("/dir"), since), [open]);
        assert_eq!(other.overlapping(Path::new("/other"), since), []);
        drop(other);
        drop(one);
        assert!(
            files(dir.path()) <= 2,
            "the last one leaves nothing of its own"
        );
    }
}
