//! Runs a command: start, stream, limit, end, and what it changed.
//!
//! One thread does all of it. Output is read as long as there is credit, in every phase; when the
//! call is over nothing of the command is left.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitStatus, pidfd_open};

use super::World;
use super::call::Call;
use super::children::Started;
use super::shell::Shell;
use super::tree::Tree;
use crate::PIECE;
use crate::error::{Error, Result};
use crate::files::{Change, Snapshot};
use crate::frame::Frame;
use crate::message::{Bash, Ended};

/// How long background processes of a finished command may go on by themselves, such as the
/// `tee` of a process substitution.
const LINGER: Duration = Duration::from_millis(100);
/// How often processes are looked for that end unseen.
const TICK: Duration = Duration::from_millis(10);
/// How often the rest is killed, for what forks faster than it is found.
const PASSES: u32 = 200;
/// How long output is read after every process that was found is gone.
const DRAIN: Duration = Duration::from_millis(200);
/// How long a finished command waits for somebody to take its output.
const TAKEN: Duration = Duration::from_secs(10);
/// How long output waits for the end of its command, so that both go out at once.
const TOGETHER: Duration = Duration::from_micros(500);
/// How long a command's first output stays where it is: most commands are over by then, and are not
/// held up by somebody who reads.
const AT_FIRST: Duration = Duration::from_millis(2);
/// How many bytes of names the reply may hold.
const NAMES: usize = 2 * 1024 * 1024;

/// Runs a command to its end.
pub(super) fn run(world: &World, call: &Arc<Call>, shell: &Shell, bash: &Bash) -> Result<Ended> {
    let deadline = Instant::now() + Duration::from_millis(bash.time_ms);
    let grace = Duration::from_millis(bash.grace_ms);
    let dir = &world.place.working_dir;
    let before = Snapshot::take(dir);
    let Started { child, pid, mark } = world
        .children
        .start(shell, &bash.command, call)
        .map_err(|error| not_started(&bash.shell, &error))?;
    let mut running = Running {
        world,
        call,
        pid,
        tree: Tree::new(pid, &mark),
        pipes: Pipes::new(child),
        status: None,
        ended: Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
        held: Some(Instant::now() + AT_FIRST),
    };
    let timed_out = running.see_to_its_end(deadline, grace);
    let status = running.status;
    drop(running);
    if call.cancelled() && status.is_none() {
        return Err(Error::cancelled());
    }
    let mut changes = before.changes(dir);
    let mut room = NAMES;
    changes.files.retain(|Change { path, .. }| {
        room = room.saturating_sub(path.len() + 12);
        changes.cut |= room == 0;
        room > 0
    });
    Ok(Ended {
        exit_code: status.and_then(WaitStatus::exit_status),
        signal: status.and_then(WaitStatus::terminating_signal),
        timed_out,
        files: changes.files,
        unnamed: changes.unnamed as u64,
        cut: changes.cut,
    })
}

fn not_started(shell: &str, error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidInput => Error::invalid("the command holds a NUL byte"),
        ErrorKind::NotFound => Error::new(format!(
            "the command cannot be started: there is no shell `{shell}` or no working directory. \
             Use an image with a shell, or name the shell that it has"
        )),
        ErrorKind::WouldBlock => Error::new(
            "the command cannot be started: there are too many processes; the limit is a setting",
        ),
        _ => Error::new(format!("the command cannot be started: {error}")),
    }
}

/// A command that runs.
struct Running<'a> {
    world: &'a World,
    call: &'a Arc<Call>,
    pid: i32,
    tree: Tree,
    pipes: Pipes,
    status: Option<WaitStatus>,
    /// Readable once the command ended, where the system has such a thing; else whoever collects
    /// it wakes the call.
    ended: Option<OwnedFd>,
    /// Until when output is held back: left in its pipe at first, later read and not sent.
    held: Option<Instant>,
}

/// What is being waited for, and until when.
#[derive(Clone, Copy)]
enum Phase {
    /// The command's own end.
    Runs,
    /// Processes that it left behind and that may end by themselves.
    Lingers(Instant),
    /// Processes that were asked to end.
    Asked(Instant),
    /// Processes that were killed, so many times.
    Killed(u32),
    /// The rest of the output.
    Drains(Instant),
}

