//! The children of the agent: commands, and every process that lost its parent.
//!
//! One thread collects all of them, so that none stays behind as a zombie and each command's
//! status reaches its call.
//!
//! While no command runs, a shell may wait for the next one. It is there only then: no command ever
//! meets it, and none can do anything to it that the next one would find.

use std::collections::HashMap;
use std::io;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};

use super::call::Call;
use super::lock;
use super::shell::{Ready, Shell};

/// How long a shell waits for a command.
const WAITS: Duration = Duration::from_secs(120);

/// The commands that run.
#[derive(Default)]
pub(super) struct Children {
    table: Mutex<Table>,
    started: Condvar,
}

#[derive(Default)]
struct Table {
    commands: HashMap<i32, Running>,
    /// How many shells were ever started.
    count: u64,
    /// A shell that waits for a command, while none runs.
    ready: Option<Ready>,
}

struct Running {
    call: Arc<Call>,
    status: Option<WaitStatus>,
}

/// A command that was started.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) pid: i32,
    /// What its environment is marked with.
    pub(super) mark: String,
}

impl Children {
    /// Starts a command, in the shell that waits for such a one or in a new one. While it starts
    /// nothing is collected: a start that fails collects its own child.
    pub(super) fn start(
        &self,
        shell: &Shell,
        command: &str,
        call: &Arc<Call>,
    ) -> io::Result<Started> {
        let mut table = lock(&self.table);
        let ready = table.ready.take();
        let given = ready.and_then(|ready| ready.give(shell, command));
        let (child, mark) = match given {
            Some(given) => given,
            None => {
                let mark = table.next_mark();
                (shell.run(command, &mark)?, mark)
            }
        };
        let pid = i32::try_from(child.id()).unwrap_or_default();
        table.commands.insert(
            pid,
            Running {
                call: Arc::clone(call),
                status: None,
            },
        );
        self.started.notify_all();
        Ok(Started { child, pid, mark })
    }

    /// Lets a shell wait for the next command, unless one runs or a shell waits.
    pub(super) fn make_ready(&self, shell: &Shell) {
        let mut table = lock(&self.table);
        if table.commands.is_empty() && table.ready.is_none() {
            let mark = table.next_mark();
            table.ready = Ready::start(shell, mark);
            self.started.notify_all();
        }
    }

    /// Ends a shell that has waited for long.
    pub(super) fn end_old(&self) {
        let mut table = lock(&self.table);
        if let Some(ready) = table.ready.take_if(|ready| ready.since.elapsed() >= WAITS) {
            ready.end();
        }
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
            let pid = pid.as_raw_nonzero().get();
            if let Some(running) = table.commands.get_mut(&pid) {
                running.status = Some(status);
            }
            table.ready.take_if(|ready| ready.pid() == pid);
        }
        // Somebody else's orphan may be what a call waits for.
        for running in table.commands.values() {
            running.call.wake();
        }
    }
}

impl Table {
    fn next_mark(&mut self) -> String {
        self.count += 1;
        self.count.to_string()
    }
}
