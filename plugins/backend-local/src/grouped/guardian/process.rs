//! The guardian's process: how it is started and reaped.
//!
//! It is a small shell script, because a library has no program of its own to start, and a copy
//! of the host that runs none cannot be had without `unsafe`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

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
    pub(super) fn start(path: &OsStr, table: &File) -> io::Result<Self> {
        let child = match spawn(Command::new("setsid").arg(SHELL), path, table) {
            // Without that tool a group of its own has to do: no signal to the host's group
            // arrives there either.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                spawn(Command::new(SHELL).process_group(0), path, table)?
            }
            child => child?,
        };
        let mut process = Self { child: Some(child) };
        process.wait_until_ready()?;
        Ok(process)
    }

    /// Whether it has not ended yet.
    pub(super) fn is_running(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let child = self.child.as_mut().ok_or(ErrorKind::NotFound)?;
        let said = child.stderr.take().ok_or(ErrorKind::BrokenPipe)?;
        let ready = wait_until_ready(said);
        if ready.is_err() {
            let _ = child.kill();
        }
        ready
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

fn spawn(command: &mut Command, path: &OsStr, table: &File) -> io::Result<Child> {
    command
        .args(["-c", SCRIPT, "conjure-guardian"])
        .current_dir("/")
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(table.try_clone()?)
        .stderr(Stdio::piped());
    command.spawn()
}

fn wait_until_ready(mut said: ChildStderr) -> io::Result<()> {
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
    let mut text = [0; 256];
    let length = said.read(&mut text)?;
    let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
    match text.trim() {
        "ready" => Ok(()),
        "" => Err(io::Error::other("it ended at once")),
        other => Err(io::Error::other(other.to_owned())),
    }
}