impl Running<'_> {
    /// Gives back whether the time was over.
    fn see_to_its_end(&mut self, deadline: Instant, grace: Duration) -> bool {
        let mut timed_out = false;
        let mut phase = Phase::Runs;
        loop {
            if self.status.is_none() {
                self.status = self.world.children.status(self.pid);
            }
            let now = Instant::now();
            let next = match phase {
                Phase::Runs if self.status.is_some() => match self.is_gone() {
                    true => Phase::Drains(now + DRAIN),
                    false => Phase::Lingers(now + LINGER),
                },
                Phase::Runs => {
                    timed_out = now >= deadline;
                    if timed_out || self.call.cancelled() {
                        self.signal(Signal::TERM);
                        Phase::Asked(now + grace)
                    } else {
                        Phase::Runs
                    }
                }
                Phase::Lingers(_) | Phase::Asked(_) | Phase::Killed(_) if self.is_gone() => {
                    Phase::Drains(now + DRAIN)
                }
                Phase::Lingers(until) if now >= until => {
                    self.signal(Signal::TERM);
                    Phase::Asked(now + grace)
                }
                Phase::Asked(until) if now >= until => {
                    self.signal(Signal::KILL);
                    Phase::Killed(1)
                }
                Phase::Killed(PASSES) => Phase::Drains(now + DRAIN),
                Phase::Killed(pass) => {
                    self.signal(Signal::KILL);
                    Phase::Killed(pass + 1)
                }
                Phase::Drains(until) => {
                    let over = self.pipes.are_closed() && self.status.is_some();
                    if over || now >= until {
                        return timed_out;
                    }
                    phase
                }
                waiting => waiting,
            };
            let until = match next {
                Phase::Runs => deadline,
                Phase::Lingers(until) | Phase::Asked(until) => until.min(now + TICK),
                Phase::Killed(_) => now + TICK,
                Phase::Drains(until) => until,
            };
            let drains = |phase| matches!(phase, Phase::Drains(_));
            let entered = drains(next) && !drains(phase);
            phase = next;
            // A command that is over has often closed its pipes already, and then nothing comes.
            if entered && self.pipes.are_closed() {
                continue;
            }
            let read = self.wait(until.saturating_duration_since(now));
            if let Phase::Drains(until) = &mut phase {
                if read {
                    *until = Instant::now() + DRAIN;
                } else if self.call.credit() == 0 && !self.call.cancelled() {
                    *until = (*until).max(now + TAKEN);
                }
            }
        }
    }

    fn is_gone(&mut self) -> bool {
        let children = &self.world.children;
        children.is_gone(self.pid) || self.tree.is_gone(children)
    }

    fn signal(&mut self, signal: Signal) {
        self.tree.signal(signal, &self.world.children);
    }

    /// Waits for output, for somebody to wake the call, or for time to pass, and sends what came.
    /// Says whether anything did.
    fn wait(&mut self, time: Duration) -> bool {
        let credit = self.call.credit();
        let before = self.pipes.open.len();
        let now = Instant::now();
        let time = match self.held {
            Some(until) => time.min(until.saturating_duration_since(now)),
            None => time,
        };
        let ready = {
            let ended = self.ended.as_ref().filter(|_| self.status.is_none());
            // Where there is none the same is asked twice.
            let ended = ended.map_or(self.call.woken(), AsFd::as_fd);
            let own = [self.call.woken(), ended];
            let own = own.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let mut fds = Vec::from(own);
            // While output is held nobody needs to hear that there is more, or no more: the end of
            // the command is what is waited for, and then the rest is read at once.
            let held = self.held.is_some() && self.status.is_none();
            if credit > 0 && !held {
                fds.extend(self.pipes.fds());
            }
            // Rounded up, so that a rest of a microsecond does not become a busy loop.
            let time = Timespec::try_from(time + Duration::from_micros(100)).ok();
            if poll(&mut fds, time.as_ref()).is_err() {
                return false;
            }
            fds.iter()
                .map(|fd| !fd.revents().is_empty())
                .collect::<Vec<_>>()
        };
        let (own, pipes) = ready.split_at_checked(2).unwrap_or_default();
        if own.first() == Some(&true) {
            self.call.sleep_again();
        }
        if own.get(1) == Some(&true) && self.status.is_none() {
            self.world.children.collect();
        }
        let read = self.pipes.read(pipes, credit, self.call);
        let now = Instant::now();
        if read > 0 {
            self.held.get_or_insert(now + TOGETHER);
        }
        // Where a whole piece came more is to come, and soon.
        if read >= PIECE || self.held.is_some_and(|until| now >= until) {
            self.held = None;
            self.call.release();
        }
        read > 0 || before > self.pipes.open.len()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.world.children.forget(self.pid);
    }
}

/// The command's output.
struct Pipes {
    open: Vec<(bool, Box<dyn Pipe>)>,
    buffer: Vec<u8>,
}

trait Pipe: Read + AsFd {}

impl<T: Read + AsFd> Pipe for T {}

impl Pipes {
    fn new(mut child: Child) -> Self {
        let mut open: Vec<(bool, Box<dyn Pipe>)> = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            open.push((false, Box::new(stdout)));
        }
        if let Some(stderr) = child.stderr.take() {
            open.push((true, Box::new(stderr)));
        }
        Self {
            open,
            buffer: vec![0; PIECE],
        }
    }

    fn are_closed(&self) -> bool {
        self.open.is_empty()
    }

    fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let fds = self.open.iter().map(|(_, pipe)| pipe.as_fd());
        fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }

    /// Reads a piece of each pipe that is ready, as far as there is credit, and says how many bytes
    /// came.
    fn read(&mut self, ready: &[bool], mut credit: usize, call: &Call) -> usize {
        let had = credit;
        let mut ready = ready.iter();
        let buffer = &mut self.buffer;
        self.open.retain_mut(|(is_error, pipe)| {
            let room = buffer.get_mut(..credit.min(PIECE)).unwrap_or_default();
            if ready.next() != Some(&true) || room.is_empty() {
                return true;
            }
            match pipe.read(room) {
                Ok(0) => false,
                Ok(length) => {
                    let bytes = room.get(..length).unwrap_or_default().to_vec();
                    let frame = match is_error {
                        true => Frame::Stderr(bytes),
                        false => Frame::Stdout(bytes),
                    };
                    call.hold(frame, length);
                    credit -= length;
                    true
                }
                Err(error) => error.kind() == ErrorKind::Interrupted,
            }
        });
        had - credit
    }
}
