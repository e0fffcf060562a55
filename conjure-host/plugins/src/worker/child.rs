//! The process of a worker, started alone or below a supervisor.
//!
//! A worker that may start programs has a supervisor ([`conjure_process_tree`]): a process above it that
//! adopts what it leaves behind, so that a daemon with a session and a group of its own is found and
//! ended too, also when the host is gone. The kernel lets no other worker that is confined make a
//! process, so those are spared the second process.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use conjure_process_tree::{Start, StdinSource, Supervisor, SupervisorStatus};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;

use super::WorkerOptions;
use super::program::{ALLOCATOR, SUPERVISE, WorkerArguments};

/// Variables that every program may need. No plugin sees the others of the host; a backtrace would
/// stand where its last words are looked for.
const ENVIRONMENT: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
];

/// What the process that the host starts is called in lists of processes: a worker, or the supervisor of
/// one. A worker below a supervisor is listed by the path of its program.
const WORKER_NAME: &str = "conjure";

/// How long a supervisor has to end everything. It needs some milliseconds, and gives up itself what
/// the kernel does not let go of.
const SUPERVISOR_END_TIMEOUT: Duration = Duration::from_secs(5);

/// The host's ends of a worker's standard streams.
pub(super) struct WorkerStreams {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

/// A worker's process. What it is and has started ends when this is dropped.
pub(super) enum WorkerChild {
    /// One that starts no programs.
    Unsupervised { child: Child, group: Option<Pid> },
    /// One that may.
    Supervised(SupervisedWorker),
}

impl WorkerChild {
    /// Starts one. To be called on a runtime.
    ///
    /// # Errors
    /// The system's words.
    pub(super) fn start(
        options: &WorkerOptions,
        arguments: &WorkerArguments,
    ) -> Result<(Self, WorkerStreams), String> {
        let args = arguments.to_args()?;
        let started = match arguments.parent {
            Some(_) => start_unsupervised(options, args),
            None => SupervisedWorker::start(options, args),
        };
        started.map_err(|error| format!("{}: {error}", options.program.display()))
    }

    /// The process whose threads are the worker's.
    pub(super) fn pid(&self) -> Option<WorkerPid> {
        match self {
            Self::Unsupervised { child, .. } => child.id().map(WorkerPid::Own),
            Self::Supervised(worker) => {
                Some(WorkerPid::BelowSupervisor(worker.supervisor.0.child.id()))
            }
        }
    }

    /// Waits until the worker has ended. What it started may go on.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Unsupervised { child, .. } => child.wait().await,
            Self::Supervised(worker) => worker.wait().await,
        }
    }

    /// Ends the worker and what it has started.
    pub(super) async fn end(self) {
        match self {
            Self::Unsupervised { mut child, group } => {
                if let Err(error) = child.kill().await {
                    tracing::warn!("a worker could not be ended: {error}");
                }
                end_group(group);
            }
            Self::Supervised(worker) => worker.end().await,
        }
    }

    /// Ends what a worker has started that has ended itself.
    pub(super) async fn end_descendants(self) {
        match self {
            Self::Unsupervised { group, .. } => end_group(group),
            Self::Supervised(worker) => worker.end().await,
        }
    }
}

/// Where the process of a worker is found.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorkerPid {
    /// Number of the worker's process.
    Own(u32),
    /// Number of the supervisor, whose oldest child is the worker's process, as long as it lives.
    BelowSupervisor(u32),
}

impl WorkerPid {
    /// The process above it and all that it starts, if there is one.
    pub(super) fn supervisor(self) -> Option<u32> {
        match self {
            Self::Own(_) => None,
            Self::BelowSupervisor(supervisor) => Some(supervisor),
        }
    }

    /// Number of the worker's process, where the system says it.
    pub(super) fn process(self) -> Option<u32> {
        match self {
            Self::Own(process) => Some(process),
            Self::BelowSupervisor(supervisor) => {
                let children = format!("/proc/{supervisor}/task/{supervisor}/children");
                let children = std::fs::read_to_string(children).ok()?;
                children.split_ascii_whitespace().next()?.parse().ok()
            }
        }
    }

    /// The directory of its threads, where the system has one and says which it is.
    pub(super) fn threads(self) -> Option<PathBuf> {
        let process = self.process()?;
        Some(format!("/proc/{process}/task").into())
    }
}

/// A supervisor. One that is dropped ends everything, and is collected: else it stayed a zombie for as
/// long as the host runs.
struct CollectedSupervisor(Supervisor);

impl CollectedSupervisor {
    /// Waits in a thread of its own until it has ended.
    fn collect(&self) -> io::Result<JoinHandle<()>> {
        let pid = Pid::from_child(&self.0.child);
        let wait = move || {
            let ended = retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
            if let Err(error) = ended {
                tracing::warn!("the supervisor of a worker was not collected: {error}");
            }
        };
        thread::Builder::new()
            .name("plugin-ending".to_owned())
            .spawn(wait)
    }
}

impl Drop for CollectedSupervisor {
    fn drop(&mut self) {
        self.0.detach();
        if let Err(error) = self.collect() {
            tracing::warn!("the supervisor of a worker is not collected: {error}");
        }
    }
}

