//! Runs a command: start, stream, limit, end, and what it changed.
//!
//! One thread does all of it. Output is read as long as there is credit, in every phase; when the
//! call is over nothing of the command is left.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_process_tree::Supervisor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::AgentState;
use super::call::AgentCall;
use super::shell::Shell;
use crate::PIECE;
use crate::error::{AgentError, Result};
use crate::files::{DirectorySnapshot, FileChange};
use crate::frame::AgentFrame;
use crate::message::{CommandResult, Gaps, ShellCommand};

/// How long output is read after every process is gone; somebody may have been handed the pipes.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// How long a finished command waits for somebody to take its output.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long output waits for the end of its command, so that both go out at once.
const END_WAIT: Duration = Duration::from_micros(500);
/// How long a command's first output stays where it is: most commands are over by then, and are not
/// held up by somebody who reads.
const FIRST_OUTPUT_DELAY: Duration = Duration::from_millis(2);
/// How much longer than the processes have, a supervisor may take to end them.
const SUPERVISOR_MARGIN: Duration = Duration::from_secs(4);
/// How many bytes of names the reply may hold.
const MAX_NAMES_BYTES: usize = 2 * 1024 * 1024;

/// Runs a command to its end.
pub(super) fn run(
    state: &AgentState,
    call: &Arc<AgentCall>,
    shell: &Shell,
    bash: &ShellCommand,
) -> Result<CommandResult> {
    let deadline = Instant::now() + Duration::from_millis(bash.time_ms);
    let grace = Duration::from_millis(bash.grace_ms);
    let dir = bash.dir.as_ref().map(Path::new);
    let dir = dir.unwrap_or(&state.settings.working_dir);
    let before = DirectorySnapshot::take(dir);
    let end = loop {
        let supervisor = state.children.start(shell, &bash.command);
        let mut running = supervisor
            .map(|supervisor| ServedCommand::new(state, call, supervisor))
            .map_err(|error| not_started(&bash.shell, &error))?;
        state.children.make_spare();
        match running.wait_for_exit(deadline, grace) {
            // A shell that waited was ended by somebody, before it had the command.
            Ok(end) if !end.received_command && !end.timed_out && !call.cancelled() => {}
            end => break end.map_err(|error| not_started(&bash.shell, &error))?,
        }
    };
    if call.cancelled() && end.status.is_none() {
        return Err(AgentError::cancelled());
    }
    let mut changes = before.changes(dir);
    let mut room = MAX_NAMES_BYTES;
    changes.files.retain(|FileChange { path, .. }| {
        room = room.saturating_sub(path.len() + 12);
        changes.is_truncated |= room == 0;
        room > 0
    });
    // Whose supervisor was killed was killed with it.
    let killed = Signal::KILL.as_raw();
    let (exit_code, signal) = end.status.unwrap_or((None, Some(killed)));
    Ok(CommandResult {
        exit_code,
        signal,
        timed_out: end.timed_out,
        gaps: end.gaps,
        files: changes.files,
        unnamed_count: changes.unnamed_count as u64,
        is_truncated: changes.is_truncated,
    })
}

fn not_started(shell: &str, error: &io::Error) -> AgentError {
    match error.kind() {
        ErrorKind::NotFound => AgentError::new(format!(
            "the command cannot be started: there is no shell `{shell}`, or no working directory. \
             Name a shell that is there, in the configuration of this backend"
        )),
        ErrorKind::WouldBlock => AgentError::new(
            "the command cannot be started: there are too many processes; the limit is a setting",
        ),
        _ => AgentError::new(format!("the command cannot be started: {error}")),
    }
}

/// A command that the agent runs.
struct ServedCommand<'a> {
    state: &'a AgentState,
    call: &'a Arc<AgentCall>,
    supervisor: Supervisor,
    pipes: OutputPipes,
    /// Time until which output is held back: left in its pipe at first, later read and not sent.
    defer_until: Option<Instant>,
}

/// The end of a command.
struct CommandExit {
    status: Option<(Option<i32>, Option<i32>)>,
    /// Whether its shell ever had the command.
    received_command: bool,
    gaps: Gaps,
    timed_out: bool,
}

/// The phase of a running command, and until when it lasts.
#[derive(Clone, Copy)]
enum CommandPhase {
    /// The command and what it started run.
    Running,
    /// The supervisor was told to end the command, which was cancelled or out of time.
    Ending(Instant),
    /// The rest of the output.
    Draining(Instant),
}

impl<'a> ServedCommand<'a> {
    fn new(state: &'a AgentState, call: &'a Arc<AgentCall>, mut supervisor: Supervisor) -> Self {
        Self {
            state,
            call,
            pipes: OutputPipes::new(&mut supervisor.child),
            supervisor,
            defer_until: Some(Instant::now() + FIRST_OUTPUT_DELAY),
        }
    }

