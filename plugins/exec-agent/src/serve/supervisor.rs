//! A supervisor, as the agent sees it: started, told, and heard.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::gaps::Gaps;
use crate::supervise::{Order, Report, Reports, Start};

/// The program itself, wherever it came from and whatever lies there now.
const PROGRAM: &str = "/proc/self/exe";

/// What a supervisor said of its command so far.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What of the confinement could not be had, once the shell runs.
    pub(super) begun: Option<Gaps>,
    /// Whether the shell has its command: from the start, or since it was given it.
    pub(super) given: bool,
    /// The exit code or the signal of the command, once it has ended.
    pub(super) ended: Option<(Option<i32>, Option<i32>)>,
    /// Whether no process of it is left.
    pub(super) gone: bool,
    /// Whether the supervisor is gone before it said that.
    pub(super) lost: bool,
}

/// The program, to do something else than serve.
pub(super) fn program(verb: &str) -> Command {
    let mut program = Command::new(PROGRAM);
    program.arg(verb);
    program
}

/// A supervisor. Dropping it ends what it supervises.
#[derive(Debug)]
pub(super) struct Supervisor {
    pid: i32,
    control: UnixStream,
    reports: Reports,
    heard: Heard,
    /// The command's standard output and standard error.
    pub(super) child: Child,
}

impl Supervisor {
    /// Starts one with its shell.
    pub(super) fn start(start: Start) -> io::Result<Self> {
        let (control, other) = UnixStream::pair()?;
        let child = program("supervise")
            .arg0("conjure-command")
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let supervisor = Self {
            pid: i32::try_from(child.id()).unwrap_or_default(),
            control,
            reports: Reports::default(),
            heard: Heard {
                given: !start.waits,
                ..Heard::default()
            },
            child,
        };
        supervisor.order(&Order::Start(start))?;
        Ok(supervisor)
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Gives the shell that waits its text.
    pub(super) fn give(&self, text: String) -> io::Result<()> {
        self.order(&Order::Give(text))
    }

    /// Lets it end everything that it has.
    pub(super) fn end(&self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        // One that is gone has nothing left, or is found out to be gone by what it reports.
        let _ = self.order(&Order::End { grace_ms });
    }

    /// Lets it end everything, and hears no more of it.
    pub(super) fn let_go(self) {
        let _ = self.control.shutdown(Shutdown::Both);
    }

    fn order(&self, order: &Order) -> io::Result<()> {
        (&self.control).write_all(&order.encode())
    }

    /// Readable once there is something to hear.
    pub(super) fn said(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// What it said until now. Waits for nothing.
    ///
    /// # Errors
    /// When the shell was not started: why.
    pub(super) fn heard(&mut self) -> io::Result<&Heard> {
        while !self.heard.lost && !self.heard.gone && self.has_said() {
            let mut bytes = [0; 1024];
            match self.control.read(&mut bytes) {
                Ok(0) => self.heard.lost = true,
                Ok(length) => self.reports.push(bytes.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.heard.lost = true,
            }
            while let Some(report) = self.reports.next().map_err(io::Error::other)? {
                self.take(report)?;
            }
        }
        Ok(&self.heard)
    }

    fn take(&mut self, report: Report) -> io::Result<()> {
        match report {
            Report::Begun { gaps, .. } => self.heard.begun = Some(gaps),
            Report::NotBegun { number, text } => {
                self.heard.gone = true;
                return Err(match number {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::new(ErrorKind::InvalidInput, text),
                });
            }
            Report::Given => self.heard.given = true,
            Report::Ended { exit_code, signal } => self.heard.ended = Some((exit_code, signal)),
            Report::Gone => self.heard.gone = true,
        }
        Ok(())
    }

    fn has_said(&self) -> bool {
        let now = Timespec::default();
        let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}
