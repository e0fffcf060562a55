//! The agent's own side of the stream: takes calls in, runs each on a thread of its own for
//! as long as it lasts, and ends with the stream.
//!
//! Whoever reads a call carries it out, and another thread reads on: a call begins without a change
//! of thread.
//!
//! Each command has a supervisor, which adopts what the command starts; what is left of one that
//! was killed the agent adopts itself, so that nothing gets away. When the stream ends, or nothing
//! came for too long, it ends all of them and itself; as the first process of a container it takes
//! the container with it.

mod call;
mod children;
mod command;
#[cfg(target_os = "linux")]
mod hold;
mod shell;
mod stream;
mod transfer;
mod workers;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use conjure_process_tree::{
    Confinement, Sandbox, adopt_orphans, has_no_child, keep_private, own_program, signal_all,
    user_namespace_helps,
};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

use crate::error::{AgentError, AgentErrorKind, Result};
use crate::files::{CallRoots, DirectoryLocation, str_replace, view};
use crate::frame::AgentFrame;
use crate::message::{AgentReply, AgentRequest, ShellCommand};
use call::{AgentCall, FrameOutput};
use children::Children;
#[cfg(target_os = "linux")]
pub use hold::{hold, release_on_drop};
use shell::Shell;
use stream::FrameInput;
use workers::Workers;

/// How long everything may be killed at the end of the stream.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks that everything has ended by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The stack of a call's thread; nothing here is deep.
const STACK_BYTES: usize = 256 * 1024;

/// The settings of the agent.
#[derive(Debug)]
pub struct AgentSettings {
    /// The directory in which commands begin.
    pub working_dir: PathBuf,
    /// Directories that may be read and not written.
    pub skills: Vec<PathBuf>,
    /// After so long without a frame nobody is there any more; without it, the end of the stream
    /// alone says that.
    pub quiet: Option<Duration>,
    /// Maximum number of calls at once.
    pub calls: usize,
    /// How long processes have to react to SIGTERM when the stream ends.
    pub grace: Duration,
    /// The files and directories that are kept from commands, where they are confined.
    pub confined: Option<Vec<String>>,
    /// Whether commands may come with a sandbox.
    pub takes_sandboxes: bool,
    /// Whether all commands are of one session.
    pub has_one_session: bool,
}

impl AgentSettings {
    /// Whether the agent runs in the working directory, so that a command which it starts begins
    /// there without being sent.
    fn is_in_working_dir(&self) -> bool {
        let here = std::env::current_dir();
        let there = self.working_dir.canonicalize();
        here.is_ok_and(|here| there.is_ok_and(|there| here == there))
    }
}

/// State that all calls share.
struct AgentState {
    settings: AgentSettings,
    /// Whether the agent works where commands begin.
    is_in_working_dir: bool,
    /// Whether a user namespace helps to hide files.
    by_user_namespace: bool,
    children: Children,
    incoming_files: transfer::IncomingFiles,
}

impl AgentState {
    /// The shell of a command.
    fn shell(&self, bash: &ShellCommand) -> Result<Shell> {
        let confinement = self.confinement(bash);
        let dir = bash.dir.as_ref().map(Path::new);
        Shell::of(bash, dir.or_else(|| self.command_dir()), confinement)
    }

    /// How a command is confined, if it is: as all are here, and to its own sandbox.
    fn confinement(&self, bash: &ShellCommand) -> Option<Confinement> {
        let (hidden, sandbox) = (self.settings.confined.as_ref(), bash.sandbox.as_ref());
        if hidden.is_none() && sandbox.is_none() {
            return None;
        }
        let more = sandbox.map(|sandbox| &sandbox.hidden);
        Some(Confinement {
            hidden: hidden.into_iter().chain(more).flatten().cloned().collect(),
            visible: bash.visible.clone(),
            by_user_namespace: self.by_user_namespace,
            sandbox: sandbox.map(|sandbox| Sandbox {
                write: sandbox.write.iter().map(PathBuf::from).collect(),
                network: sandbox.network,
            }),
        })
    }

