//! The stream to the agent in one container: calls out, answers in, and its end.
//!
//! Many calls share it. A frame is written where it is sent, as far as the stream takes it at once;
//! the rest is one task's work, so that a call which is dropped half-way never leaves half a frame
//! behind.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use conjure_exec_agent::frame::{Frame, Frames};
use conjure_exec_agent::message::Request;
use conjure_exec_agent::{PIECE, VERSION, WINDOW};
use futures_util::{Stream, StreamExt as _};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::outgoing::Outgoing;

/// How often the agent hears that somebody is there.
const PING: Duration = Duration::from_secs(20);
/// After so long without a frame the agent ends, in seconds.
pub(crate) const QUIET: u32 = 90;
/// How much of what the agent complained about is kept.
const COMPLAINT: usize = 2_000;
/// The most bytes of a call that may wait here; credit keeps them below.
const MOST: usize = WINDOW as usize + PIECE;
/// How much output is taken before it is paid for, in one go.
const PAY: u32 = 64 * 1024;

/// What the agent writes.
pub(crate) type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, EngineError>> + Send>>;
/// What the agent reads.
pub(crate) type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// The stream. Dropping it ends the container.
#[derive(Debug)]
pub(crate) struct Link {
    outgoing: Arc<Outgoing>,
    shared: Arc<Shared>,
    next: AtomicU32,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    calls: Mutex<HashMap<u32, Inbox>>,
    state: watch::Sender<State>,
}

/// What came for a call and was not taken yet. The channel has no bound of its own: the bytes in
/// it have.
#[derive(Debug)]
struct Inbox {
    frames: UnboundedSender<Frame>,
    waiting: Arc<AtomicUsize>,
}

impl Inbox {
    /// False when more came than was paid for.
    fn put(&self, frame: Frame) -> bool {
        let size = size(&frame);
        let fits = self.waiting.fetch_add(size, Ordering::Relaxed) + size <= MOST;
        let _ = self.frames.send(frame);
        fits
    }
}

/// How many bytes of a frame cost credit.
fn size(frame: &Frame) -> usize {
    match frame {
        Frame::Stdout(bytes) | Frame::Stderr(bytes) | Frame::Data(bytes) => bytes.len(),
        _ => 0,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nothing came yet.
    New,
    Ready,
    /// Over, and why.
    Over(String),
}

impl Link {
    pub(crate) fn new(output: Output, input: Input) -> Self {
        let shared = Arc::new(Shared {
            calls: Mutex::default(),
            state: watch::Sender::new(State::New),
        });
        let outgoing = Arc::new(Outgoing::new(input));
        let writing = tokio::spawn(write(Arc::clone(&outgoing)));
        let reading = tokio::spawn(read(output, Arc::clone(&shared)));
        Self {
            outgoing,
            shared,
            next: AtomicU32::new(1),
            tasks: [writing, reading],
        }
    }

    /// Waits until the agent said who it is.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let mut state = self.shared.state.subscribe();
        match state.wait_for(|state| *state != State::New).await {
            Ok(state) => match &*state {
                State::Over(why) => Err(why.clone()),
                _ => Ok(()),
            },
            Err(_) => Err("the stream is over".to_owned()),
        }
    }

    /// Whether it can be used.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.shared.state.borrow(), State::Over(_))
    }

    /// Why it is over.
    pub(crate) fn end(&self) -> Option<String> {
        match &*self.shared.state.borrow() {
            State::Over(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Begins a call.
    pub(crate) fn call(self: &Arc<Self>, request: &Request) -> Call {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, frames) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let inbox = Inbox {
            frames: sender,
            waiting: Arc::clone(&waiting),
        };
        self.shared.lock().insert(number, inbox);
        if !self.is_open() {
            // Whoever ended it may have been before the call was noted.
            self.shared.lock().remove(&number);
        }
        let call = Call {
            link: Arc::clone(self),
            number,
            frames,
            waiting,
            unpaid: 0,
            over: false,
        };
        call.send(&Frame::Call(request.encode()));
        call
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Inbox>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: String) {
        self.state.send_if_modified(|state| {
            let ends = !matches!(state, State::Over(_));
            if ends {
                *state = State::Over(why);
            }
            ends
        });
        self.lock().clear();
    }
}

/// A call under way. Dropping one that is not over cancels it.
#[derive(Debug)]
pub(crate) struct Call {
    link: Arc<Link>,
    number: u32,
    frames: UnboundedReceiver<Frame>,
    waiting: Arc<AtomicUsize>,
    unpaid: u32,
    over: bool,
}

impl Call {
    /// What comes next; nothing when the stream is over.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let frame = self.frames.recv().await;
        let size = frame.as_ref().map_or(0, size);
        self.waiting.fetch_sub(size, Ordering::Relaxed);
        self.unpaid += u32::try_from(size).unwrap_or(PAY);
        if self.unpaid >= PAY {
            let paid = std::mem::take(&mut self.unpaid);
            self.send(&Frame::Credit(paid));
        }
        self.over |= matches!(frame, None | Some(Frame::Reply(_) | Frame::Fault(_)));
        frame
    }

    pub(crate) fn send(&self, frame: &Frame) {
        self.link.outgoing.send(&frame.encode(self.number));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.link.shared.lock().remove(&self.number);
        if !self.over {
            self.send(&Frame::Cancel);
        }
    }
}

/// Writes what was not written where it was sent, and pings.
async fn write(outgoing: Arc<Outgoing>) {
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    pings.reset();
    loop {
        tokio::select! {
            () = outgoing.write_rest() => {}
            _ = pings.tick() => outgoing.send(&Frame::Ping.encode(0)),
        }
    }
}

async fn read(mut output: Output, shared: Arc<Shared>) {
    let mut frames = Frames::default();
    let mut complaint = Vec::new();
    let why = loop {
        let bytes = match output.next().await {
            Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => message,
            Some(Ok(LogOutput::StdErr { message })) => {
                let room = COMPLAINT.saturating_sub(complaint.len());
                complaint
                    .extend_from_slice(message.get(..message.len().min(room)).unwrap_or_default());
                continue;
            }
            Some(Ok(LogOutput::StdIn { .. })) => continue,
            Some(Err(error)) => break format!("the stream to it broke: {error}"),
            None => break String::from_utf8_lossy(&complaint).trim().to_owned(),
        };
        frames.push(&bytes);
        if let Err(why) = take_all(&mut frames, &shared) {
            break why;
        }
    };
    shared.end(why);
}

fn take_all(frames: &mut Frames, shared: &Shared) -> Result<(), String> {
    while let Some((number, frame)) = frames.next_frame().map_err(|error| error.to_string())? {
        match frame {
            Frame::Ready { version, .. } if version != VERSION => {
                return Err(format!(
                    "the agent speaks version {version} and this plugin {VERSION}: use the agent \
                     that comes with the plugin"
                ));
            }
            Frame::Ready { .. } => {
                shared.state.send_replace(State::Ready);
            }
            frame => {
                // Nobody waits any more for a call that was dropped.
                let fits = match shared.lock().get(&number) {
                    Some(inbox) => inbox.put(frame),
                    None => true,
                };
                if !fits {
                    return Err("the agent sent more output than it had credit for".to_owned());
                }
            }
        }
    }
    Ok(())
}
