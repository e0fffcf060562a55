//! Ends what a supervisor has below it: when it is told to, when the command has left something
//! behind, and when the agent is gone.
//!
//! A thread beside the one that collects. It only signals; that nothing is left is seen by the
//! other one, whose end ends the process and this thread with it.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ChildStdin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::Signal;

use super::{Order, Report, Reporter};
use crate::descendants::signal_all;

/// How long background processes of a finished command may go on by themselves, such as the
/// `tee` of a process substitution.
const LINGER: Duration = Duration::from_millis(100);
/// How long processes have to react to SIGTERM when nobody said how long.
const GRACE: Duration = Duration::from_millis(500);
/// After so long what was killed and is still there counts as gone: it waits in the kernel, and
/// ends as soon as it leaves that.
const KILLED: Duration = Duration::from_secs(2);
/// How long to wait for what was killed before it is looked for again.
const AGAIN: Duration = Duration::from_millis(1);
/// The stack; nothing here is deep.
const STACK: usize = 256 * 1024;

/// The thread that ends, as the one that collects sees it.
#[derive(Debug)]
pub(super) struct Ender(Arc<OwnedFd>);

impl Ender {
    /// Starts the thread. `input` is the standard input of a shell that waits.
    pub(super) fn spawn(
        control: UnixStream,
        reporter: Arc<Reporter>,
        input: Option<ChildStdin>,
    ) -> io::Result<Self> {
        let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let mut work = Work {
            control: Some(control),
            reporter,
            input,
            ended: Arc::clone(&ended),
            phase: Phase::Runs,
        };
        thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || work.run())?;
        Ok(Self(ended))
    }

    /// Says that the command has ended and left something behind.
    pub(super) fn leader_ended(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// What is being waited for.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The command's own end, or an order.
    Runs,
    /// What it left behind may end by itself until then. What came later may have `grace`.
    Lingers(Instant, Duration),
    /// What was asked to end may do so until then.
    Asked(Instant),
    /// What was killed since then ends.
    Kills(Instant),
    /// The same, and nobody waits for it any more.
    Forgotten,
}

struct Work {
    /// Until its end.
    control: Option<UnixStream>,
    reporter: Arc<Reporter>,
    input: Option<ChildStdin>,
    ended: Arc<OwnedFd>,
    phase: Phase,
}

impl Work {
    fn run(&mut self) {
        loop {
            let now = Instant::now();
            self.phase = match self.phase {
                Phase::Lingers(until, grace) if now >= until => ask(grace),
                Phase::Asked(until) if now >= until => Phase::Kills(now),
                Phase::Kills(since) if now >= since + KILLED => {
                    self.reporter.say(&[Report::Gone]);
                    Phase::Forgotten
                }
                phase => phase,
            };
            let time = match self.phase {
                Phase::Runs => None,
                Phase::Lingers(until, _) | Phase::Asked(until) => {
                    Some(until.saturating_duration_since(now))
                }
                Phase::Kills(_) | Phase::Forgotten => match signal_all(Signal::KILL) {
                    0 => Some(AGAIN),
                    // What forks while it is killed is killed as quickly as it is found.
                    _ => Some(Duration::ZERO),
                },
            };
            self.wait(time);
        }
    }

    /// Waits for an order, the command's end, or the time.
    fn wait(&mut self, time: Option<Duration>) {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let running = matches!(self.phase, Phase::Runs);
        let (ended, ordered) = {
            let nothing = PollFlags::empty();
            let mut fds = vec![PollFd::from_borrowed_fd(
                self.ended.as_fd(),
                if running { PollFlags::IN } else { nothing },
            )];
            let control = self.control.as_ref();
            fds.extend(control.map(|control| PollFd::new(control, PollFlags::IN)));
            if poll(&mut fds, time.as_ref()).is_err() {
                return;
            }
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            (running && ready(0), ready(1))
        };
        if ordered {
            self.obey();
        } else if ended {
            self.phase = Phase::Lingers(Instant::now() + LINGER, GRACE);
        }
    }

    fn obey(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        match Order::read(control) {
            Ok(Some(Order::Give(text))) => {
                if let Some(mut input) = self.input.take() {
                    // Whole or not at all: the pipe is empty, and takes so much at once.
                    if input.write_all(text.as_bytes()).is_ok() {
                        self.reporter.say(&[Report::Given]);
                    }
                }
            }
            Ok(Some(Order::End { grace_ms })) => {
                let grace = Duration::from_millis(grace_ms);
                if matches!(self.phase, Phase::Runs | Phase::Lingers(..)) {
                    self.phase = ask(grace);
                }
            }
            Ok(Some(Order::Start(_))) => {}
            Ok(None) | Err(_) => {
                self.control = None;
                if matches!(self.phase, Phase::Runs | Phase::Lingers(..)) {
                    self.phase = ask(GRACE);
                }
            }
        }
    }
}

/// Asks everything to end.
fn ask(grace: Duration) -> Phase {
    signal_all(Signal::TERM);
    Phase::Asked(Instant::now() + grace)
}
