//! The children of the agent: a supervisor for each command, and whatever is left of one whose
//! supervisor was killed.
//!
//! One thread collects all of them, so that none stays behind as a zombie.
//!
//! While no command runs, a supervisor with its shell may wait for the next one. It is there only
//! then: no command ever meets it, and none can do anything to it that the next one would find. It
//! is started as soon as the last process of a command is gone, beside whatever is still to be said
//! about that command.

use std::collections::HashSet;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conjure_process_tree::{Supervisor, has_no_child, signal_all_but};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, wait, waitid,
};

use super::lock;
use super::shell::{Ready, Shell};

/// How long a shell waits for a command.
const IDLE_SHELL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long what a lost supervisor left behind is killed, at most.
const STRAYS_TIMEOUT: Duration = Duration::from_secs(2);

/// The supervisors.
#[derive(Default)]
pub(super) struct Children {
    table: Mutex<ChildTable>,
    /// A command was started, or the next shell has been.
    started: Condvar,
}

#[derive(Default)]
struct ChildTable {
    supervisors: HashSet<i32>,
    /// How many supervisors were ever started.
    count: u64,
    next: NextShell,
}

/// The shell of the next command.
#[derive(Default)]
enum NextShell {
    #[default]
    Unknown,
    /// What the last command had, and so the next one is likely to want.
    Wanted(Shell),
    /// It is being started; there is no other process.
    Starts,
    /// It waits; there is no other process.
    Waits(Ready),
}

impl Children {
    /// Starts a command, in the shell that waits for such a one or in a new one. While it starts
    /// nothing is collected: a start that fails collects its own child.
    pub(super) fn start(&self, shell: &Shell, command: &str) -> io::Result<Supervisor> {
        let mut table = self.lock_settled();
        let ready = table.take_waiting(|_| true);
        let given = ready.and_then(|ready| ready.give(shell, command));
        let supervisor = match given {
            Some(supervisor) => supervisor,
            None => {
                table.count += 1;
                shell.run(command)?
            }
        };
        table.supervisors.insert(supervisor.pid());
        if shell.can_wait() {
            table.next = NextShell::Wanted(shell.clone());
        }
        self.started.notify_all();
        Ok(supervisor)
    }

    /// The table, once no shell is being started.
    fn lock_settled(&self) -> MutexGuard<'_, ChildTable> {
        self.started
            .wait_while(lock(&self.table), |table| {
                matches!(table.next, NextShell::Starts)
            })
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a shell wait for the next command, if one is wanted and no process is there; nobody
    /// waits for that but the next command. Whether it was tried.
    fn make_ready(&self) -> bool {
        let mut table = lock(&self.table);
        if !table.supervisors.is_empty() || !has_no_child() {
            return false;
        }
        let wanted = match std::mem::replace(&mut table.next, NextShell::Starts) {
            NextShell::Wanted(shell) => shell,
            other => {
                table.next = other;
                return false;
            }
        };
        table.count += 1;
        drop(table);
        let ready = Ready::start(&wanted);
        lock(&self.table).next = ready.map_or(NextShell::Unknown, NextShell::Waits);
        self.started.notify_all();
        true
    }

    /// Ends a shell that has waited for long.
    pub(super) fn end_old(&self) {
        let mut table = lock(&self.table);
        let ready = table.take_waiting(|ready| ready.since.elapsed() >= IDLE_SHELL_TIMEOUT);
        if let Some(ready) = ready {
            ready.end();
        }
    }

    /// Kills what a supervisor left behind that was itself killed: whatever is here without one.
    /// No command begins meanwhile.
    pub(super) fn end_strays(&self) {
        let table = self.lock_settled();
        let waiting = match &table.next {
            NextShell::Waits(ready) => Some(ready.pid()),
            _ => None,
        };
        let spared = |pid| table.supervisors.contains(&pid) || waiting == Some(pid);
        let deadline = Instant::now() + STRAYS_TIMEOUT;
        while signal_all_but(Signal::KILL, spared) > 0 && Instant::now() < deadline {
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            std::thread::yield_now();
        }
    }

    /// Kills a supervisor that does nothing any more, with all that it has.
    pub(super) fn kill(&self, pid: i32) {
        let mut table = lock(&self.table);
        // One that was collected already is none any more.
        if table.supervisors.remove(&pid)
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
        drop(table);
        self.end_strays();
    }

    /// Forgets a supervisor that is over.
    pub(super) fn forget(&self, pid: i32) {
        lock(&self.table).supervisors.remove(&pid);
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

    /// Takes what has ended.
    fn collect(&self) {
        let mut table = lock(&self.table);
        // Nothing is there that could be collected, but what the start collects itself.
        if matches!(table.next, NextShell::Starts) {
            return;
        }
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            table.supervisors.remove(&pid);
            table.take_waiting(|ready| ready.pid() == pid);
        }
    }
}

impl ChildTable {
    /// Takes the shell that waits, if there is such a one.
    fn take_waiting(&mut self, such: impl FnOnce(&Ready) -> bool) -> Option<Ready> {
        match std::mem::take(&mut self.next) {
            NextShell::Waits(ready) if such(&ready) => Some(ready),
            other => {
                self.next = other;
                None
            }
        }
    }
}