/// A worker below a supervisor.
pub(super) struct SupervisedWorker {
    supervisor: CollectedSupervisor,
    /// Readable when the supervisor has said something.
    status_stream: UnixStream,
}

impl SupervisedWorker {
    fn start(
        options: &WorkerOptions,
        args: impl IntoIterator<Item = OsString>,
    ) -> io::Result<(WorkerChild, WorkerStreams)> {
        let (theirs, input) = io::pipe()?;
        let theirs = OwnedFd::from(theirs);
        let start = Start {
            program: utf8_argument(options.program.clone().into())?,
            arguments: options
                .args
                .iter()
                .cloned()
                .chain(args)
                .map(utf8_argument)
                .collect::<io::Result<_>>()?,
            input: StdinSource::File,
            ..Start::default()
        };
        let mut command = command(options);
        command.arg(SUPERVISE);
        let supervisor = Supervisor::start(command, start, Some(&theirs))?;
        let mut supervisor = CollectedSupervisor(supervisor);
        let child = &mut supervisor.0.child;
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(missing_streams());
        };
        let streams = WorkerStreams {
            input: input.into(),
            output: output.into(),
            errors: errors.into(),
        };
        let said = std::os::unix::net::UnixStream::from(
            supervisor.0.control_stream().try_clone_to_owned()?,
        );
        said.set_nonblocking(true)?;
        let said = UnixStream::from_std(said)?;
        let worker = Self {
            supervisor,
            status_stream: said,
        };
        Ok((WorkerChild::Supervised(worker), streams))
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.wait_until(|heard| heard.exit.is_some()).await?;
        match self.supervisor.0.poll_status()?.exit {
            Some((Some(code), _)) => Ok(ExitStatus::from_raw((code & 0xff) << 8)),
            Some((None, Some(signal))) => Ok(ExitStatus::from_raw(signal)),
            _ => Err(io::Error::other("its supervisor did not see how")),
        }
    }

    async fn end(mut self) {
        self.supervisor.0.end(Duration::ZERO);
        let told = tokio::time::timeout(
            SUPERVISOR_END_TIMEOUT,
            self.wait_until(|heard| heard.all_exited),
        )
        .await;
        let is_gone = self
            .supervisor
            .0
            .poll_status()
            .is_ok_and(|heard| heard.all_exited);
        if !is_gone {
            // One that was killed could not end its program, and nobody else will.
            tracing::warn!("the supervisor of a worker did not end it: {told:?}");
            self.supervisor.0.kill_program();
        }
    }

    /// Listens until this is so, or nothing more is said.
    async fn wait_until(&mut self, is_so: impl Fn(&SupervisorStatus) -> bool) -> io::Result<()> {
        loop {
            let heard = self.supervisor.0.poll_status()?;
            if is_so(heard) || heard.all_exited || heard.supervisor_lost {
                return Ok(());
            }
            self.status_stream.readable().await?;
            // What is said from here on makes it readable again.
            let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.status_stream.try_io(Interest::READABLE, nothing);
        }
    }
}

/// A worker that the host starts itself.
fn start_unsupervised(
    options: &WorkerOptions,
    args: impl IntoIterator<Item = OsString>,
) -> io::Result<(WorkerChild, WorkerStreams)> {
    let mut command = command(options);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Signals of the host's terminal are not for it.
        .process_group(0);
    let mut command = tokio::process::Command::from(command);
    let mut child = command.kill_on_drop(true).spawn()?;
    let (Some(input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(missing_streams());
    };
    let streams = WorkerStreams {
        input: input.into_owned_fd()?,
        output: output.into_owned_fd()?,
        errors: errors.into_owned_fd()?,
    };
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    Ok((WorkerChild::Unsupervised { child, group }, streams))
}

/// The program of workers, with the environment that they have.
fn command(options: &WorkerOptions) -> Command {
    let mut command = Command::new(&options.program);
    command
        .args(&options.args)
        .env_clear()
        .envs(ENVIRONMENT.iter().filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some((name, value))
        }))
        .envs(ALLOCATOR)
        .envs(options.env.iter().map(|(name, value)| (name, value)))
        .arg0(WORKER_NAME);
    command
}

/// An argument as supervisors are told it.
fn utf8_argument(argument: OsString) -> io::Result<String> {
    let text = argument.into_string();
    text.map_err(|argument| {
        let argument = argument.display();
        io::Error::other(format!("`{argument}`, which it is given, is not UTF-8"))
    })
}

fn missing_streams() -> io::Error {
    io::Error::other("the system gave it no streams")
}

/// Ends what a worker has started. Its group is there as long as one of that is.
fn end_group(group: Option<Pid>) {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::process::test_kill_process;

    use super::*;

    #[test]
    fn a_supervisor_that_is_dropped_ends_and_is_collected() {
        // It ends when nobody is at the other end any more, as a supervisor does.
        let cat = Supervisor::start(Command::new("cat"), Start::default(), None).unwrap();
        let supervisor = CollectedSupervisor(cat);
        let pid = Pid::from_child(&supervisor.0.child);
        drop(supervisor);
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while test_kill_process(pid) != Err(Errno::SRCH) {
            assert!(std::time::Instant::now() < deadline, "it stays a zombie");
            thread::yield_now();
        }
    }
}
