//! The guardian: a process of its own that ends the commands when the host can no longer do so.
//!
//! One for each instance, started with the first command. It reads from a pipe whose other end
//! only the host holds, so it notices the end of the host however that came about, `SIGKILL`
//! included. It ends nothing while the host lives; that is the work of `tree`.

mod process;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::{Error, Result};
use rustix::process::Pid;

use process::Process;

/// The owner of an instance's commands after the end of the host.
///
/// Dropping it closes the pipe: the guardian ends, after a last look for what has the mark.
#[derive(Debug)]
pub(crate) struct Guardian {
    mark: String,
    path: OsString,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    commands: BTreeSet<Command>,
}

/// A command that the guardian was told of. Dropping it says that all of it is gone.
#[derive(Debug)]
pub(crate) struct Guarded {
    guardian: Arc<Guardian>,
    command: Command,
}

/// The leader of a group, and when it began: without that a number could mean a later process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Command {
    leader: i32,
    start: u64,
}

impl Guardian {
    /// A guardian that is not running yet. `mark` is in the environment of every command of the
    /// instance, `path` is where the guardian finds its tools.
    pub(crate) fn new(mark: String, path: OsString) -> Arc<Self> {
        Arc::new(Self {
            mark,
            path,
            state: Mutex::default(),
        })
    }

    /// What marks the commands of the instance.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Makes sure that it runs. Blocks for some milliseconds when it has to be started.
    ///
    /// From here on whatever starts with the mark in its environment has an owner where there is
    /// a `/proc`. Elsewhere that begins with [`Guardian::guard`], microseconds after the start.
    pub(crate) fn ready(&self) -> Result<()> {
        let mut state = self.state();
        if state.process.as_mut().is_some_and(Process::is_running) {
            return Ok(());
        }
        self.restart(&mut state)
    }

    /// Hands over a command that was just started in a group of its own.
    pub(crate) fn guard(self: &Arc<Self>, leader: Pid, start: u64) -> Result<Guarded> {
        let command = Command {
            leader: leader.as_raw_nonzero().get(),
            start,
        };
        let mut state = self.state();
        state.commands.insert(command);
        if state.tell('+', command).is_err()
            && let Err(error) = self.restart(&mut state)
        {
            state.commands.remove(&command);
            return Err(error);
        }
        Ok(Guarded {
            guardian: Arc::clone(self),
            command,
        })
    }

    /// Starts it, or another one in its place that knows of the same commands.
    fn restart(&self, state: &mut State) -> Result<()> {
        if let Some(old) = state.process.take() {
            old.kill();
        }
        let mut start = || {
            state.process = Some(Process::start(&self.mark, &self.path)?);
            let commands = state.commands.clone();
            commands
                .into_iter()
                .try_for_each(|command| state.tell('+', command))
        };
        start().map_err(|error: io::Error| {
            Error::new(format!(
                "no command can be started: the process that would end it after a crash of the \
                 host does not run ({error}); see that /bin/sh works and that more processes may \
                 be started"
            ))
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tell(&mut self, what: char, command: Command) -> io::Result<()> {
        let process = self.process.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        process.tell(&format!("{what} {command}\n"))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let mut state = self.guardian.state();
        state.commands.remove(&self.command);
        if state.tell('-', self.command).is_err() && !state.commands.is_empty() {
            // Others still need one. If none can be had now, the next command tries again.
            let _ = self.guardian.restart(&mut state);
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.leader, self.start)
    }
}
