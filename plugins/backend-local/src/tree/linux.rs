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
/// After this time the numbers may have begun anew, and all processes are looked at.
const YOUNG: Duration = Duration::from_secs(1);

/// Processes that belong to a command and are alive.
#[derive(Debug)]
pub(super) struct Members {
    members: Vec<Member>,
    group: bool,
}

#[derive(Debug)]
struct Member {
    pid: Pid,
    /// Refers to this very process, also when its number is given away again.
    handle: Option<OwnedFd>,
}

/// A line of `/proc/<pid>/stat`, and the mark.
#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    marked: bool,
}

impl Members {
    /// Looks for them. `age` is the time since the command was started.
    pub(super) fn find(leader: Pid, mark: &str, age: Duration) -> Self {
        let leader = leader.as_raw_nonzero().get();
        let processes = match numbers(leader, age) {
            Numbers::Few(range) => range.filter_map(|pid| Process::read(pid, mark)).collect(),
            Numbers::Some(range) => all(mark, |pid| range.contains(&pid)),
            Numbers::All => all(mark, |_| true),
        };
        Self {
            group: processes.iter().any(|process| process.group == leader),
            members: belonging(leader, &processes)
                .filter_map(|process| Member::hold(process, mark))
                .collect(),
        }
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
                None => kill_process(member.pid, signal),
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
    fn hold(process: &Process, mark: &str) -> Option<Self> {
        let pid = Pid::from_raw(process.pid)?;
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Some(handle),
            // It ended, or the number is a thread's: its process is found under its own.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return None,
            Err(_) => None,
        };
        // The handle is of whoever has the number now: is it still the same process?
        let now = Process::read(process.pid, mark)?;
        let same = (now.parent, now.group, now.marked)
            == (process.parent, process.group, process.marked)
            || now.marked;
        same.then_some(Self { pid, handle })
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
        Some(Self {
            pid,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
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

/// Those with the mark, those in the group, and the children of both.
fn belonging(leader: i32, processes: &[Process]) -> impl Iterator<Item = &Process> {
    let mut found = HashSet::from([leader]);
    loop {
        let before = found.len();
        for process in processes {
            let belongs =
                process.marked || process.group == leader || found.contains(&process.parent);
            if belongs {
                found.insert(process.pid);
            }
        }
        if found.len() == before {
            break;
        }
    }
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    processes.iter().filter(move |process| {
        found.contains(&process.pid) && process.pid > 1 && process.pid != own
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
            pid,
            parent,
            group,
            marked,
        }
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
        let found: Vec<i32> = belonging(50, &processes).map(|p| p.pid).collect();
        assert_eq!(found, [50, 53, 51, 52, 54]);
    }

    #[test]
    fn this_process_is_readable_and_not_marked() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = Process::read(own, "no-such-mark").unwrap();
        assert!(!process.marked);
        assert!(process.parent > 0 || own == 1);
    }
}
