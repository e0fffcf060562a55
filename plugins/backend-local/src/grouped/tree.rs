//! Ends a command with its process group.
//!
//! That is all that these systems have: what leaves the group is not found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conjure_skill_sdk::Result;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::guardian::{Guarded, Guardian};

/// How long background processes of a finished command may go on by themselves, such as the
/// `tee` of a process substitution.
const LINGER: Duration = Duration::from_millis(100);
/// How often it is looked whether a group is gone.
const TICK: Duration = Duration::from_millis(5);
/// How long a killed group may take to be gone.
const KILLED: Duration = Duration::from_secs(2);

/// A name that no other call on this machine has.
pub(super) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.unwrap_or_default().as_nanos();
    format!("{}-{nanoseconds:x}-{number}", std::process::id())
}

/// A running command and its group. Dropping it kills all of it.
#[derive(Debug)]
pub(super) struct Tree {
    leader: Pid,
    ended: bool,
    /// Dropped last: until then the guardian would end what is left.
    guarded: Option<Guarded>,
}

impl Tree {
    /// The tree of a command that was just started, in a process group of its own.
    pub(super) fn new(leader: u32) -> Option<Self> {
        Some(Self {
            leader: Pid::from_raw(i32::try_from(leader).ok()?)?,
            ended: false,
            guarded: None,
        })
    }

    /// Makes the guardian end it too, should the host be gone.
    pub(super) fn guard(&mut self, guardian: &Arc<Guardian>) -> Result<()> {
        self.guarded = Some(guardian.guard(self.leader)?);
        Ok(())
    }

    /// Ends everything: SIGTERM, `grace` to react, SIGKILL. Blocks until it is gone.
    pub(super) fn end(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        self.wait_until_gone(grace);
        self.kill();
    }

    /// Ends what a finished command left running. Costs next to nothing when there is nothing.
    pub(super) fn end_leftovers(&mut self, grace: Duration) {
        self.ended = true;
        if !self.wait_until_gone(LINGER) {
            self.end(grace);
        }
    }

    fn kill(&mut self) {
        self.ended = true;
        self.signal(Signal::KILL);
        self.wait_until_gone(KILLED);
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }

    /// Whether the group is gone, at the latest after `limit`.
    fn wait_until_gone(&self, limit: Duration) -> bool {
        let mut left = limit;
        while test_kill_process_group(self.leader).is_ok() {
            if left.is_zero() {
                return false;
            }
            let time = left.min(TICK);
            std::thread::sleep(time);
            left -= time;
        }
        true
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}
