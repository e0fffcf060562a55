//! Processes of this machine that run: what tells a dead one from one that is silent.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Identifies a process beyond the reuse of its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    /// The machine since it was started, and the process's view of its processes; empty where
    /// that cannot be told.
    pub(crate) machine: String,
    pub(crate) pid: i64,
    /// When it was started, in the system's measure; 0 where that cannot be told.
    pub(crate) started: i64,
}

impl ProcessIdentity {
    /// Identity of this process.
    pub(crate) fn current() -> Self {
        let pid = i64::from(std::process::id());
        Self {
            machine: machine().unwrap_or_default(),
            pid,
            started: start_time(pid).unwrap_or_default(),
        }
    }

    /// Whether it is a process of this machine that is there no more. Of another machine's nobody
    /// knows.
    pub(crate) fn is_dead(&self) -> bool {
        let here = machine();
        here.is_some_and(|here| here == self.machine)
            && self.started != 0
            && start_time(self.pid) != Some(self.started)
    }

    pub(crate) fn is_this(&self) -> bool {
        self.started != 0 && *self == Self::current()
    }
}

#[cfg(target_os = "linux")]
fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // Containers of one machine count their processes each for themselves.
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), space.display()))
}

#[cfg(target_os = "linux")]
fn start_time(pid: i64) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, also `)`; the start is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // A process that ended and was not waited for is listed still.
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok())?
}

#[cfg(not(target_os = "linux"))]
fn machine() -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn start_time(_pid: i64) -> Option<i64> {
    None
}

/// The writers of this process that are alive: one whose task ended without a word is as dead as
/// a process that did.
static LIVE_WRITERS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A writer's entry in the list of those alive.
#[derive(Debug)]
pub(crate) struct LiveWriter(String);

impl LiveWriter {
    pub(crate) fn new(writer: &str) -> Self {
        let mut writers = LIVE_WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.insert(writer.to_owned());
        Self(writer.to_owned())
    }

    pub(crate) fn is_live(writer: &str) -> bool {
        let writers = LIVE_WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.contains(writer)
    }
}

impl Drop for LiveWriter {
    fn drop(&mut self) {
        let mut writers = LIVE_WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.remove(&self.0);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_dead_and_this_one_is_not() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i64::from(child.id());
        let process = ProcessIdentity {
            pid,
            started: start_time(pid).unwrap(),
            ..ProcessIdentity::current()
        };
        assert!(!process.is_dead());
        child.kill().unwrap();
        while !process.is_dead() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(process.is_dead());
        assert!(!ProcessIdentity::current().is_dead());
        let elsewhere = ProcessIdentity {
            machine: "another".to_owned(),
            ..process
        };
        assert!(!elsewhere.is_dead());
    }
}
