//! The agent's process: the program that this plugin brings along, started from memory, so that
//! there is no file of it which a command could find or change.
//!
//! It ends with its stream, and everything that it runs with it: when it is dropped, and when the
//! host is gone, however that came about.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use conjure_exec_agent::client::{Feed, Link, in_memory};
use conjure_exec_agent::private::PrivatePaths;
use conjure_exec_agent_program::PROGRAM;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::oneshot;

/// How long it may take to start, on a machine that is very busy.
const START: Duration = Duration::from_secs(10);
/// How long its exit is waited for, once its stream is over.
const EXIT: Duration = Duration::from_millis(500);
/// How much of what it complained about is kept.
const COMPLAINT: u64 = 2_000;
/// How much is read at once.
const READ: usize = 64 * 1024;
/// The variable by which a host knows that it is itself a command of another one.
const OUTER: &str = "CONJURE_CALL";

/// An agent that runs.
#[derive(Debug)]
pub(super) struct Agent {
    link: Arc<Link>,
    /// Where the system has such a thing.
    process: Option<OwnedFd>,
}

impl Agent {
    /// Starts one and waits until it serves. Its commands begin with this environment; where
    /// `private` is given they are confined, and kept from that.
    pub(super) async fn start(
        env: &[(OsString, OsString)],
        private: Option<&PrivatePaths>,
    ) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let program = in_memory(PROGRAM)?;
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command
            .arg0("conjure-exec-agent")
            .arg(match private {
                Some(_) => "serve-confined",
                None => "serve-unconfined",
            })
            .args(private.into_iter().flat_map(PrivatePaths::iter))
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(outer) = std::env::var_os(OUTER) {
            command.env(OUTER, outer);
        }
        let child = command.spawn()?;
        // Its ends of the stream are its own alone from here on.
        drop(command);
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        let exit = watched(child)?;
        ours.set_nonblocking(true)?;
        let (reads, writes) = UnixStream::from_std(ours)?.into_split();
        let link = Link::new(Box::pin(writes), |feed| read(reads, feed, exit));
        let agent = Self {
            link: Arc::new(link),
            process,
        };
        match tokio::time::timeout(START, agent.link.ready()).await {
            Ok(Ok(())) => Ok(agent),
            Ok(Err(why)) => Err(io::Error::other(why)),
            Err(_) => {
                agent.kill();
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// The stream to it.
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Ends it at once; what it runs sees to its own end.
    pub(super) fn kill(&self) {
        if let Some(process) = &self.process {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// Takes its exit status, and tells how it ended.
fn watched(mut child: Child) -> io::Result<oneshot::Receiver<String>> {
    let (sender, exit) = oneshot::channel();
    let watcher = std::thread::Builder::new().name("local-agent".to_owned());
    watcher.spawn(move || {
        let mut complaint = String::new();
        if let Some(said) = child.stderr.take() {
            let _ = said.take(COMPLAINT).read_to_string(&mut complaint);
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
    Ok(exit)
}

/// Hands over what it writes, to its end.
async fn read(mut reads: OwnedReadHalf, mut feed: Feed, exit: oneshot::Receiver<String>) -> String {
    let mut buffer = Vec::with_capacity(READ);
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
    match tokio::time::timeout(EXIT, exit).await {
        Ok(Ok(how)) => how,
        _ => "its stream is over".to_owned(),
    }
}
