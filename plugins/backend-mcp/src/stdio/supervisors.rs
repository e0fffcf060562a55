//! How an instance starts programs, servers and login shells: each under a supervisor of its own,
//! which adopts whatever the program starts and ends all of it, also when the host is gone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};

use conjure_exec_agent::private::PrivatePaths;
use conjure_exec_agent_program::PROGRAM;
use conjure_process_tree::{Outputs, Program, ProgramEnd, ProgramEnds, Start, SupervisedProgram};
use tokio::sync::watch;

/// The stack of a thread that waits for an end.
const STACK_BYTES: usize = 128 * 1024;

/// What an instance starts programs with.
#[derive(Debug)]
pub(crate) struct Supervisors {
    /// What of the host no confined program sees.
    private: PrivatePaths,
    /// The program of supervisors, made with the first one.
    program: OnceLock<Program>,
}

/// A program under supervision. Dropping it kills it and all that it started.
#[derive(Debug)]
pub(super) struct SupervisedProcess {
    pub(super) supervised: SupervisedProgram,
    pub(super) exit: ProcessExit,
}

/// The end of a program. What it started may hold its pipes open for longer.
#[derive(Debug, Clone)]
pub(crate) struct ProcessExit(watch::Receiver<ExitProgress>);

/// How far the end of a program has come.
#[derive(Debug, Clone, Copy, Default)]
struct ExitProgress {
    /// Status with which the program's process has ended, if it is known; `None` while it runs.
    exit_status: Option<Option<ExitStatus>>,
    /// Whether all processes that the server started are gone.
    is_gone: bool,
}

impl Supervisors {
    /// With what of the host is kept from programs that are confined.
    pub(crate) fn new(private: PrivatePaths) -> Arc<Self> {
        Arc::new(Self {
            private,
            program: OnceLock::new(),
        })
    }

    /// What of the host no confined program sees.
    pub(super) fn hidden_paths(&self) -> Vec<String> {
        let paths = self.private.iter();
        paths
            .map(|path| path.to_string_lossy().into_owned())
            .collect()
    }

    /// Starts a program with an environment that is complete. `input` is its standard input.
    ///
    /// # Errors
    /// What failed, and why.
    pub(super) async fn start(
        self: &Arc<Self>,
        start: Start,
        env: BTreeMap<OsString, OsString>,
        input: Option<OwnedFd>,
    ) -> io::Result<(SupervisedProcess, Outputs)> {
        let supervisors = Arc::clone(self);
        // The program is started by a process that has to start first.
        let started = tokio::task::spawn_blocking(move || {
            let agent = supervisors.program().map_err(|error| {
                let why = format!("the program that supervises it cannot be made ({error})");
                io::Error::other(why)
            })?;
            let started = SupervisedProgram::start(agent, start, env, input.as_ref())?;
            let (supervised, outputs, ends) = started;
            let exit = ProcessExit::of(ends)?;
            Ok((SupervisedProcess { supervised, exit }, outputs))
        });
        started.await.map_err(io::Error::other)?
    }

    fn program(&self) -> io::Result<&Program> {
        match self.program.get() {
            Some(program) => Ok(program),
            None => {
                let made = Program::new(PROGRAM)?;
                Ok(self.program.get_or_init(|| made))
            }
        }
    }
}

impl ProcessExit {
    /// Waits for it in a thread of its own, so that whoever asks can stop asking.
    fn of(mut ends: ProgramEnds) -> io::Result<Self> {
        let (told, exit) = watch::channel(ExitProgress::default());
        let waiter = std::thread::Builder::new().name("mcp-process".to_owned());
        waiter.stack_size(STACK_BYTES).spawn(move || {
            loop {
                let end = ends.wait();
                told.send_modify(|course| match end {
                    ProgramEnd::Exited(status) => course.exit_status = Some(status),
                    ProgramEnd::AllExited => {
                        course.exit_status.get_or_insert(None);
                        course.is_gone = true;
                    }
                });
                if end == ProgramEnd::AllExited {
                    return;
                }
            }
        })?;
        Ok(Self(exit))
    }

    /// Waits for the end; the status may be unknown.
    pub(crate) async fn wait(&mut self) -> Option<ExitStatus> {
        let ended = self.0.wait_for(|course| course.exit_status.is_some()).await;
        ended.ok().and_then(|course| course.exit_status.flatten())
    }

    /// Waits until nothing is left of it and of what it started.
    pub(super) async fn until_exited(&mut self) {
        let _ = self.0.wait_for(|course| course.is_gone).await;
    }
}
