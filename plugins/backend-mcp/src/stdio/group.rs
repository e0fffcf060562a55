//! A process group of a program that was started, so that all of it can be ended.

use std::io;
use std::sync::Arc;

#[cfg(not(target_os = "linux"))]
use rustix::process::test_kill_process_group;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

use super::guardian::{Guarded, Guardian};

/// The group that a child leads. Dropping it kills it, and a guardian does so after the host's end.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    _guarded: Guarded,
}

impl Group {
    /// The group of a child that was started as a leader.
    pub(super) fn of(child: &Child, guardian: &Arc<Guardian>) -> io::Result<Self> {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        let leader = leader.and_then(Pid::from_raw);
        let leader = leader.ok_or_else(|| io::Error::other("it has ended already"))?;
        Ok(Self {
            leader,
            _guarded: guardian.guard(leader),
        })
    }

    /// Its leader's number.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn id(&self) -> u32 {
        self.leader.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether anybody of it is left.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn is_anything_left(&self) -> bool {
        test_kill_process_group(self.leader).is_ok()
    }

    /// Signals all of it.
    pub(super) fn signal(&self, signal: Signal) {
        // Nobody of it may be left.
        let _ = kill_process_group(self.leader, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
