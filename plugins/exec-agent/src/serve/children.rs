//! The children of the agent: a supervisor for each command, and whatever is left of one whose
//! supervisor was killed.
//!
//! One thread collects all of them, so that none stays behind as a zombie.
//!
//! While no command runs, a supervisor with its shell may wait for the next one. It is there only
//! then: no command ever meets it, and none can do anything to it that the next one would find. It
//! is started as soon as the last process of a command is gone, beside whatever is still to be said
//! about that command.
//!
//! Where all commands are of one session, a supervisor for it, the spare one, is started without a
//! shell before that, while the command runs: then it takes no time between two of them. What a command could do to
//! it, such as to stop it or to limit it, it could do to the agent as well.

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
use super::shell::{Shell, WaitingShell, spare_supervisor};

/// How long a shell waits for a command.
const IDLE_SHELL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long what a lost supervisor left behind is killed, at most.
const STRAYS_TIMEOUT: Duration = Duration::from_secs(2);

/// The supervisors.
#[derive(Default)]
pub(super) struct Children {
    /// Whether there are spare supervisors.
    has_spares: bool,
    table: Mutex<ChildTable>,
    /// A command was started, or the next shell or its supervisor has been.
    started: Condvar,
}

#[derive(Default)]
struct ChildTable {
    supervisors: HashSet<i32>,
    /// Supervisors that were let go, until they are collected. They have nothing that a command started.
    ending: HashSet<i32>,
    /// Whether something may be here without a supervisor. Then it takes more to know that nothing is
    /// left of a command, and none waits beside one.
    has_strays: bool,
    /// How many supervisors were ever started.
    count: u64,
    next: NextShell,
    spare: SpareSupervisor,
}

/// The supervisor of the next shell, which is started while a command runs.
#[derive(Default)]
enum SpareSupervisor {
    #[default]
    None,
    /// The supervisor is being started.
    Starting,
    /// The supervisor waits; whatever else is here has one.
    Ready(Supervisor),
}

/// The shell of the next command.
#[derive(Default)]
enum NextShell {
    #[default]
    Unknown,
    /// What the last command had, and so the next one is likely to want.
    Requested(Shell),
    /// The shell is being started; there is no other process.
    Starts,
    /// The shell waits; there is no other process.
    Waiting(WaitingShell),
}

impl Children {
    /// No children yet. `has_spares` allows a spare supervisor while commands run.
    pub(super) fn new(has_spares: bool) -> Self {
        Self {
            has_spares,
            ..Self::default()
        }
    }

    /// Starts a command, in the shell that waits for such a one or in a new one. While it starts
    /// nothing is collected: a start that fails collects its own child.
    pub(super) fn start(&self, shell: &Shell, command: &str) -> io::Result<Supervisor> {
        let mut table = self.lock_after(ChildTable::starts_shell);
        let ready = table.take_waiting(|_| true);
        let given = ready.and_then(|ready| {
            let pid = ready.pid();
            let given = ready.run_command(shell, command);
            if given.is_none() {
                table.ending.insert(pid);
            }
            given
        });
        let supervisor = match given {
            Some(supervisor) => supervisor,
            None => {
                table.count += 1;
                shell.run(command)?
            }
        };
        table.supervisors.insert(supervisor.pid());
        if shell.can_wait() {
            table.next = NextShell::Requested(shell.clone());
        }
        self.started.notify_all();
        Ok(supervisor)
    }

    /// The table, once this is so no longer.
    fn lock_after(&self, is_so: impl Fn(&ChildTable) -> bool) -> MutexGuard<'_, ChildTable> {
        self.started
            .wait_while(lock(&self.table), |table| is_so(table))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the spare supervisor, of the shell that will be wanted when the commands are over which
    /// run.
    pub(super) fn make_spare(&self) {
        let mut table = lock(&self.table);
        let is_wanted = matches!(table.next, NextShell::Requested(_));
        let has_one = !matches!(table.spare, SpareSupervisor::None);
        if !self.has_spares || !is_wanted || has_one || table.has_strays {
            return;
        }
        table.spare = SpareSupervisor::Starting;
        table.count += 1;
        drop(table);
        let spare = spare_supervisor();
        let mut table = lock(&self.table);
        table.spare = spare.map_or(SpareSupervisor::None, SpareSupervisor::Ready);
        if table.has_strays {
            table.end_spare();
        }
        self.started.notify_all();
    }

