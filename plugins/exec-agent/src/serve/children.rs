//! The children of the agent: commands, and every process that lost its parent.
//!
//! One thread collects all of them, so that none stays behind as a zombie and each command's
//! status reaches its call.

use std::collections::HashMap;
use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};

use super::call::Call;
use super::lock;

/// The commands that run.
#[derive(Default)]
pub(super) struct Children {
    table: Mutex<Table>,
    started: Condvar,
}

#[derive(Default)]
struct Table {
    commands: HashMap<i32, Running>,
    /// How many were ever started.
    count: u64,
}

struct Running {
    call: Arc<Call>,
    status: Option<WaitStatus>,
}

impl Children {
    /// Starts a command. While it starts nothing is collected: a start that fails collects its
    /// own child.
    pub(super) fn spawn(&self, command: &mut Command, call: &Arc<Call>) -> io::Result<Child> {
        let mut table = lock(&self.table);
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        table.count += 1;
        table.commands.insert(
            pid,
            Running {
                call: Arc::clone(call),
                status: None,
            },
        );
        self.started.notify_all();
        Ok(child)
    }

    /// How a command ended, once it has.
    pub(super) fn status(&self, pid: i32) -> Option<WaitStatus> {
        lock(&self.table).commands.get(&pid)?.status
    }

    /// Forgets a command.
    pub(super) fn forget(&self, pid: i32) {
        lock(&self.table).commands.remove(&pid);
    }

    /// Does something unless another command runs, and lets none begin meanwhile. Whether it was
    /// done, and `act` says so.
    pub(super) fn if_alone(&self, act: impl FnOnce() -> bool) -> bool {
        let table = lock(&self.table);
        table.commands.len() <= 1 && act()
    }

    /// Whether there is no process at all below the agent.
    pub(super) fn are_none(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
    }

    /// Collects for ever.
    pub(super) fn reap(&self) {
        loop {
            let seen = lock(&self.table).count;
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => self.collect(),
                Err(Errno::CHILD) => {
                    let table = lock(&self.table);
                    let _table = self
                        .started
                        .wait_while(table, |table| table.count == seen)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Err(_) => {}
            }
        }
    }

    /// Takes note of what has ended.
    pub(super) fn collect(&self) {
        let mut table = lock(&self.table);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(running) = table.commands.get_mut(&pid.as_raw_nonzero().get()) {
                running.status = Some(status);
            }
        }
        // Somebody else's orphan may be what a call waits for.
        for running in table.commands.values() {
            running.call.wake();
        }
    }
}
