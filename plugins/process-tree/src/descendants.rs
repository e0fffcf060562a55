//! The processes below this one, as the kernel counts them.
//!
//! A process that adopts orphans keeps everything that it ever started below itself, whatever that
//! does to its session, group, environment or parents. So what is found here is complete, and what
//! is below nobody else is touched.

use std::collections::HashSet;
use std::fs;

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

use crate::has_no_child;

/// What is below a supervisor: everything, whoever led it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree;

impl Tree {
    /// What is below the supervisor of this program, which is this process.
    pub(crate) fn of(_leader: Pid) -> Self {
        Self
    }

    /// Signals all of it, and says whether there was any.
    pub(crate) fn signal(self, signal: Signal) -> bool {
        signal_all(signal) > 0
    }

    /// Whether nobody is left of it.
    pub(crate) fn is_gone(self) -> bool {
        has_no_child()
    }

    /// Waits until nobody is left of it: for a process without children there is nothing to wait for.
    pub(crate) fn wait_until_gone(self) {}
}

/// A process and its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
}

/// Signals everything below this process, and says how many that were.
pub fn signal_all(signal: Signal) -> usize {
    signal_all_but(signal, |_| false)
}

/// Like [`signal_all`], without some of this process's own children and what is below them.
pub fn signal_all_but(signal: Signal, spared: impl Fn(i32) -> bool) -> usize {
    let own = own();
    let mut found = 0;
    let mut waiting = vec![own];
    let mut seen = HashSet::from([own]);
    while let Some(parent) = waiting.pop() {
        for pid in children(parent) {
            if (parent == own && spared(pid)) || !seen.insert(pid) {
                continue;
            }
            found += 1;
            // What it began before it got the signal is looked for in any case.
            waiting.push(pid);
            send(Process { pid, parent }, own, signal);
        }
    }
    found
}

/// Everything below a process, as far as it is there while this looks.
pub(crate) fn below(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut waiting = vec![root];
    let mut seen = HashSet::from([root]);
    while let Some(parent) = waiting.pop() {
        let new = children(parent).into_iter().filter(|pid| seen.insert(*pid));
        let before = found.len();
        found.extend(new);
        waiting.extend(found.iter().skip(before));
    }
    found
}

fn own() -> i32 {
    getpid().as_raw_nonzero().get()
}

fn send(process: Process, own: i32, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return;
    };
    // The number of an own child is its own until it is collected.
    if process.parent == own {
        let _ = kill_process(pid, signal);
        return;
    }
    // The handle is of whoever has the number now, and stays with that one: its parent tells
    // whether it is who was found.
    if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) {
        let parent = parent(process.pid);
        if parent == Some(process.parent) || parent == Some(own) {
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

/// The living children of a process.
fn children(pid: i32) -> Vec<i32> {
    listed_children(pid).unwrap_or_else(|| search_children(pid))
}

/// As the kernel lists them, for each thread; nothing where it was built without that list.
fn listed_children(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        // It is gone, and its children are somebody else's.
        return Some(children);
    };
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                let numbers = list.split_ascii_whitespace();
                children.extend(numbers.filter_map(|number| number.parse::<i32>().ok()));
            }
            Err(_) if thread.path().join("stat").exists() => return None,
            Err(_) => {}
        }
    }
    Some(children)
}

/// Finds the children by the parents of all processes.
fn search_children(parent_pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid| parent(*pid) == Some(parent_pid))
        .collect()
}

/// The parent of a process that lives.
fn parent(pid: i32) -> Option<i32> {
    parse_parent(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Nothing for a process that has ended.
fn parse_parent(stat: &[u8]) -> Option<i32> {
    // The name in parentheses may hold anything, also parentheses and blanks.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_is_no_obstacle() {
        let stat = b"7 (a) b) (c) S 4 5 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(parse_parent(stat), Some(4));
        assert_eq!(parse_parent(b"7 (x) Z 4 5 6"), None);
    }

    #[test]
    fn both_ways_find_the_same_children() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(search_children(own()).contains(&pid));
        if let Some(listed) = listed_children(own()) {
            assert!(listed.contains(&pid));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!search_children(own()).contains(&pid));
    }
}