    /// Sees to it that nothing of the command is left.
    ///
    /// # Errors
    /// When its shell could not be started.
    fn wait_for_exit(&mut self, deadline: Instant, grace: Duration) -> io::Result<CommandExit> {
        let mut timed_out = false;
        let mut phase = CommandPhase::Running;
        loop {
            let heard = self.supervisor.poll_status()?;
            let (ended, gone, lost) = (
                heard.exit.is_some(),
                heard.all_exited,
                heard.supervisor_lost,
            );
            let now = Instant::now();
            let next = match phase {
                CommandPhase::Running | CommandPhase::Ending(_) if gone => {
                    CommandPhase::Draining(now + DRAIN_TIME)
                }
                CommandPhase::Running | CommandPhase::Ending(_) if lost => {
                    self.supervisor.kill_program();
                    self.state.children.forget(self.supervisor.pid());
                    self.state.children.end_strays();
                    CommandPhase::Draining(now + DRAIN_TIME)
                }
                CommandPhase::Running => {
                    let late = now >= deadline;
                    // One that has ended by itself is in its supervisor's hands.
                    timed_out = late && !ended;
                    if late || self.call.cancelled() {
                        self.supervisor.end(grace);
                        CommandPhase::Ending(now + grace + SUPERVISOR_MARGIN)
                    } else {
                        CommandPhase::Running
                    }
                }
                CommandPhase::Ending(until) if now >= until => {
                    // It was stopped: nothing that it says is waited for.
                    self.supervisor.kill_program();
                    self.state.children.kill(self.supervisor.pid());
                    CommandPhase::Draining(now + DRAIN_TIME)
                }
                CommandPhase::Draining(until) => {
                    if self.pipes.are_closed() || now >= until {
                        let heard = self.supervisor.poll_status()?;
                        if heard.supervisor_lost && heard.started.is_none() && heard.input_written {
                            let why = "what supervises it ended before it began";
                            return Err(io::Error::other(why));
                        }
                        return Ok(CommandExit {
                            status: heard.exit,
                            received_command: heard.input_written,
                            gaps: heard.started.unwrap_or_default(),
                            timed_out,
                        });
                    }
                    phase
                }
                waiting @ CommandPhase::Ending(_) => waiting,
            };
            let until = match next {
                CommandPhase::Running => deadline,
                CommandPhase::Ending(until) | CommandPhase::Draining(until) => until,
            };
            let drains = |phase| matches!(phase, CommandPhase::Draining(_));
            let entered = drains(next) && !drains(phase);
            phase = next;
            // A command that is over has often closed its pipes already, and then nothing comes.
            if entered && self.pipes.are_closed() {
                continue;
            }
            let read = self.wait(until.saturating_duration_since(now), drains(phase));
            if let CommandPhase::Draining(until) = &mut phase {
                if read {
                    *until = Instant::now() + DRAIN_TIME;
                } else if self.call.credit() == 0 && !self.call.cancelled() {
                    *until = (*until).max(now + OUTPUT_TIMEOUT);
                }
            }
        }
    }

    /// Waits for output, for the supervisor, for somebody to wake the call, or for time to pass, and
    /// sends what came. Says whether anything did.
    fn wait(&mut self, time: Duration, drains: bool) -> bool {
        let credit = self.call.credit();
        let before = self.pipes.open.len();
        let now = Instant::now();
        let time = match self.defer_until {
            Some(until) => time.min(until.saturating_duration_since(now)),
            None => time,
        };
        let ready = {
            // Where nothing is said any more the same is asked twice.
            let said = match drains {
                true => self.call.wake_fd(),
                false => self.supervisor.control_stream(),
            };
            let own = [self.call.wake_fd(), said];
            let own = own.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let mut fds = Vec::from(own);
            // While output is held nobody needs to hear that there is more, or no more: the end of
            // the command is what is waited for, and then the rest is read at once.
            let held = self.defer_until.is_some() && !drains;
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
        let read = self.pipes.read(pipes, credit, self.call);
        let now = Instant::now();
        if read > 0 {
            self.defer_until.get_or_insert(now + END_WAIT);
        }
        // Where a whole piece came more is to come, and soon.
        if read >= PIECE || self.defer_until.is_some_and(|until| now >= until) {
            self.defer_until = None;
            self.call.release();
        }
        read > 0 || before > self.pipes.open.len()
    }
}

/// The pipes of a command's output.
struct OutputPipes {
    open: Vec<(bool, Box<dyn ReadPipe>)>,
    buffer: Vec<u8>,
}

trait ReadPipe: Read + AsFd {}

impl<T: Read + AsFd> ReadPipe for T {}

impl OutputPipes {
    fn new(child: &mut Child) -> Self {
        let mut open: Vec<(bool, Box<dyn ReadPipe>)> = Vec::new();
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
    fn read(&mut self, ready: &[bool], mut credit: usize, call: &AgentCall) -> usize {
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
                        true => AgentFrame::Stderr(bytes),
                        false => AgentFrame::Stdout(bytes),
                    };
                    call.defer(frame, length);
                    credit -= length;
                    true
                }
                Err(error) => error.kind() == ErrorKind::Interrupted,
            }
        });
        had - credit
    }
}
