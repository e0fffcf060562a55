//! A supervisor, as whoever started it sees it: started, told, and heard.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::descriptors::send_descriptors;
use crate::frame::Frames;
use crate::order::{Order, Start, StdinSource, SupervisorReport};
use crate::{Gaps, ProcessHandle};

/// What a supervisor said of its program so far.
#[derive(Debug, Default)]
pub struct SupervisorStatus {
    /// What of the confinement could not be had, once the program runs.
    pub started: Option<Gaps>,
    /// Whether the program has its input: from the start, or since it was given it.
    pub input_written: bool,
    /// The exit code or the signal of the program, once it has ended.
    pub exit: Option<(Option<i32>, Option<i32>)>,
    /// Whether no process of it is left.
    pub all_exited: bool,
    /// Whether the supervisor is gone before it said that.
    pub supervisor_lost: bool,
}

/// A supervisor. Dropping it ends what it supervises; whoever started it collects it.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) control: Arc<UnixStream>,
    reports: Frames,
    pub(crate) status: SupervisorStatus,
    pub(crate) leader: Option<ProcessHandle>,
    /// Process of the supervisor, with the program's standard output and standard error.
    pub child: Child,
}

impl Supervisor {
    /// Starts one with its program. `supervisor` is a program with the verb that runs one: the agent's
    /// `supervise`, or that of the host for its workers. `input` is the standard input of a program to which that is sent.
    ///
    /// # Errors
    /// The system's.
    pub fn start(supervisor: Command, start: Start, input: Option<&OwnedFd>) -> io::Result<Self> {
        Self::spawn(supervisor)?.begin(start, input)
    }

    /// Starts one that waits for its program.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(mut supervisor: Command) -> io::Result<Self> {
        let (control, other) = UnixStream::pair()?;
        let child = supervisor
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        // Its end of the socket is its own alone from here on.
        drop(supervisor);
        Ok(Self {
            control: Arc::new(control),
            reports: Frames::default(),
            status: SupervisorStatus::default(),
            leader: None,
            child,
        })
    }

    /// Lets one that waits start its program.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(mut self, start: Start, input: Option<&OwnedFd>) -> io::Result<Self> {
        self.status.input_written = start.input != StdinSource::Text;
        let sent = self.order(&Order::Start(start));
        let sent = sent.and_then(|()| input.map_or(Ok(()), |input| self.hand_over(input)));
        match sent {
            // One that is gone already said why, which is heard.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                let _ = self.child.kill();
                let _ = self.child.wait();
                Err(error)
            }
            _ => Ok(self),
        }
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or_default()
    }

    /// Gives the program that waits its input.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub fn write_input(&self, text: String) -> io::Result<()> {
        self.order(&Order::Input(text))
    }

    /// Lets it end everything that it has.
    pub fn end(&self, grace: Duration) {
        end(&self.control, grace);
    }

    /// Lets it end everything, and hears no more of it.
    pub fn detach(&self) {
        let _ = self.control.shutdown(Shutdown::Both);
    }

    /// Kills the program of a supervisor that is lost.
    pub fn kill_program(&self) {
        if let Some(leader) = &self.leader {
            leader.kill_group();
        }
    }

    /// The stream that it is controlled over, which is readable once there is something to hear.
    #[must_use]
    pub fn control_stream(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// What it said until now. Waits for nothing.
    ///
    /// # Errors
    /// When the program was not started: why.
    pub fn poll_status(&mut self) -> io::Result<&SupervisorStatus> {
        while !self.status.supervisor_lost && !self.status.all_exited && self.has_report() {
            self.wait_status()?;
        }
        Ok(&self.status)
    }

    /// What it said, once it said something more.
    ///
    /// # Errors
    /// When the program was not started: why.
    pub(crate) fn wait_status(&mut self) -> io::Result<&SupervisorStatus> {
        let mut bytes = [0; 1024];
        match (&*self.control).read(&mut bytes) {
            Ok(0) => self.status.supervisor_lost = true,
            Ok(length) => self.reports.push(bytes.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.status.supervisor_lost = true,
        }
        while let Some(report) =
            SupervisorReport::next(&mut self.reports).map_err(io::Error::other)?
        {
            self.take(report)?;
        }
        Ok(&self.status)
    }

    fn take(&mut self, report: SupervisorReport) -> io::Result<()> {
        match report {
            SupervisorReport::Started { gaps, leader } => {
                self.status.started = Some(gaps);
                self.leader = Pid::from_raw(leader).map(ProcessHandle::new);
            }
            SupervisorReport::StartFailed { number, text } => {
                self.status.all_exited = true;
                let kind = number.map(|number| io::Error::from_raw_os_error(number).kind());
                return Err(io::Error::new(kind.unwrap_or(ErrorKind::Other), text));
            }
            SupervisorReport::Given => self.status.input_written = true,
            SupervisorReport::Exited { exit_code, signal } => {
                self.status.exit = Some((exit_code, signal));
            }
            SupervisorReport::AllExited => self.status.all_exited = true,
        }
        Ok(())
    }

    fn has_report(&self) -> bool {
        let now = Timespec::default();
        let mut fds = [PollFd::new(&*self.control, PollFlags::IN)];
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn order(&self, order: &Order) -> io::Result<()> {
        (&*self.control).write_all(&order.encode())
    }

    /// Sends the program's standard input behind the first order.
    fn hand_over(&self, input: &OwnedFd) -> io::Result<()> {
        send_descriptors(&self.control, &[input.as_fd()])
    }
}

/// Ends everything: SIGTERM, so long to react, SIGKILL. One that is gone has nothing left, or is
/// found out to be gone by what it reports.
pub(crate) fn end(mut control: &UnixStream, grace: Duration) {
    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    let _ = control.write_all(&Order::Finish { grace_ms }.encode());
}
