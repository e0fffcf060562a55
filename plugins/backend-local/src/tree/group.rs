//! The process group alone, where the system has no way to find who left it.

use std::time::Duration;

use rustix::process::{Pid, Signal, test_kill_process_group};

/// The group, as long as somebody is in it.
#[derive(Debug)]
pub(super) struct Members {
    leader: Pid,
    alive: bool,
}

impl Members {
    /// Nobody yet.
    pub(super) fn of(leader: Pid, _mark: String) -> Self {
        Self {
            leader,
            alive: false,
        }
    }

    /// Looks for them.
    pub(super) fn look(&mut self, _age: Duration) {
        self.alive = test_kill_process_group(self.leader).is_ok();
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.alive
    }

    pub(super) fn has_group(&self) -> bool {
        self.alive
    }

    /// The group is signalled as a whole, by its number.
    pub(super) fn signal(&self, _signal: Signal) {}

    /// There is no handle that could be waited for.
    pub(super) fn wait_until_gone(&self, limit: Duration) {
        if self.alive {
            std::thread::sleep(limit);
        }
    }
}

/// Nothing cheap tells when a process began, so there is nothing to compare it with.
pub(super) fn now() -> u64 {
    0
}
