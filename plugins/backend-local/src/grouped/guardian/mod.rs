//! The guardian: a process of its own that ends the commands when the host can no longer do so.
//!
//! One for each instance, started with the first command. It waits at a pipe whose other end only
//! the host holds, so it notices the end of the host however that came about, `SIGKILL` included,
//! and sleeps until then. It ends nothing while the host lives; that is the work of `tree`.

mod process;
mod table;

use std::ffi::OsString;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::{Error, Result};
use rustix::process::Pid;

use process::Process;
use table::Table;

/// The owner of an instance's commands after the end of the host.
///
/// Dropping it closes the pipe: the guardian ends.
#[derive(Debug)]
pub(crate) struct Guardian {
    path: OsString,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    process: Process,
    table: Table,
}

/// A command that the guardian knows of. Dropping it says that all of it is gone.
#[derive(Debug)]
pub(crate) struct Guarded {
    guardian: Arc<Guardian>,
    slot: usize,
}

impl Guardian {
    /// A guardian that is not running yet. `path` is where it finds its tools.
    pub(crate) fn new(path: OsString) -> Arc<Self> {
        Arc::new(Self {
            path,
            state: Mutex::default(),
        })
    }

    /// Makes sure that it runs. Blocks for some milliseconds when it has to be started.
    ///
    /// A command has it as its owner from [`Guardian::guard`] on, microseconds after the start.
    pub(crate) fn ready(&self) -> Result<()> {
        self.start(&mut self.state()).map_err(|error| {
            Error::new(format!(
                "no command can be started: the process that would end it after a crash of the \
                 host does not run ({error}); see that /bin/sh works and that more processes may \
                 be started"
            ))
        })
    }

    /// Hands over a command that was just started in a group of its own.
    pub(crate) fn guard(self: &Arc<Self>, leader: Pid) -> Result<Guarded> {
        let mut state = self.state();
        let taken = match state.as_mut() {
            Some(state) => state.table.take(leader),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        let slot = taken.map_err(|error| {
            Error::new(format!(
                "the command was ended at once: it could not be noted for the case that the host \
                 crashes ({error}); see that there is memory and room for temporary files"
            ))
        })?;
        Ok(Guarded {
            guardian: Arc::clone(self),
            slot,
        })
    }

    fn start(&self, state: &mut Option<State>) -> io::Result<()> {
        let start = |table: &Table| Process::start(&self.path, table.file());
        match state {
            Some(state) => {
                if !state.process.is_running() {
                    // It reads the same table, so it knows of the commands that run already.
                    state.process = start(&state.table)?;
                }
            }
            None => {
                let table = Table::new()?;
                let process = start(&table)?;
                *state = Some(State { process, table });
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(state) = self.guardian.state().as_mut() {
            state.table.free(self.slot);
        }
    }
}
