//! Ends what a supervisor has below it: when it is told to, when the program has left something
//! behind, and when whoever started the supervisor is gone.
//!
//! A thread beside the one that collects. It only signals; that nothing is left is seen by the
//! other one, whose end ends the process and this thread with it.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::report;
use crate::order::{Order, SupervisorReport};
use crate::{Tree, Wake};

/// How long background processes of a finished program may go on by themselves, such as the
/// `tee` of a process substitution.
const LINGER: Duration = Duration::from_millis(100);
/// How long processes have to react to SIGTERM when nobody said how long.
const GRACE: Duration = Duration::from_millis(500);
/// After so long what was killed and is still there counts as gone: it waits in the kernel, and
/// ends as soon as it leaves that.
const KILLED: Duration = Duration::from_secs(2);
/// How long to wait for what was killed before it is looked for again.
const RETRY_DELAY: Duration = Duration::from_millis(1);
/// The stack; nothing here is deep.
const STACK: usize = 256 * 1024;

/// The thread that ends, as the one that collects sees it.
#[derive(Debug)]
pub(super) struct Terminator {
    started: Sender<StartedProgram>,
    ended: Arc<Wake>,
}

/// A started program: its tree, and its standard input if it is still to be written.
type StartedProgram = (Tree, Option<ChildStdin>);

impl Terminator {
    /// Starts the thread, before the program: of one that runs nobody could say any more that it
    /// cannot be ended.
    pub(super) fn spawn(control: Arc<UnixStream>) -> io::Result<Self> {
        let ended = Arc::new(Wake::new()?);
        let (begins, begun) = channel();
        let wakes = Arc::clone(&ended);
        thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || work(control, &begun, wakes))?;
        Ok(Self {
            started: begins,
            ended,
        })
    }

    /// Says that the program runs. Nothing that was ordered is done before.
    pub(super) fn begin(&self, tree: Tree, input: Option<ChildStdin>) {
        let _ = self.started.send((tree, input));
    }

    /// Says that the program has ended and left something behind.
    pub(super) fn leader_ended(&self) {
        self.ended.wake();
    }
}

fn work(control: Arc<UnixStream>, begun: &Receiver<StartedProgram>, ended: Arc<Wake>) {
    // A program that could not be started leaves nothing to do.
    if let Ok((tree, input)) = begun.recv() {
        let mut work = Termination {
            control,
            takes_orders: true,
            tree,
            input,
            ended,
            phase: SupervisionPhase::Running,
        };
        work.run();
    }
}

/// The phase of a supervision.
#[derive(Debug, Clone, Copy)]
enum SupervisionPhase {
    /// The program's own end, or an order.
    Running,
    /// What it left behind may end by itself until then. What came later may have `grace`.
    Lingering(Instant, Duration),
    /// What was asked to end may do so until then.
    Terminating(Instant),
    /// What was killed since then ends.
    Killing(Instant),
    /// What was killed ends, and nobody waits for it any more.
    Abandoned,
}

/// One program that is supervised, to its end.
struct Termination {
    control: Arc<UnixStream>,
    /// Whether orders may still come.
    takes_orders: bool,
    tree: Tree,
    input: Option<ChildStdin>,
    ended: Arc<Wake>,
    phase: SupervisionPhase,
}

impl Termination {
    fn run(&mut self) {
        loop {
            let now = Instant::now();
            self.phase = match self.phase {
                SupervisionPhase::Lingering(until, grace) if now >= until => self.ask(grace),
                SupervisionPhase::Terminating(until) if now >= until => {
                    SupervisionPhase::Killing(now)
                }
                SupervisionPhase::Killing(since) if now >= since + KILLED => {
                    report(&self.control, &[SupervisorReport::AllExited]);
                    SupervisionPhase::Abandoned
                }
                phase => phase,
            };
            let time = match self.phase {
                SupervisionPhase::Running => None,
                SupervisionPhase::Lingering(until, _) | SupervisionPhase::Terminating(until) => {
                    Some(until.saturating_duration_since(now))
                }
                SupervisionPhase::Killing(_) | SupervisionPhase::Abandoned => {
                    match self.tree.signal(Signal::KILL) {
                        false => Some(RETRY_DELAY),
                        // What forks while it is killed is killed as quickly as it is found.
                        true => Some(Duration::ZERO),
                    }
                }
            };
            self.wait(time);
        }
    }

    /// Waits for an order, the program's end, or the time.
    fn wait(&mut self, time: Option<Duration>) {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let running = matches!(self.phase, SupervisionPhase::Running);
        let (ended, ordered) = {
            let nothing = PollFlags::empty();
            let mut fds = vec![PollFd::from_borrowed_fd(
                self.ended.as_fd(),
                if running { PollFlags::IN } else { nothing },
            )];
            if self.takes_orders {
                fds.push(PollFd::new(&*self.control, PollFlags::IN));
            }
            if poll(&mut fds, time.as_ref()).is_err() {
                return;
            }
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            (running && ready(0), ready(1))
        };
        if ordered {
            self.handle_order();
        } else if ended {
            self.phase = SupervisionPhase::Lingering(Instant::now() + LINGER, GRACE);
        }
    }

    fn handle_order(&mut self) {
        match Order::read(&mut &*self.control) {
            Ok(Some(Order::Input(text))) => {
                if let Some(mut input) = self.input.take() {
                    // Whole or not at all: the pipe is empty, and takes so much at once.
                    if input.write_all(text.as_bytes()).is_ok() {
                        report(&self.control, &[SupervisorReport::Given]);
                    }
                }
            }
            Ok(Some(Order::Finish { grace_ms })) => self.finish(Duration::from_millis(grace_ms)),
            Ok(Some(Order::Start(_))) => {}
            Ok(None) | Err(_) => {
                self.takes_orders = false;
                self.finish(GRACE);
            }
        }
    }

    fn finish(&mut self, grace: Duration) {
        if matches!(
            self.phase,
            SupervisionPhase::Running | SupervisionPhase::Lingering(..)
        ) {
            self.phase = self.ask(grace);
        }
    }

    /// Asks everything to end.
    fn ask(&self, grace: Duration) -> SupervisionPhase {
        self.tree.signal(Signal::TERM);
        SupervisionPhase::Terminating(Instant::now() + grace)
    }
}
