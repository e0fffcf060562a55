//! A server's process: its start under a supervisor of its own, and its end.
//!
//! The supervisor adopts whatever the server starts and ends all of it, also when the host is gone.
//! Unless its configuration says otherwise the server is kept from the host's own files, and from
//! looking into the host's processes.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conjure_exec_agent::client::{self, End, Ends, Supervised, in_memory, supervise};
use conjure_exec_agent_program::PROGRAM;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::guardian::Guardian;
use super::program::{Launch, Program};

/// How long a server may take to end when its input has ended, and after it was told to.
const POLITE: Duration = Duration::from_secs(1);
/// How long what it started may take after it was told to.
const REST: Duration = Duration::from_millis(300);
/// How long it is waited for that what was killed is gone.
const KILLED: Duration = Duration::from_secs(1);
/// The stack of a thread that waits for an end.
const STACK: usize = 128 * 1024;

/// The pipes of a server that was started.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A server that runs. Dropping it kills it and all that it started.
#[derive(Debug)]
pub(crate) struct Process {
    program: String,
    exit: Exit,
    supervised: Supervised,
}

/// The end of a server's process. A program that it started may hold its pipes open for longer.
#[derive(Debug, Clone)]
pub(crate) struct Exit(watch::Receiver<Course>);

/// How far it is with a server's end.
#[derive(Debug, Clone, Copy, Default)]
struct Course {
    /// Its process has ended, with this status if it is known.
    ended: Option<Option<ExitStatus>>,
    /// Nothing that it started is left.
    gone: bool,
}

/// Starts a server.
///
/// # Errors
/// What failed, why, and what to do.
pub(crate) async fn launch(
    launch: &Launch<'_>,
    program: &Program,
    guardian: &Arc<Guardian>,
) -> io::Result<(Process, Pipes)> {
    if let Some(dir) = launch.cwd.filter(|dir| !dir.is_dir()) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("its `cwd` {} is no directory", dir.display()),
        ));
    }
    let agent = agent().map_err(|error| {
        io::Error::other(format!(
            "no server can be started: the program that supervises them cannot be made ({error})"
        ))
    })?;
    let how = client::Launch {
        program: &program.file,
        args: launch.args,
        dir: launch.cwd,
        private: launch.confine.then(|| guardian.private()),
        visible: launch.visible.clone(),
    };
    let env = &program.env;
    // The server's program is started by a process that has to start first.
    let started = tokio::task::block_in_place(|| supervise(agent, &how, env));
    let (supervised, streams, ends) = started.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{} could not be started: {error}", program.file.display()),
        )
    })?;
    let stdin = std::process::ChildStdin::from(OwnedFd::from(streams.stdin));
    let pipes = Pipes {
        stdin: ChildStdin::from_std(stdin)?,
        stdout: ChildStdout::from_std(streams.stdout)?,
        stderr: ChildStderr::from_std(streams.stderr)?,
    };
    let process = Process {
        program: program.file.display().to_string(),
        exit: Exit::of(ends)?,
        supervised,
    };
    Ok((process, pipes))
}

/// The program of supervisors, made once.
fn agent() -> io::Result<&'static File> {
    static AGENT: OnceLock<File> = OnceLock::new();
    match AGENT.get() {
        Some(agent) => Ok(agent),
        None => {
            let made = in_memory(PROGRAM)?;
            Ok(AGENT.get_or_init(|| made))
        }
    }
}

impl Exit {
    /// Waits for it in a thread of its own, so that whoever asks can stop asking.
    fn of(mut ends: Ends) -> io::Result<Self> {
        let (told, exit) = watch::channel(Course::default());
        let waiter = std::thread::Builder::new().name("mcp-server".to_owned());
        waiter.stack_size(STACK).spawn(move || {
            loop {
                let end = ends.wait();
                told.send_modify(|course| match end {
                    End::Ended(status) => course.ended = Some(status),
                    End::Gone => {
                        course.ended.get_or_insert(None);
                        course.gone = true;
                    }
                });
                if end == End::Gone {
                    return;
                }
            }
        })?;
        Ok(Self(exit))
    }

    /// Waits for the end; the status may be unknown.
    pub(crate) async fn wait(&mut self) -> Option<ExitStatus> {
        let ended = self.0.wait_for(|course| course.ended.is_some()).await;
        ended.ok().and_then(|course| course.ended.flatten())
    }

    /// Waits until nothing is left of it and of what it started.
    async fn gone(&mut self) {
        let _ = self.0.wait_for(|course| course.gone).await;
    }
}

impl Process {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.supervised.id()
    }

    /// The file of its program.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Its end.
    pub(crate) fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// What of the server's confinement this machine does not give.
    pub(crate) fn gaps(&self) -> Option<&'static str> {
        let gaps = self.supervised.gaps();
        match (gaps.files, gaps.processes) {
            (true, true) => Some("it can read the host's own files and look into its processes"),
            (true, false) => Some("it can read the host's own files"),
            (false, true) => Some("it can look into the host's processes"),
            (false, false) => None,
        }
    }

    /// Ends it: it has a moment after the end of its input, one after SIGTERM, and then none. Its
    /// input must be closed already.
    pub(crate) async fn end(mut self) -> Option<ExitStatus> {
        let mut status = self.exited(POLITE).await;
        // Whatever it started and left has a moment, too.
        let grace = match status {
            None => POLITE,
            Some(_) => REST,
        };
        self.supervised.end(grace);
        if status.is_none() {
            status = self.exited(POLITE + KILLED).await;
        }
        let _ = tokio::time::timeout(grace + KILLED, self.exit.gone()).await;
        status
    }

    async fn exited(&mut self, within: Duration) -> Option<ExitStatus> {
        let exited = tokio::time::timeout(within, self.exit.wait()).await;
        exited.ok().flatten()
    }
}
