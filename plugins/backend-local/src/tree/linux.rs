//! The processes of a command, found through `/proc`.
//!
//! The kernel counts process numbers up and tells the last one it gave. Whatever a command
//! started has a number between the command's and that one, so after a short command only a
//! handful of numbers are looked at and the directory of all processes is not read.

use std::collections::HashSet;
use std::fs;
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
/// How many fields of `/proc/<pid>/stat` are between the group and when the process began.
const BEGAN_AFTER_GROUP: usize = 16;
/// After this time the numbers may have begun anew, and all processes are looked at.
const YOUNG: Duration = Duration::from_secs(1);

/// Processes that belong to a command and are alive.
#[derive(Debug)]
pub(super) struct Members {
    leader: Pid,
    mark: String,
    members: Vec<Member>,
    group: bool,
}

#[derive(Debug)]
struct Member {
    id: Id,
    /// Refers to this very process, also when its number is given away again.
    handle: Option<OwnedFd>,
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
        }
    }

    /// Looks for them. `age` is the time since the command was started. Who was found before
    /// stays one of them, also when it has left its parent and dropped its mark since.
    pub(super) fn look(&mut self, age: Duration) {
        let leader = self.leader.as_raw_nonzero().get();
        let mark = &self.mark;
        let processes = match numbers(leader, age) {
            Numbers::Few(range) => range.filter_map(|pid| Process::read(pid, mark)).collect(),
            Numbers::Some(range) => all(mark, |pid| range.contains(&pid)),
            Numbers::All => all(mark, |_| true),
        };
        let known: HashSet<Id> = self.members.iter().map(|member| member.id).collect();
        self.group = processes.iter().any(|process| process.group == leader);
        self.members = belonging(leader, &known, &processes)
            .filter_map(|process| Member::hold(process.id, mark))
            .collect();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether one of them is in the command's group.
    pub(super) fn has_group(&self) -> bool {
        self.group
    }

    pub(super) fn signal(&self, signal: Signal) {
        for member in &self.members {
            let _ = match &member.handle {
                Some(handle) => pidfd_send_signal(handle, signal),
                None => {
                    Pid::from_raw(member.id.pid).map_or(Ok(()), |pid| kill_process(pid, signal))
                }
            };
        }
    }

    /// Waits until all of them have ended, at most for `limit`.
    pub(super) fn wait_until_gone(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        if self.members.iter().any(|member| member.handle.is_none()) {
            // A kernel without process handles: there is nothing to wait for but time.
            std::thread::sleep(limit);
            return;
        }
        // A handle is readable from the end of its process on, so one after the other will do.
        for handle in self.members.iter().filter_map(|m| m.handle.as_ref()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else {
                return;
            };
            let mut handles = [PollFd::new(handle, PollFlags::IN)];
            let _ = poll(&mut handles, Some(&left));
        }
    }
}

impl Member {
    fn hold(id: Id, mark: &str) -> Option<Self> {
        let handle = match pidfd_open(Pid::from_raw(id.pid)?, PidfdFlags::empty()) {
            Ok(handle) => Some(handle),
            // It ended, or the number is a thread's: its process is found under its own.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return None,
            Err(_) => None,
        };
        // The handle is of whoever has the number now: is it still the same process?
        let same = Process::read(id.pid, mark)?.id == id;
        same.then_some(Self { id, handle })
    }
}

impl Process {
    fn read(pid: i32, mark: &str) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
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
            marked: is_marked(pid, mark),
        })
    }
}

/// The time as `/proc` tells when a process began: hundredths of a second since the system's
/// start. Reading the line of a process that just began takes a tenth of its life.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 100 + now.tv_nsec / 10_000_000).unwrap_or_default()
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
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
) -> impl Iterator<Item = &'p Process> + use<'p> {
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
    processes.iter().filter(move |process| {
        let pid = process.id.pid;
        found.contains(&pid) && pid > 1 && pid != own
    })
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

fn all(mark: &str, wanted: impl Fn(i32) -> bool) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| wanted(*pid))
        .filter_map(|pid| Process::read(pid, mark))
        .collect()
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
        belonging(50, &known, processes)
            .map(|process| process.id.pid)
            .collect()
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
        let process = Process::read(own, "no-such-mark").unwrap();
        assert!(!process.marked);
        assert!(process.parent > 0 || own == 1);
    }
}
