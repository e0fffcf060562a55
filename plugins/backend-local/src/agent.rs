//! The agent's process: the program that this plugin brings along.
//!
//! The process ends with its stream, and everything that it runs with it: when it is dropped, and
//! when the host is gone, however that came about.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use conjure_exec_agent::client::{AgentLink, Feed};
use conjure_exec_agent::private::PrivatePaths;
use conjure_exec_agent_program::PROGRAM;
use conjure_process_tree::{ProcessHandle, Program};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::oneshot;

/// How long it may take to start, on a machine that is very busy.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long its exit is waited for, once its stream is over.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// How much of what it complained about is kept.
const MAX_STDERR_BYTES: u64 = 2_000;
/// Size of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// The variable by which a host knows that it is itself a command of another one.
const CALL_VARIABLE: &str = "CONJURE_CALL";

/// An agent that runs.
#[derive(Debug)]
pub(crate) struct Agent {
    link: Arc<AgentLink>,
    process: ProcessHandle,
    /// Where the system runs it from a file, it is needed for as long as the agent runs.
    _program: Program,
}

impl Agent {
    /// Starts one and waits until it serves. Its commands begin with this environment; where
    /// `private` is given they are confined, and kept from that.
    pub(crate) async fn start(
        env: &[(OsString, OsString)],
        private: Option<&PrivatePaths>,
    ) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let program = Program::new(PROGRAM)?;
        let mut command = program.command(match private {
            Some(_) => "serve-confined",
            None => "serve-unconfined",
        });
        // It makes a session of its own: in a process group of its own it could not.
        command
            .args(private.into_iter().flat_map(PrivatePaths::iter))
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::piped());
        if let Some(outer) = std::env::var_os(CALL_VARIABLE) {
            command.env(CALL_VARIABLE, outer);
        }
        let (watcher, exit) = watcher()?;
        let child = command.spawn()?;
        // Its ends of the stream are its own alone from here on.
        drop(command);
        let process = ProcessHandle::of(&child);
        let _ = watcher.send(child);
        ours.set_nonblocking(true)?;
        let (reads, writes) = UnixStream::from_std(ours)?.into_split();
        let link = AgentLink::new(Box::pin(writes), |feed| read(reads, feed, exit));
        let agent = Self {
            link: Arc::new(link),
            process,
            _program: program,
        };
        match tokio::time::timeout(START_TIMEOUT, agent.link.ready()).await {
            Ok(Ok(())) => Ok(agent),
            Ok(Err(why)) => Err(io::Error::other(why)),
            Err(_) => {
                agent.kill();
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// The stream to it.
    pub(crate) fn link(&self) -> &Arc<AgentLink> {
        &self.link
    }

    /// Ends it at once; what it runs sees to its own end.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }
}

/// A thread that takes its exit status and tells how it ended. It is there before the process, so
/// that there is never one that nobody collects.
fn watcher() -> io::Result<(Sender<Child>, oneshot::Receiver<String>)> {
    let ((started, starts), (sender, exit)) = (channel::<Child>(), oneshot::channel());
    let watcher = std::thread::Builder::new().name("local-agent".to_owned());
    watcher.spawn(move || {
        let Ok(mut child) = starts.recv() else {
            return;
        };
        let mut complaint = String::new();
        if let Some(said) = child.stderr.take() {
            let _ = said.take(MAX_STDERR_BYTES).read_to_string(&mut complaint);
        }
        let how = match child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let _ = sender.send(match complaint.trim() {
            "" => how,
            complaint => format!("{how}: {complaint}"),
        });
    })?;
    Ok((started, exit))
}

/// Hands over what it writes, to its end.
async fn read(mut reads: OwnedReadHalf, mut feed: Feed, exit: oneshot::Receiver<String>) -> String {
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        buffer.clear();
        match reads.read_buf(&mut buffer).await {
            Ok(1..) => {
                if let Err(why) = feed.take(&buffer) {
                    return why;
                }
            }
            Ok(0) | Err(_) => break,
        }
    }
    match tokio::time::timeout(EXIT_TIMEOUT, exit).await {
        Ok(Ok(how)) => how,
        _ => "its stream is over".to_owned(),
    }
}