    /// Lets a shell wait for the next command, if one is wanted and no process is there; nobody
    /// waits for that but the next command. Whether it was tried.
    fn prepare_shell(&self) -> bool {
        let mut table = self.lock_after(ChildTable::starts_spare);
        if !table.supervisors.is_empty() || !table.has_no_leftovers() {
            return false;
        }
        let wanted = match std::mem::replace(&mut table.next, NextShell::Starts) {
            NextShell::Requested(shell) => shell,
            other => {
                table.next = other;
                return false;
            }
        };
        table.count += 1;
        let spare = table.wake_spare();
        drop(table);
        let ready = WaitingShell::start(&wanted, spare);
        lock(&self.table).next = ready.map_or(NextShell::Unknown, NextShell::Waiting);
        self.started.notify_all();
        true
    }

    /// Ends a shell that has waited for long.
    pub(super) fn end_old(&self) {
        let mut table = lock(&self.table);
        let ready = table.take_waiting(|ready| ready.since.elapsed() >= IDLE_SHELL_TIMEOUT);
        if let Some(ready) = ready {
            table.ending.insert(ready.pid());
            ready.end();
        }
    }

    /// Kills what a supervisor left behind that was itself killed: whatever is here without one.
    /// No command begins meanwhile.
    pub(super) fn end_strays(&self) {
        let mut table = self.lock_after(|table| table.starts_shell() || table.starts_spare());
        let deadline = Instant::now() + STRAYS_TIMEOUT;
        while table.kill_strays() > 0 && Instant::now() < deadline {
            table.collect();
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
        table.suspect_strays();
        drop(table);
        self.end_strays();
    }

    /// Forgets a supervisor that is lost.
    pub(super) fn forget(&self, pid: i32) {
        let mut table = lock(&self.table);
        table.supervisors.remove(&pid);
        table.suspect_strays();
    }

    /// Collects for ever, and has a shell ready when nothing is left to collect.
    pub(super) fn reap(&self) {
        loop {
            let seen = lock(&self.table).count;
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => {
                    self.collect();
                    self.prepare_shell();
                }
                Err(Errno::CHILD) if self.prepare_shell() => {}
                Err(Errno::CHILD) => {
                    drop(self.lock_after(|table| table.count == seen));
                }
                Err(_) => {}
            }
        }
    }

    /// Takes what has ended.
    fn collect(&self) {
        let mut table = self.lock_after(ChildTable::starts_spare);
        // Nothing is there that could be collected, but what the start collects itself.
        if !table.starts_shell() {
            table.collect();
        }
    }
}

impl ChildTable {
    /// Whether the next shell is being started.
    fn starts_shell(&self) -> bool {
        matches!(self.next, NextShell::Starts)
    }

    /// Whether its supervisor is being started, while a command runs.
    fn starts_spare(&self) -> bool {
        matches!(self.spare, SpareSupervisor::Starting)
    }

