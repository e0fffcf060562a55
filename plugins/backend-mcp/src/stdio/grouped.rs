//! A server's process where there is no supervisor: its start, its group, its end.
//!
//! The group is ended as a whole and always: programs that a server started outlive its polite end.
//! What left its group is the guardian's. A server is confined in nothing here.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::group::Group;
use super::guardian::{Guardian, MARK};
use super::program::{Launch, Program};

/// How long a server may take to end when its input has ended, and after it was told to.
const POLITE: Duration = Duration::from_secs(1);
/// How long the rest of its group may take after it was told to.
const REST: Duration = Duration::from_millis(300);
/// How often the rest is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The pipes of a server that was started.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A server that runs. Dropping it kills its group.
#[derive(Debug)]
pub(crate) struct Process {
    program: String,
    exit: Exit,
    group: Group,
}

/// The end of a server's process. A program that it started may hold its pipes open for longer.
#[derive(Debug, Clone)]
pub(crate) struct Exit(watch::Receiver<Option<Option<ExitStatus>>>);

/// Starts a server in a process group of its own.
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
    guardian.ready().map_err(|error| {
        io::Error::other(format!(
            "no server can be started: the process that would end it after a crash of the host \
             does not run ({error}); see that /bin/sh works and that more processes may be started"
        ))
    })?;
    let mut command = Command::new(&program.file);
    command
        .args(launch.args)
        .env_clear()
        .envs(&program.env)
        .env(MARK, guardian.mark())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(dir) = launch.cwd {
        command.current_dir(dir);
    }
    let mut child = command.spawn().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{} could not be started: {error}", program.file.display()),
        )
    })?;
    let group = Group::of(&child, guardian)?;
    let pipes = match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Pipes {
            stdin,
            stdout,
            stderr,
        },
        _ => return Err(io::ErrorKind::BrokenPipe.into()),
    };
    let process = Process {
        program: program.file.display().to_string(),
        exit: Exit::of(child),
        group,
    };
    Ok((process, pipes))
}

impl Exit {
    /// Waits for it in a task of its own, so that whoever asks can stop asking.
    fn of(mut child: Child) -> Self {
        let (told, exit) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await.ok();
            told.send_replace(Some(status));
        });
        Self(exit)
    }

    /// Waits for the end; the status may be unknown.
    pub(crate) async fn wait(&mut self) -> Option<ExitStatus> {
        let ended = self.0.wait_for(Option::is_some).await;
        ended.ok().and_then(|status| (*status).flatten())
    }
}

impl Process {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.group.id()
    }

    /// The file of its program.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Its end.
    pub(crate) fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// It is confined in nothing, and nobody was promised otherwise.
    pub(crate) fn gaps(&self) -> Option<&'static str> {
        None
    }

    /// Ends it: it has a moment after the end of its input, one after SIGTERM, and then none. Its
    /// input must be closed already.
    pub(crate) async fn end(mut self) -> Option<ExitStatus> {
        let mut status = self.exited(POLITE).await;
        if status.is_none() {
            self.group.signal(Signal::TERM);
            status = self.exited(POLITE).await;
        }
        if status.is_none() {
            self.group.signal(Signal::KILL);
            status = self.exited(POLITE).await;
        }
        // Whatever it started and left.
        self.group.signal(Signal::TERM);
        let until = tokio::time::Instant::now() + REST;
        while self.group.is_anything_left() && tokio::time::Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        status
    }

    async fn exited(&mut self, within: Duration) -> Option<ExitStatus> {
        let exited = tokio::time::timeout(within, self.exit.wait()).await;
        exited.ok().flatten()
    }
}
