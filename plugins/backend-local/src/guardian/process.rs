//! The guardian's process: how it is started, told something, and reaped.
//!
//! It is a small shell script, because a library has no program of its own to start. It knows
//! nothing of why it is told what.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};

use crate::tree::MARK;

const SHELL: &str = "/bin/sh";
const SCRIPT: &str = include_str!("guardian.sh");
/// How long it may take to start, on a machine that is very busy.
const START: Duration = Duration::from_secs(10);

/// A guardian that said that it is ready. Dropping it lets it finish its work and end.
#[derive(Debug)]
pub(super) struct Process {
    /// There until it is dropped. Its standard input is the pipe.
    child: Option<Child>,
}

impl Process {
    /// Starts one and waits until no signal to the host's group can end it any more.
    pub(super) fn start(mark: &str, path: &OsStr) -> io::Result<Self> {
        let child = match spawn(Command::new("setsid").arg(SHELL), mark, path) {
            // Without that tool a group of its own has to do: no signal to the host's group
            // arrives there either.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                spawn(Command::new(SHELL).process_group(0), mark, path)?
            }
            child => child?,
        };
        let mut process = Self { child: Some(child) };
        match process.set_up() {
            Ok(()) => Ok(process),
            Err(error) => {
                process.kill();
                Err(error)
            }
        }
    }

    /// Whether it has not ended yet.
    pub(super) fn is_running(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Writes a line. Never blocks: one that does not read counts as broken.
    pub(super) fn tell(&mut self, line: &str) -> io::Result<()> {
        let child = self.child.as_mut();
        let pipe = child.and_then(|child| child.stdin.as_mut());
        // So short a line is written whole or not at all.
        pipe.ok_or(ErrorKind::BrokenPipe)?
            .write_all(line.as_bytes())
    }

    /// Ends it without letting it end anything.
    pub(super) fn kill(mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn set_up(&mut self) -> io::Result<()> {
        let child = self.child.as_mut().ok_or(ErrorKind::NotFound)?;
        if let Some(pipe) = &child.stdin {
            ioctl_fionbio(pipe, true)?;
        }
        let said = child.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
        wait_until_ready(said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        drop(child.stdin.take());
        // It ends in a moment, and somebody has to take its exit status.
        let reaper = std::thread::Builder::new().name("local-guardian".to_owned());
        let _ = reaper.spawn(move || child.wait());
    }
}

fn spawn(command: &mut Command, mark: &str, path: &OsStr) -> io::Result<Child> {
    command
        .args(["-c", SCRIPT, "conjure-guardian", mark])
        .current_dir("/")
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // A host that is itself a command of another one: the outer guardian owns this one.
    if let Some(outer) = std::env::var_os(MARK) {
        command.env(MARK, outer);
    }
    command.spawn()
}

fn wait_until_ready(mut said: ChildStdout) -> io::Result<()> {
    let deadline = Instant::now() + START;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| ErrorKind::TimedOut)?;
        match poll(&mut [PollFd::new(&said, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match said.read(&mut [0; 16])? {
        0 => Err(io::Error::other("it ended at once")),
        _ => Ok(()),
    }
}
