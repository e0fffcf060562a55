//! The supervisor of one command: a process between the agent and the command that adopts
//! everything which the command starts, and ends when the last of that is gone.
//!
//! It is a process of its own for each command, because adopting is a property of a whole process:
//! so what a command left behind is found by descent alone, whatever it did to its session, its
//! group, its environment or its parents, and what belongs to another command is never below it.
//! It ends everything when it is told to, when the command has ended, and when the agent is gone,
//! however that came about. It carries no output: the command writes to the agent's pipes itself.

mod confine;
mod control;
mod ending;
mod mounts;

use std::fs::OpenOptions;
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    DumpableBehavior, Pid, WaitOptions, WaitStatus, getpid, set_child_subreaper,
    set_dumpable_behavior, wait,
};

pub use confine::users_probe;
pub(crate) use control::{Confinement, Order, Report, Reports, Start};
use ending::Ender;

use crate::descendants::has_no_child;
use crate::gaps::Gaps;

/// The way back to the agent. Nobody reads it any more when the agent is gone, which is found out
/// by reading.
#[derive(Debug)]
struct Reporter(UnixStream);

impl Reporter {
    fn say(&self, reports: &[Report]) {
        let bytes: Vec<u8> = reports.iter().flat_map(Report::encode).collect();
        let _ = (&self.0).write_all(&bytes);
    }
}

/// Where the standard input of what is supervised comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFrom {
    /// It is empty, or is given with an order.
    Orders,
    /// It comes over the socket, before the first order.
    Socket,
}

/// Supervises one command. The socket to whoever started it is standard input; standard output and
/// standard error are the command's.
///
/// # Errors
/// When nothing comes that could be understood, or the system refuses a thread.
pub fn supervise(from: InputFrom) -> io::Result<ExitCode> {
    set_child_subreaper(Some(getpid()))?;
    let _ = rustix::thread::set_name(c"conjure-command");
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let mut control = UnixStream::from(control);
    let given = match from {
        InputFrom::Orders => None,
        InputFrom::Socket => Some(received(&control)?),
    };
    let start = match Order::read(&mut control)? {
        Some(Order::Start(start)) => start,
        Some(_) => return Err(io::Error::other("the first order starts nothing")),
        None => return Ok(ExitCode::SUCCESS),
    };
    let reporter = Arc::new(Reporter(control.try_clone()?));
    let (mut child, gaps) = match begin(&start, given) {
        Ok(begun) => begun,
        Err(error) => {
            reporter.say(&[Report::NotBegun {
                number: error.raw_os_error(),
                text: error.to_string(),
            }]);
            return Ok(ExitCode::FAILURE);
        }
    };
    let leader = Pid::from_child(&child);
    reporter.say(&[Report::Begun {
        gaps,
        leader: leader.as_raw_nonzero().get(),
    }]);
    let input = child.stdin.take();
    let ender = Ender::spawn(control, Arc::clone(&reporter), input)?;
    collect(leader, &reporter, &ender);
    Ok(ExitCode::SUCCESS)
}

/// The descriptor that was sent along.
fn received(control: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(control, into, &mut along, RecvFlags::CMSG_CLOEXEC)?;
    let sent = along.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    sent.ok_or_else(|| io::Error::other("no standard input was sent"))
}

/// Starts the shell, confined as far as it can be.
fn begin(start: &Start, input: Option<OwnedFd>) -> io::Result<(Child, Gaps)> {
    let mut gaps = Gaps::default();
    let mut privileges = confine::Privileges::None;
    if let Some(confinement) = &start.confinement {
        // While there is one thread: only such a process may make a user namespace.
        let (hides, has) = mounts::hide(confinement);
        gaps.files = !hides;
        privileges = has;
    }
    // Nobody below may look into it, or write to its socket.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut shell = command(start);
    if let Some(input) = input {
        shell.stdin(Stdio::from(input));
    }
    let spawned = thread::scope(|scope| {
        // A thread of its own enters the domain, and what it starts inherits that: the supervisor
        // stays outside, where the command cannot signal it.
        let confined = scope.spawn(|| -> io::Result<(Child, Gaps)> {
            if start.confinement.is_some() {
                let domain = confine::enter_domain(privileges);
                gaps.processes = domain.processes;
                gaps.signals = domain.signals;
                gaps.files |= domain.files;
            }
            Ok((shell.spawn()?, gaps))
        });
        confined.join()
    });
    let begun = spawned.map_err(|_| io::Error::other("the thread that starts it failed"))??;
    // The command's output is at its end when the command's processes have closed it.
    let nowhere = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(begun)
}

fn command(start: &Start) -> Command {
    let mut shell = Command::new(&start.shell);
    shell
        .args(&start.arguments)
        .envs(start.env.iter().map(|(name, value)| (name, value)))
        .stdin(match start.waits {
            true => Stdio::piped(),
            false => Stdio::null(),
        })
        .process_group(0);
    if let Some(dir) = &start.dir {
        shell.current_dir(dir);
    }
    shell
}

/// Collects what has ended until nothing is left, and reports the command's own end.
fn collect(leader: Pid, reporter: &Reporter, ender: &Ender) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => {
                let ended = ended(status);
                if has_no_child() {
                    reporter.say(&[ended, Report::Gone]);
                    return;
                }
                reporter.say(&[ended]);
                ender.leader_ended();
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => {
                reporter.say(&[Report::Gone]);
                return;
            }
        }
    }
}

fn ended(status: WaitStatus) -> Report {
    Report::Ended {
        exit_code: status.exit_status(),
        signal: status.terminating_signal(),
    }
}
