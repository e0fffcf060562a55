//! The processes of a command, found through `/proc`.
//!
//! The kernel counts process numbers up and tells the last one it gave. Whatever a command
//! started has a number between the command's and that one, so after a short command only a
//! handful of numbers are looked at and the directory of all processes is not read.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

use super::MARK;

/// Up to how many numbers are tried one by one.
const FEW: i32 = 256;
/// How long to wait before somebody is looked at again that could not be.
const AGAIN: Duration = Duration::from_millis(10);
/// How many fields of `/proc/<pid>/stat` are between the group and when the process began.
const BEGAN_AFTER_GROUP: usize = 16;
/// After this time the numbers may have begun anew, and all processes are looked at.
const YOUNG: Duration = Duration::from_secs(1);

/// Processes that belong to a command and are alive.
#[derive(Debug)]
pub(super) struct Members {
    leader: Pid,
    mark: String,
    members: Vec<Id>,
    group: bool,
    /// Whether somebody could not be looked at, such as by a host without free descriptors.
    unsure: bool,
}

/// A process. The number alone may be given away again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Id {
    pid: i32,
    /// When it began. A process keeps it over `exec`, `setsid` and the death of its parent.
    began: u64,
}

/// A line of `/proc/<pid>/stat`, and the mark.
#[derive(Debug, Clone, Copy)]
struct Process {
    id: Id,
    parent: i32,
    group: i32,
    marked: bool,
}

impl Members {
    /// Nobody yet.
    pub(super) fn of(leader: Pid, mark: String) -> Self {
        Self {
            leader,
            mark,
            members: Vec::new(),
            group: false,
            unsure: false,
        }
    }

    /// Looks for them. `age` is the time since the command was started. Who was found before
    /// stays one of them, also when it has left its parent and dropped its mark since.
    pub(super) fn look(&mut self, age: Duration) {
        let leader = self.leader.as_raw_nonzero().get();
        let mut found = Found::default();
        match numbers(leader, age) {
            Numbers::Few(range) => range.for_each(|pid| found.read(pid, &self.mark)),
            Numbers::Some(range) => found.read_all(&self.mark, |pid| range.contains(&pid)),
            Numbers::All => found.read_all(&self.mark, |_| true),
        }
        let known: HashSet<Id> = self.members.drain(..).collect();
        self.group = found.processes.iter().any(|one| one.group == leader);
        self.unsure = found.unsure;
        self.members = belonging(leader, &known, &found.processes).collect();
        if found.unsure {
            let seen: HashSet<i32> = found.processes.iter().map(|one| one.id.pid).collect();
            let missed = known.iter().filter(|id| !seen.contains(&id.pid));
            self.members.extend(missed.copied());
        }
    }

    /// Whether it is certain that there is nobody.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && !self.unsure
    }

    /// Whether one of them is in the command's group.
    pub(super) fn has_group(&self) -> bool {
        self.group
    }

    pub(super) fn signal(&self, signal: Signal) {
        for id in &self.members {
            let _ = match id.hold(&self.mark) {
                Held::This(handle) => pidfd_send_signal(handle, signal),
                Held::Gone => Ok(()),
                Held::Unknown => match Pid::from_raw(id.pid) {
                    Some(pid) => kill_process(pid, signal),
                    None => Ok(()),
                },
            };
        }
    }

    /// Waits until all of them have ended, at most for `limit`.
    pub(super) fn wait_until_gone(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        if self.unsure {
            std::thread::sleep(left().min(AGAIN));
        }
        // A handle is readable from the end of its process on, so one after the other will do.
        for id in &self.members {
            match id.hold(&self.mark) {
                Held::This(handle) => {
                    let Ok(left) = Timespec::try_from(left()) else {
                        return;
                    };
                    let mut handles = [PollFd::new(&handle, PollFlags::IN)];
                    let _ = poll(&mut handles, Some(&left));
                }
                Held::Gone => {}
                // There is nothing to wait for but time.
                Held::Unknown => std::thread::sleep(left().min(AGAIN)),
            }
        }
    }
}

/// A handle of a process.
enum Held {
    /// Refers to this very process, also when its number is given away again.
    This(OwnedFd),
    Gone,
    /// The kernel has no such handles, or the host no free descriptor.
    Unknown,
}

impl Id {
    fn hold(self, mark: &str) -> Held {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Held::Gone;
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // It ended, or the number is a thread's: its process is found under its own.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Held::Gone,
            Err(_) => return Held::Unknown,
        };
        // The handle is of whoever has the number now: is it still the same process?
        match Process::read(self.pid, mark) {
            Ok(Some(process)) if process.id == self => Held::This(handle),
            Ok(_) => Held::Gone,
            Err(_) => Held::Unknown,
        }
    }
}

/// The processes of one look.
#[derive(Default)]
struct Found {
    processes: Vec<Process>,
    unsure: bool,
}

