//! A program that runs for long under a supervisor of its own, such as a server that speaks over its
//! standard input and output, for a plugin that waits for its end in a thread.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::supervisor::end;
use crate::{Gaps, ProcessHandle, Program, Start, StdinSource, Supervisor, user_namespace_helps};

/// How much of what a supervisor complained about is told.
const MAX_STDERR_BYTES: usize = 2_000;

/// A program that was started. Dropping it ends everything that it started, at once.
#[derive(Debug)]
pub struct SupervisedProgram {
    control: Arc<UnixStream>,
    id: u32,
    gaps: Gaps,
}

/// What a program writes.
#[derive(Debug)]
pub struct Outputs {
    /// Standard output of the program.
    pub stdout: ChildStdout,
    /// Standard error of the program.
    pub stderr: ChildStderr,
}

/// Waits for the end of a program. Dropping it ends everything that is left.
#[derive(Debug)]
pub struct ProgramEnds {
    supervisor: Supervisor,
    exit_reported: bool,
}

/// A step of a program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The program has ended; the status may be unknown. What it left behind may still run.
    Exited(Option<ExitStatus>),
    /// Nothing of the program is left.
    AllExited,
}

impl SupervisedProgram {
    /// Starts a program, with an environment that is complete. Blocks until it runs. `input` is its
    /// standard input; else that is empty.
    ///
    /// # Errors
    /// The system's, also that of the program's own start, and what the supervisor says of its own.
    pub fn start<E: AsRef<OsStr>>(
        agent: &Program,
        mut start: Start,
        env: impl IntoIterator<Item = (E, E)>,
        input: Option<&OwnedFd>,
    ) -> io::Result<(Self, Outputs, ProgramEnds)> {
        if let Some(confinement) = &mut start.confinement {
            confinement.by_user_namespace = has_use_of_users(agent);
        }
        if input.is_some() {
            start.input = StdinSource::File;
        }
        let mut command = agent.command("supervise");
        command.env_clear().envs(env);
        let supervisor = Supervisor::start(command, start, input)?;
        let mut ends = ProgramEnds {
            supervisor,
            exit_reported: false,
        };
        let child = &mut ends.supervisor.child;
        let outputs = match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), Some(stderr)) => Outputs { stdout, stderr },
            _ => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        let gaps = loop {
            let heard = ends.supervisor.wait_status()?;
            match heard.started {
                Some(gaps) => break gaps,
                None if heard.supervisor_lost => return Err(ends.start_error(outputs.stderr)),
                None => {}
            }
        };
        let started = Self {
            control: Arc::clone(&ends.supervisor.control),
            id: ends.supervisor.leader.as_ref().map_or(0, ProcessHandle::id),
            gaps,
        };
        Ok((started, outputs, ends))
    }

    /// The number of the program's own process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What of the confinement this machine does not give.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        self.gaps
    }

    /// Ends everything: SIGTERM, so long to react, SIGKILL.
    pub fn end(&self, grace: Duration) {
        end(&self.control, grace);
    }
}

impl Drop for SupervisedProgram {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
        // It is not spoken to any more, and may still say that nothing is left.
        let _ = self.control.shutdown(Shutdown::Write);
    }
}

/// Whether a user namespace is of use here, which is found out once.
fn has_use_of_users(agent: &Program) -> bool {
    static IS_USEFUL: OnceLock<bool> = OnceLock::new();
    *IS_USEFUL.get_or_init(|| {
        let mut probe = agent.command("probe");
        probe.env_clear();
        user_namespace_helps(probe)
    })
}

impl ProgramEnds {
    /// Waits for what happens next; [`ProgramEnd::AllExited`] is the last.
    pub fn wait(&mut self) -> ProgramEnd {
        loop {
            let heard = &self.supervisor.status;
            if let Some((code, signal)) = heard.exit.filter(|_| !self.exit_reported) {
                self.exit_reported = true;
                let code = code.map(|code| (code & 0xff) << 8);
                return ProgramEnd::Exited(code.or(signal).map(ExitStatus::from_raw));
            }
            let (gone, lost) = (heard.all_exited, heard.supervisor_lost);
            if gone || lost || self.supervisor.wait_status().is_err() {
                if !gone {
                    // One that was killed could not end its program, and nobody else will.
                    self.supervisor.kill_program();
                }
                let _ = self.supervisor.child.wait();
                return ProgramEnd::AllExited;
            }
        }
    }

    /// Why a program did not begin whose supervisor is gone, in the supervisor's own words.
    fn start_error(&mut self, mut stderr: ChildStderr) -> io::Error {
        let how = match self.supervisor.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let mut said = vec![0; MAX_STDERR_BYTES];
        // Somebody may hold it open, and says nothing any more.
        let length = rustix::io::ioctl_fionbio(&stderr, true)
            .map_err(io::Error::from)
            .and_then(|()| stderr.read(&mut said));
        said.truncate(length.unwrap_or_default());
        let said = String::from_utf8_lossy(&said);
        let said = match said.trim() {
            "" => String::new(),
            said => format!(": {said}"),
        };
        io::Error::other(format!(
            "its supervisor ended before it began ({how}{said})"
        ))
    }
}

impl Drop for ProgramEnds {
    fn drop(&mut self) {
        let _ = self.supervisor.control.shutdown(Shutdown::Both);
        let _ = self.supervisor.child.wait();
    }
}
