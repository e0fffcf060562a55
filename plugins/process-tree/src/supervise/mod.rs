//! The supervisor of one program: a process between the program and whoever wanted it, that adopts
//! everything which the program starts, and ends when the last of that is gone.
//!
//! The supervisor is a process of its own for each program, because adopting is a property of a whole
//! process: so what a program left behind is found by descent alone, whatever it did to its session,
//! its group, its environment or its parents, and what belongs to another one is never below it. Where
//! nothing can be adopted it has the program's process group. It ends everything when it is told to,
//! when the program has ended, and when whoever started it is gone, however that came about. It
//! carries no output: the program writes to the pipes itself.

#[cfg_attr(not(target_os = "linux"), path = "unconfined.rs")]
mod confine;
#[cfg(target_os = "linux")]
mod covers;
#[cfg(target_os = "linux")]
mod devices;
#[cfg(target_os = "linux")]
mod mounts;
mod termination;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

use confine::Confiner;
pub use confine::users_probe;
use termination::Terminator;

use crate::descriptors::receive_descriptors;
use crate::order::{Order, Start, StdinSource, SupervisorReport};
use crate::{Gaps, Tree, adopt_orphans, keep_private};

/// Supervises one program. The socket to whoever started this process is standard input; standard
/// output and standard error are the program's.
///
/// # Errors
/// When nothing comes that could be understood. Why a program could not be started is reported.
pub fn supervise() -> io::Result<ExitCode> {
    adopt_orphans()?;
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"conjure-command");
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let control = Arc::new(UnixStream::from(control));
    let start = match Order::read(&mut &*control)? {
        Some(Order::Start(start)) => start,
        Some(_) => return Err(io::Error::other("the first order starts nothing")),
        None => return Ok(ExitCode::SUCCESS),
    };
    match RunningProgram::begin(&start, &control) {
        Ok(running) => {
            running.collect(&control);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let not_begun = SupervisorReport::StartFailed {
                number: error.raw_os_error(),
                text: error.to_string(),
            };
            report(&control, &[not_begun]);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Whether a user namespace is of use to hide files from programs. `probe` is the agent's program
/// with the verb `probe`.
#[must_use]
pub fn user_namespace_helps(mut probe: Command) -> bool {
    let probe = probe.stdin(Stdio::null()).stdout(Stdio::null());
    cfg!(target_os = "linux")
        && !rustix::process::geteuid().is_root()
        && probe
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|tried| tried.success())
}

/// A program that runs.
struct RunningProgram {
    leader: Pid,
    tree: Tree,
    terminator: Terminator,
}

impl RunningProgram {
    /// Starts it, confined as far as it can be. What can fail comes before the program: after that
    /// nothing is left to fail.
    fn begin(start: &Start, control: &Arc<UnixStream>) -> io::Result<Self> {
        let input = match start.input {
            StdinSource::File => Some(received(control)?),
            StdinSource::Empty | StdinSource::Text => None,
        };
        // While there is one thread: only such a process may make a user namespace.
        let confiner = start.confinement.as_ref().map(Confiner::new);
        // Nobody below may look into it, or write to its socket.
        keep_private()?;
        let nowhere = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        let ender = Terminator::spawn(Arc::clone(control))?;
        let mut program = command(start, input, &nowhere)?;
        let (mut child, gaps) = match confiner {
            Some(confiner) => confiner.spawn(&mut program)?,
            None => (program.spawn()?, Gaps::default()),
        };
        detach_streams(&nowhere);
        let leader = Pid::from_child(&child);
        let begun = SupervisorReport::Started {
            gaps,
            leader: leader.as_raw_nonzero().get(),
        };
        report(control, &[begun]);
        let tree = Tree::of(leader);
        ender.begin(tree, child.stdin.take());
        Ok(Self {
            leader,
            tree,
            terminator: ender,
        })
    }

    /// Collects what has ended until nothing is left, and reports the program's own end.
    fn collect(self, control: &UnixStream) {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == self.leader => {
                    let ended = exit_report(status);
                    if self.tree.is_gone() {
                        return report(control, &[ended, SupervisorReport::AllExited]);
                    }
                    report(control, &[ended]);
                    self.terminator.leader_ended();
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => {
                    self.tree.wait_until_gone();
                    return report(control, &[SupervisorReport::AllExited]);
                }
            }
        }
    }
}

/// Reports. Nobody reads it any more when whoever started this process is gone, which is found out
/// by reading.
fn report(mut control: &UnixStream, reports: &[SupervisorReport]) {
    let bytes: Vec<u8> = reports.iter().flat_map(SupervisorReport::encode).collect();
    let _ = control.write_all(&bytes);
}

/// The descriptor that was sent along.
fn received(control: &UnixStream) -> io::Result<OwnedFd> {
    let (_, sent) = receive_descriptors(control, &mut [0])?;
    let sent = sent.into_iter().next();
    sent.ok_or_else(|| io::Error::other("no standard input was sent"))
}

fn command(start: &Start, input: Option<OwnedFd>, nowhere: &File) -> io::Result<Command> {
    let mut program = Command::new(&start.program);
    program
        .args(&start.arguments)
        .envs(start.env.iter().map(|(name, value)| (name, value)))
        .stdin(match (input, start.input) {
            (Some(input), _) => Stdio::from(input),
            (None, StdinSource::Text) => Stdio::piped(),
            (None, StdinSource::Empty | StdinSource::File) => Stdio::null(),
        })
        .process_group(0);
    if start.is_silent {
        program.stderr(nowhere.try_clone()?);
    }
    if let Some(dir) = &start.dir {
        program.current_dir(dir);
    }
    Ok(program)
}

/// The program's output is at its end when its own processes have closed it. Where this fails it
/// is at its end with this process.
fn detach_streams(nowhere: &File) {
    let _ = rustix::stdio::dup2_stdin(nowhere);
    let _ = rustix::stdio::dup2_stdout(nowhere);
    let _ = rustix::stdio::dup2_stderr(nowhere);
}

fn exit_report(status: WaitStatus) -> SupervisorReport {
    SupervisorReport::Exited {
        exit_code: status.exit_status(),
        signal: status.terminating_signal(),
    }
}