    /// Takes what has ended.
    fn collect(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.note_end(pid.as_raw_nonzero().get(), status.exit_status());
        }
    }

    /// Records the end of a process, with its exit code where no signal ended it.
    fn note_end(&mut self, pid: i32, exit_code: Option<i32>) {
        if self.spare_pid() == Some(pid) {
            self.spare = SpareSupervisor::None;
            return;
        }
        if self.ending.remove(&pid) {
            return;
        }
        let is_supervisor = self.supervisors.remove(&pid);
        let is_known = is_supervisor || self.take_waiting(|ready| ready.pid() == pid).is_some();
        // A supervisor that has ended otherwise may have left something, which is what else ends here.
        if !is_known || exit_code != Some(0) {
            self.suspect_strays();
        }
    }

    /// Something may be here without a supervisor.
    fn suspect_strays(&mut self) {
        self.has_strays = true;
        self.end_spare();
    }

    /// Whether everything is gone that supervisors had which are over.
    fn has_no_leftovers(&mut self) -> bool {
        if matches!(self.spare, SpareSupervisor::Ready(_)) && self.ending.is_empty() {
            return true;
        }
        let is_nothing_left = has_no_child();
        self.has_strays &= !is_nothing_left;
        is_nothing_left
    }

    /// Kills what has no supervisor, and says how much that was.
    fn kill_strays(&self) -> usize {
        let waiting = match &self.next {
            NextShell::Waiting(ready) => Some(ready.pid()),
            _ => None,
        };
        let spared = |pid| {
            let waits = waiting == Some(pid) || self.spare_pid() == Some(pid);
            waits || self.supervisors.contains(&pid)
        };
        signal_all_but(Signal::KILL, spared)
    }

    fn spare_pid(&self) -> Option<i32> {
        match &self.spare {
            SpareSupervisor::Ready(spare) => Some(spare.pid()),
            _ => None,
        }
    }

    /// Takes the spare supervisor, if there is one.
    fn take_spare(&mut self) -> Option<Supervisor> {
        match std::mem::take(&mut self.spare) {
            SpareSupervisor::Ready(spare) => Some(spare),
            other => {
                self.spare = other;
                None
            }
        }
    }

    /// Takes the spare supervisor, if it lives. One that a command stopped goes on.
    fn wake_spare(&mut self) -> Option<Supervisor> {
        let mut spare = self.take_spare()?;
        signal(&spare, Signal::CONT);
        if spare
            .poll_status()
            .is_ok_and(|heard| !heard.supervisor_lost)
        {
            return Some(spare);
        }
        self.ending.insert(spare.pid());
        None
    }

    /// Ends the spare supervisor.
    fn end_spare(&mut self) {
        if let Some(spare) = self.take_spare() {
            // It has nothing yet, and may have been stopped.
            signal(&spare, Signal::KILL);
            self.ending.insert(spare.pid());
        }
    }

    /// Takes the shell that waits, if there is such a one.
    fn take_waiting(&mut self, such: impl FnOnce(&WaitingShell) -> bool) -> Option<WaitingShell> {
        match std::mem::take(&mut self.next) {
            NextShell::Waiting(ready) if such(&ready) => Some(ready),
            other => {
                self.next = other;
                None
            }
        }
    }
}

/// Sends a signal to a supervisor that was not collected.
fn signal(supervisor: &Supervisor, signal: Signal) {
    if let Some(pid) = Pid::from_raw(supervisor.pid()) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_supervisor_that_ended_as_it_should_has_left_nothing() {
        for (known, exit_code, is_suspected) in [
            ("supervisor", Some(0), false),
            ("supervisor", Some(1), true),
            ("supervisor", None, true),
            ("let go", Some(0), false),
            ("let go", None, false),
            ("unknown", Some(0), true),
            ("unknown", None, true),
        ] {
            let mut table = ChildTable::default();
            match known {
                "supervisor" => _ = table.supervisors.insert(7),
                "let go" => _ = table.ending.insert(7),
                _ => {}
            }
            table.note_end(7, exit_code);
            assert_eq!(table.has_strays, is_suspected, "{known}: {exit_code:?}");
            assert!(table.supervisors.is_empty() && table.ending.is_empty());
        }
    }

    #[test]
    fn a_spare_supervisor_goes_with_the_suspicion_that_something_is_left() {
        let spare = Supervisor::spawn(Command::new("cat")).unwrap();
        let pid = spare.pid();
        let mut table = ChildTable {
            spare: SpareSupervisor::Ready(spare),
            ..ChildTable::default()
        };
        assert!(table.has_no_leftovers());
        table.suspect_strays();
        assert!(matches!(table.spare, SpareSupervisor::None) && table.ending.contains(&pid));
        assert!(!table.has_no_leftovers(), "it is not collected yet");
    }
}