impl Found {
    fn read(&mut self, pid: i32, mark: &str) {
        match Process::read(pid, mark) {
            Ok(process) => self.processes.extend(process),
            Err(_) => self.unsure = true,
        }
    }

    fn read_all(&mut self, mark: &str, wanted: impl Fn(i32) -> bool) {
        let Ok(entries) = fs::read_dir("/proc") else {
            self.unsure = true;
            return;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.unsure = true;
                continue;
            };
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(pid) = pid.filter(|pid| wanted(*pid)) {
                self.read(pid, mark);
            }
        }
    }
}

impl Process {
    /// The process with this number; nothing when there is none or it is a zombie.
    ///
    /// # Errors
    /// When it could not be looked at, so that it is not known whether there is one.
    fn read(pid: i32, mark: &str) -> io::Result<Option<Self>> {
        let Some(stat) = content(pid, "stat")? else {
            return Ok(None);
        };
        let Some(mut process) = Self::parse(pid, &stat) else {
            return Ok(None);
        };
        process.marked = content(pid, "environ")?.is_some_and(|text| is_marked(&text, mark));
        Ok(Some(process))
    }

    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        // The name in parentheses may hold anything, also parentheses and blanks.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X" | "x") {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let began = fields.nth(BEGAN_AFTER_GROUP)?.parse().ok()?;
        Some(Self {
            id: Id { pid, began },
            parent,
            group,
            marked: false,
        })
    }
}

/// A file of a process; nothing when the process is gone or keeps the file to itself.
fn content(pid: i32, name: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(format!("/proc/{pid}/{name}")) {
        Ok(content) => Ok(Some(content)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
            _ => Ok(None),
        },
    }
}

/// The time as `/proc` tells when a process began: hundredths of a second since the system's
/// start. Reading the line of a process that just began takes a tenth of its life.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 100 + now.tv_nsec / 10_000_000).unwrap_or_default()
}

fn is_marked(environment: &[u8], mark: &str) -> bool {
    environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
        .any(|marks| {
            marks
                .split(|byte| *byte == b'/')
                .any(|m| m == mark.as_bytes())
        })
}

/// Those with the mark, those in the group, those that are known, and the children of all.
fn belonging<'p>(
    leader: i32,
    known: &HashSet<Id>,
    processes: &'p [Process],
) -> impl Iterator<Item = Id> + use<'p> {
    let mut found = HashSet::from([leader]);
    loop {
        let before = found.len();
        for process in processes {
            let belongs = process.marked
                || process.group == leader
                || known.contains(&process.id)
                || found.contains(&process.parent);
            if belongs {
                found.insert(process.id.pid);
            }
        }
        if found.len() == before {
            break;
        }
    }
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let belongs = move |id: &Id| found.contains(&id.pid) && id.pid > 1 && id.pid != own;
    processes.iter().map(|process| process.id).filter(belongs)
}

enum Numbers {
    Few(RangeInclusive<i32>),
    Some(RangeInclusive<i32>),
    All,
}

fn numbers(leader: i32, age: Duration) -> Numbers {
    if age > YOUNG {
        return Numbers::All;
    }
    match last_number() {
        Some(last) if last < leader => Numbers::All,
        Some(last) if last - leader <= FEW => Numbers::Few(leader..=last),
        Some(last) => Numbers::Some(leader..=last),
        None => Numbers::All,
    }
}

/// The number of the process that was started last, the fifth field of `/proc/loadavg`.
fn last_number() -> Option<i32> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32, marked: bool) -> Process {
        Process {
            id: Id { pid, began: 7 },
            parent,
            group,
            marked,
        }
    }

    fn found(known: &[Id], processes: &[Process]) -> Vec<i32> {
        let known = known.iter().copied().collect();
        belonging(50, &known, processes).map(|id| id.pid).collect()
    }

    #[test]
    fn group_mark_and_descent_make_a_member() {
        let processes = [
            process(50, 10, 50, true),
            process(53, 52, 53, false),
            process(51, 1, 50, false),
            process(52, 50, 52, false),
            process(54, 1, 54, true),
            process(55, 1, 55, false),
            process(1, 0, 1, false),
        ];
        assert_eq!(found(&[], &processes), [50, 53, 51, 52, 54]);
    }

    #[test]
    fn who_was_found_once_stays_a_member_with_its_children() {
        let processes = [
            process(52, 1, 52, false),
            process(53, 52, 53, false),
            process(55, 1, 55, false),
        ];
        let known = Id { pid: 52, began: 7 };
        assert_eq!(found(&[known], &processes), [52, 53]);
        let given_away = Id { pid: 52, began: 6 };
        assert!(found(&[given_away], &processes).is_empty());
    }

    #[test]
    fn this_process_is_readable_and_not_marked() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = Process::read(own, "no-such-mark").unwrap().unwrap();
        assert!(!process.marked);
        assert!(process.parent > 0 || own == 1);
    }
}
