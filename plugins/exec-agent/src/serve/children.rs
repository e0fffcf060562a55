//! The children of the agent: commands, and every process that lost its parent.
//!
//! One thread collects all of them, so that none stays behind as a zombie and each command's
//! status reaches its call.
//!
//! While no command runs, a shell may wait for the next one. It is there only then: no command ever
//! meets it, and none can do anything to it that the next one would find. It is started as soon as
//! the last process of a command is gone, beside whatever is still to be said about that command.

use std::collections::HashMap;
use std::io;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    /// A command was started, or the next shell has been.
    started: Condvar,
}

#[derive(Default)]
struct Table {
    commands: HashMap<i32, Running>,
    /// How many shells were ever started.
    count: u64,
    next: Next,
}

/// The shell of the next command.
#[derive(Default)]
enum Next {
    #[default]
    Unknown,
    /// What the last command had, and so the next one is likely to want.
    Wanted(Shell),
    /// It is being started; there is no other process.
    Starts,
    /// It waits; there is no other process.
    Waits(Ready),
}

struct Running {
    call: Arc<Call>,
    status: Option<WaitStatus>,
    /// Whether there was no process at all after it ended. What is there now is not of it.
    gone: bool,
}

/// Whose the processes below the agent are, as one command sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// None of them is its own.
    Others,
    /// All of them are.
    Its,
    /// Several commands run.
    Shared,
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
        let mut table = self.settled();
        let ready = table.take_waiting(|_| true);
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
                gone: false,
            },
        );
        table.next = match shell.can_wait() {
            true => Next::Wanted(shell.clone()),
            false => Next::Unknown,
        };
        self.started.notify_all();
        Ok(Started { child, pid, mark })
    }

    /// The table, once no shell is being started.
    fn settled(&self) -> MutexGuard<'_, Table> {
        self.started
            .wait_while(lock(&self.table), |table| {
                matches!(table.next, Next::Starts)
            })
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a shell wait for the next command, if one is wanted and no process is there; nobody
    /// waits for that but the next command. Whether it was tried.
    fn make_ready(&self) -> bool {
        let mut table = lock(&self.table);
        if !table.commands.values().all(|running| running.gone) || !has_no_child() {
            return false;
        }
        let wanted = match std::mem::replace(&mut table.next, Next::Starts) {
            Next::Wanted(shell) => shell,
            other => {
                table.next = other;
                return false;
            }
        };
        let mark = table.next_mark();
        drop(table);
        let ready = Ready::start(&wanted, mark);
        lock(&self.table).next = ready.map_or(Next::Unknown, Next::Waits);
        self.started.notify_all();
        true
    }

    /// Ends a shell that has waited for long.
    pub(super) fn end_old(&self) {
        let mut table = lock(&self.table);
        let ready = table.take_waiting(|ready| ready.since.elapsed() >= WAITS);
        if let Some(ready) = ready {
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

    /// Whether a command ended and nothing of it is left, as far as that was seen without looking
    /// for it.
    pub(super) fn is_gone(&self, pid: i32) -> bool {
        let table = lock(&self.table);
        table.commands.get(&pid).is_none_or(|running| running.gone)
    }

    /// Whose the processes are that are there.
    pub(super) fn whose(&self, pid: i32) -> Whose {
        lock(&self.table).whose(pid)
    }

    /// Does something if every process that is there is this command's, and lets none begin
    /// meanwhile. Whether it was done, and `act` says so.
    pub(super) fn if_alone(&self, pid: i32, act: impl FnOnce() -> bool) -> bool {
        let table = lock(&self.table);
        table.whose(pid) == Whose::Its && act()
    }

    /// Collects for ever, and has a shell ready when nothing is left to collect.
    pub(super) fn reap(&self) {
        loop {
            let seen = lock(&self.table).count;
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => self.collect(),
                Err(Errno::CHILD) if self.make_ready() => {}
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
        // Nothing is there that could be collected, but what the start collects itself.
        if matches!(table.next, Next::Starts) {
            return;
        }
        let mut collected = false;
        let left = loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Ok(None) => break true,
                Err(error) => break error != Errno::CHILD,
            };
            collected = true;
            let pid = pid.as_raw_nonzero().get();
            if let Some(running) = table.commands.get_mut(&pid) {
                running.status = Some(status);
            }
            table.take_waiting(|ready| ready.pid() == pid);
        };
        if !collected {
            return;
        }
        // Somebody else's orphan may be what a call waits for.
        for running in table.commands.values_mut() {
            running.gone |= !left && running.status.is_some();
            running.call.wake();
        }
    }
}

/// Whether there is no process at all below the agent.
fn has_no_child() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

impl Table {
    fn next_mark(&mut self) -> String {
        self.count += 1;
        self.count.to_string()
    }

    /// Takes the shell that waits, if there is such a one.
    fn take_waiting(&mut self, such: impl FnOnce(&Ready) -> bool) -> Option<Ready> {
        match std::mem::take(&mut self.next) {
            Next::Waits(ready) if such(&ready) => Some(ready),
            other => {
                self.next = other;
                None
            }
        }
    }

    fn whose(&self, pid: i32) -> Whose {
        if self.commands.get(&pid).is_none_or(|running| running.gone) {
            return Whose::Others;
        }
        let here = self.commands.values().filter(|running| !running.gone);
        match here.count() {
            1 => Whose::Its,
            _ => Whose::Shared,
        }
    }
}