    /// Directory that commands are sent to; none where the agent stands in it.
    fn command_dir(&self) -> Option<&Path> {
        (!self.is_in_working_dir).then_some(&self.settings.working_dir)
    }

    fn roots(&self) -> Result<CallRoots> {
        let skills = self.settings.skills.iter().cloned();
        CallRoots::new(&self.settings.working_dir, skills, None)
    }
}

/// Serves the stream until its end.
///
/// # Errors
/// When the stream cannot be read or holds what is no frame.
pub fn serve(settings: AgentSettings, input: OwnedFd, output: OwnedFd) -> io::Result<()> {
    adopt_orphans()?;
    // Nobody inside may read its memory or write to its stream.
    keep_private()?;
    let output = Arc::new(FrameOutput::new(File::from(output)));
    let grace = settings.grace;
    let state = Arc::new(AgentState {
        is_in_working_dir: settings.is_in_working_dir(),
        by_user_namespace: has_use_of_users(&settings),
        // Else a command of one session would meet what the next one of another is started by.
        children: Children::new(settings.has_one_session),
        settings,
        incoming_files: transfer::IncomingFiles::default(),
    });
    let reaping = Arc::clone(&state);
    thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || reaping.children.reap())?;
    output.send(
        0,
        &AgentFrame::Ready {
            version: crate::VERSION,
            location: DirectoryLocation::of(&state.settings.working_dir).text(),
        },
    );
    let (over, ended) = channel();
    let server = Arc::new(AgentServer {
        state,
        output,
        calls: Mutex::default(),
        workers: Workers::new(STACK_BYTES),
        handoff: Mutex::default(),
    });
    let begun = server.spawn_reader(FrameInput::new(File::from(input), over));
    let served = match begun {
        Ok(()) => ended.recv().unwrap_or_else(|_| Err(unread())),
        Err((_, error)) => Err(error),
    };
    end_all(grace);
    served
}

/// Whether files are to be hidden which only a user namespace hides, and there can be one.
fn has_use_of_users(settings: &AgentSettings) -> bool {
    let hides = settings
        .confined
        .as_ref()
        .is_some_and(|hidden| !hidden.is_empty());
    (hides || settings.takes_sandboxes) && own_program("probe").is_ok_and(user_namespace_helps)
}

/// Ends everything below the agent.
fn end_all(grace: Duration) {
    // `kill(-1)` reaches everybody but the caller. Anywhere else than in a container of our own
    // that would be somebody else's.
    if getpid().is_init() && kill_process_group(Pid::INIT, Signal::KILL).is_ok() {
        return;
    }
    let begun = Instant::now();
    if !grace.is_zero() && signal_all(Signal::TERM) > 0 {
        while !has_no_child() && begun.elapsed() < grace {
            thread::sleep(POLL_INTERVAL);
        }
    }
    while signal_all(Signal::KILL) > 0 && begun.elapsed() < grace + KILL_TIMEOUT {
        // Supervisors die first, and what they had is the agent's from then on.
        thread::yield_now();
    }
}

fn unread() -> io::Error {
    io::Error::other("nobody reads the stream any more")
}

struct AgentServer {
    state: Arc<AgentState>,
    output: Arc<FrameOutput>,
    calls: Mutex<HashMap<u32, Arc<AgentCall>>>,
    workers: Workers,
    /// The stream, on its way to the thread that reads on.
    handoff: Mutex<Option<FrameInput>>,
}

impl AgentServer {
    /// Lets another thread read on.
    ///
    /// # Errors
    /// When there is none; the stream comes back.
    fn spawn_reader(
        self: &Arc<Self>,
        stream: FrameInput,
    ) -> std::result::Result<(), (FrameInput, io::Error)> {
        *lock(&self.handoff) = Some(stream);
        let server = Arc::clone(self);
        let reads = move || {
            let stream = lock(&server.handoff).take();
            if let Some(stream) = stream {
                server.read(stream);
            }
        };
        match self.workers.run(reads) {
            Ok(()) => Ok(()),
            Err(error) => match lock(&self.handoff).take() {
                Some(stream) => Err((stream, error)),
                None => Ok(()),
            },
        }
    }

