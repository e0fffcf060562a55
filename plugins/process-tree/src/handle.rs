//! A process that somebody else may collect: its number is of use only while it is its own.

#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process_group};

/// A process.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    /// The number may be another one's later; this never is.
    #[cfg(target_os = "linux")]
    handle: Option<OwnedFd>,
}

impl ProcessHandle {
    /// One that runs or was not collected.
    pub(crate) fn new(pid: Pid) -> Self {
        Self {
            pid,
            #[cfg(target_os = "linux")]
            handle: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok(),
        }
    }

    /// A child, before it is waited for.
    #[must_use]
    pub fn of(child: &Child) -> Self {
        Self::new(Pid::from_child(child))
    }

    /// Number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills it, and says whether it was there.
    #[cfg(target_os = "linux")]
    pub fn kill(&self) -> bool {
        use rustix::process::pidfd_send_signal;
        let handle = self.handle.as_ref();
        handle.is_some_and(|handle| pidfd_send_signal(handle, Signal::KILL).is_ok())
    }

    /// Kills it, and says whether it was there.
    #[cfg(not(target_os = "linux"))]
    pub fn kill(&self) -> bool {
        rustix::process::kill_process(self.pid, Signal::KILL).is_ok()
    }

    /// Kills it and the group that it leads, unless it has ended.
    pub(crate) fn kill_group(&self) {
        if self.kill() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}
