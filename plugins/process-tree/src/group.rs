//! What is below a supervisor where the system lets nobody adopt orphans: the process group of its
//! program. What leaves that is not found.

use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How often it is looked whether a group is gone.
const TICK: Duration = Duration::from_millis(5);

/// A program that leads a group, and what it started in that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree(Pid);

impl Tree {
    /// What is below the supervisor of this program.
    pub(crate) fn of(leader: Pid) -> Self {
        Self(leader)
    }

    /// Signals all of it, and says whether there was any.
    pub(crate) fn signal(self, signal: Signal) -> bool {
        kill_process_group(self.0, signal).is_ok()
    }

    /// Whether nobody is left of it.
    pub(crate) fn is_gone(self) -> bool {
        test_kill_process_group(self.0).is_err()
    }

    /// Waits until nobody is left of it.
    pub(crate) fn wait_until_gone(self) {
        while !self.is_gone() {
            thread::sleep(TICK);
        }
    }
}

/// Signals everything that this process has adopted: nothing here. Its supervisors end what they
/// have when they hear no more of this process.
#[cfg(not(target_os = "linux"))]
pub fn signal_all(_signal: Signal) -> usize {
    0
}

/// Like [`signal_all`], without some of this process's own children.
#[cfg(not(target_os = "linux"))]
pub fn signal_all_but(_signal: Signal, _spared: impl Fn(i32) -> bool) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_group_is_there_until_the_last_of_it_is_gone() {
        let mut leader = Command::new("/bin/sh")
            .args(["-c", "sleep 1000 & echo started"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let tree = Tree::of(Pid::from_child(&leader));
        let mut said = String::new();
        let mut output = BufReader::new(leader.stdout.take().unwrap());
        output.read_line(&mut said).unwrap();
        assert_eq!(said, "started\n");
        assert!(leader.wait().unwrap().success());
        // The leader is gone, and what it started is not.
        assert!(tree.signal(Signal::TERM));
        tree.wait_until_gone();
        assert!(!tree.signal(Signal::KILL));
    }
}