    /// Reads until a call comes, hands the stream on, and carries the call out.
    fn read(self: &Arc<Self>, mut stream: FrameInput) {
        loop {
            let next = stream.next(self.state.settings.quiet).transpose();
            let (number, frame) = match next {
                Some(Ok(next)) => next,
                ended => {
                    return stream.end(ended.map_or(Ok(()), |ended| ended.map(drop)));
                }
            };
            let begun = match frame {
                AgentFrame::Call(bytes) => self.begin(number, &bytes),
                frame => {
                    self.take(number, frame);
                    continue;
                }
            };
            let (call, request) = match begun {
                Ok(begun) => begun,
                Err(error) => {
                    self.output.send(number, &AgentFrame::Fault(error));
                    continue;
                }
            };
            match self.spawn_reader(stream) {
                Ok(()) => return self.execute(number, &call, request),
                Err((back, error)) => {
                    stream = back;
                    lock(&self.calls).remove(&number);
                    let busy = format!("there is no thread for the call: {error}");
                    call.send_last(&AgentFrame::Fault(AgentError::of(
                        AgentErrorKind::Busy,
                        busy,
                    )));
                }
            }
        }
    }

    fn take(&self, number: u32, frame: AgentFrame) {
        if matches!(frame, AgentFrame::Ping) {
            return self.state.children.end_old();
        }
        let call = lock(&self.calls).get(&number).cloned();
        // A call that is over already needs nothing any more.
        if let Some(call) = call {
            call.take(frame);
        }
    }

    fn begin(&self, number: u32, bytes: &[u8]) -> Result<(Arc<AgentCall>, AgentRequest)> {
        let request = AgentRequest::decode(bytes)?;
        let call = Arc::new(AgentCall::new(number, Arc::clone(&self.output))?);
        let mut calls = lock(&self.calls);
        let most = self.state.settings.calls;
        if calls.len() >= most {
            return Err(AgentError::of(
                AgentErrorKind::Busy,
                format!("{most} calls run already; wait for one of them to end"),
            ));
        }
        calls.insert(number, Arc::clone(&call));
        Ok((call, request))
    }

    fn execute(&self, number: u32, call: &Arc<AgentCall>, request: AgentRequest) {
        let done = match run(&self.state, call, request) {
            Ok(reply) => AgentFrame::Reply(reply.encode()),
            Err(error) => AgentFrame::Fault(error),
        };
        // Whoever has the answer may begin the next call.
        lock(&self.calls).remove(&number);
        call.send_last(&done);
    }
}

/// Carries out a request.
fn run(state: &AgentState, call: &Arc<AgentCall>, request: AgentRequest) -> Result<AgentReply> {
    Ok(match request {
        AgentRequest::Bash(bash) => {
            let shell = state.shell(&bash)?;
            AgentReply::Bash(command::run(state, call, &shell, &bash)?)
        }
        AgentRequest::View { path, range } => {
            let viewed = view(&state.roots()?, &path, range, || call.check())?;
            AgentReply::View {
                content: viewed.content,
                directory: viewed.directory,
                total_lines: viewed.total_lines,
                full_file: viewed.full_file.map(|(place, size)| {
                    let path = place.display_path().to_string_lossy().into_owned();
                    (path, place.kind(), size)
                }),
            }
        }
        AgentRequest::Create { path } => transfer::create(&state.roots()?, call, &path)?,
        AgentRequest::Put { name } => {
            transfer::put(&state.roots()?, &state.incoming_files, call, &name)?
        }
        AgentRequest::Replace { path, old, new } => {
            transfer::written_reply(&str_replace(&state.roots()?, &path, &old, &new)?)
        }
        AgentRequest::Get { path } => transfer::get(&state.roots()?, call, &path)?,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
