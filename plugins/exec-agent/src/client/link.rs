//! The stream to one agent: calls out, answers in, and its end.
//!
//! Many calls share it. A frame is written where it is sent, as far as the stream takes it at once;
//! the rest is one task's work, so that a call which is dropped half-way never leaves half a frame
//! behind.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::outgoing::Outgoing;
use crate::files::DirectoryLocation;
use crate::frame::{AgentFrame, AgentFrames};
use crate::message::AgentRequest;
use crate::{PIECE, VERSION, WINDOW};

/// Interval of pings to the agent.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// After so long without a frame an agent ends that cannot rely on the end of its stream, in
/// seconds.
pub const QUIET: u32 = 90;
/// How long an agent may take to answer anything.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The most bytes of a call that may wait here; credit keeps them below.
const MAX_WAITING_BYTES: usize = WINDOW as usize + PIECE;
/// Number of bytes of output for which credit is given in one go.
const CREDIT_BYTES: u32 = 64 * 1024;

/// The writing end of the agent's standard input.
pub type AgentInput = Pin<Box<dyn AsyncWrite + Send>>;

/// The connection to an agent. Dropping it ends the agent.
#[derive(Debug)]
pub struct AgentLink {
    outgoing: Arc<Outgoing>,
    shared: Arc<LinkShared>,
    next: AtomicU32,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct LinkShared {
    calls: Mutex<HashMap<u32, Inbox>>,
    state: watch::Sender<LinkState>,
    /// DirectoryLocation of the agent's working directory, which it tells with its first frame.
    location: OnceLock<DirectoryLocation>,
}

/// What came for a call and was not taken yet. The channel has no bound of its own: the bytes in
/// it have.
#[derive(Debug)]
struct Inbox {
    frames: UnboundedSender<AgentFrame>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Inbox {
    /// False when more came than was paid for.
    fn put(&self, frame: AgentFrame) -> bool {
        let size = size(&frame);
        let fits =
            self.waiting_bytes.fetch_add(size, Ordering::Relaxed) + size <= MAX_WAITING_BYTES;
        let _ = self.frames.send(frame);
        fits
    }
}

/// Number of bytes of a frame that cost credit.
fn size(frame: &AgentFrame) -> usize {
    match frame {
        AgentFrame::Stdout(bytes) | AgentFrame::Stderr(bytes) | AgentFrame::Data(bytes) => {
            bytes.len()
        }
        _ => 0,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkState {
    /// The agent said nothing yet.
    New,
    Ready,
    /// Over, and why.
    Closed(String),
}

impl AgentLink {
    /// A stream into which `input` leads. `read` reads what the agent writes, to its end, and
    /// says why that came about.
    pub fn new<R>(input: AgentInput, read: impl FnOnce(Feed) -> R) -> Self
    where
        R: Future<Output = String> + Send + 'static,
    {
        let shared = Arc::new(LinkShared {
            calls: Mutex::default(),
            state: watch::Sender::new(LinkState::New),
            location: OnceLock::new(),
        });
        let outgoing = Arc::new(Outgoing::new(input));
        let writing = tokio::spawn(write(Arc::clone(&outgoing)));
        let reading = read(Feed {
            frames: AgentFrames::default(),
            shared: Arc::clone(&shared),
        });
        let ends = Arc::clone(&shared);
        let reading = tokio::spawn(async move { ends.end(reading.await) });
        Self {
            outgoing,
            shared,
            next: AtomicU32::new(1),
            tasks: [writing, reading],
        }
    }

    /// Waits until the agent said who it is.
    ///
    /// # Errors
    /// Why the stream is over before that.
    pub async fn ready(&self) -> Result<(), String> {
        let mut state = self.shared.state.subscribe();
        match state.wait_for(|state| *state != LinkState::New).await {
            Ok(state) => match &*state {
                LinkState::Closed(why) => Err(why.clone()),
                _ => Ok(()),
            },
            Err(_) => Err("the stream is over".to_owned()),
        }
    }

    /// DirectoryLocation of the agent's working directory, which is not known before the agent said who it is.
    #[must_use]
    pub fn location(&self) -> DirectoryLocation {
        self.shared.location.get().cloned().unwrap_or_default()
    }

    /// Whether the link can be used.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(*self.shared.state.borrow(), LinkState::Closed(_))
    }

    /// Reason of the link's end, once it ended.
    #[must_use]
    pub fn end(&self) -> Option<String> {
        match &*self.shared.state.borrow() {
            LinkState::Closed(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Begins a call.
    pub fn call(self: &Arc<Self>, request: &AgentRequest) -> RemoteCall {
        self.begin(request.encode())
    }

    /// Asks the agent for anything at all, and waits until it answers. False when the stream is
    /// over.
    pub async fn answers(self: &Arc<Self>) -> bool {
        // What is no request is refused by whoever reads, before anything is done.
        self.begin(Vec::new()).next().await.is_some()
    }

    /// Whether the agent answers nothing, for as long as somebody who waits for a late answer has.
    pub async fn is_stuck(self: &Arc<Self>) -> bool {
        tokio::time::timeout(ANSWER_TIMEOUT, self.answers())
            .await
            .is_err()
    }

    fn begin(self: &Arc<Self>, request: Vec<u8>) -> RemoteCall {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, frames) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let inbox = Inbox {
            frames: sender,
            waiting_bytes: Arc::clone(&waiting),
        };
        self.shared.lock().insert(number, inbox);
        if !self.is_open() {
            // Whoever ended it may have been before the call was noted.
            self.shared.lock().remove(&number);
        }
        let call = RemoteCall {
            link: Arc::clone(self),
            number,
            frames,
            waiting,
            uncredited: 0,
            closed: false,
        };
        call.send(&AgentFrame::Call(request));
        call
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl LinkShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Inbox>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: String) {
        self.state.send_if_modified(|state| {
            let ends = !matches!(state, LinkState::Closed(_));
            if ends {
                *state = LinkState::Closed(why);
            }
            ends
        });
        self.lock().clear();
    }
}

/// A call to the agent. Dropping it before its end cancels it.
#[derive(Debug)]
pub struct RemoteCall {
    link: Arc<AgentLink>,
    number: u32,
    frames: UnboundedReceiver<AgentFrame>,
    waiting: Arc<AtomicUsize>,
    uncredited: u32,
    closed: bool,
}

impl RemoteCall {
    /// The next frame; nothing when the stream is over.
    pub async fn next(&mut self) -> Option<AgentFrame> {
        let frame = self.frames.recv().await;
        let size = frame.as_ref().map_or(0, size);
        self.waiting.fetch_sub(size, Ordering::Relaxed);
        self.uncredited += u32::try_from(size).unwrap_or(CREDIT_BYTES);
        if self.uncredited >= CREDIT_BYTES {
            let paid = std::mem::take(&mut self.uncredited);
            self.send(&AgentFrame::Credit(paid));
        }
        self.closed |= matches!(
            frame,
            None | Some(AgentFrame::Reply(_) | AgentFrame::Fault(_))
        );
        frame
    }

    /// Sends a frame of the call.
    pub fn send(&self, frame: &AgentFrame) {
        self.link.outgoing.send(&frame.encode(self.number));
    }
}

impl Drop for RemoteCall {
    fn drop(&mut self) {
        self.link.shared.lock().remove(&self.number);
        if !self.closed {
            self.send(&AgentFrame::Cancel);
        }
    }
}

/// Writes what was not written where it was sent, and pings.
async fn write(outgoing: Arc<Outgoing>) {
    let mut pings = tokio::time::interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    pings.reset();
    loop {
        tokio::select! {
            () = outgoing.write_rest() => {}
            _ = pings.tick() => outgoing.send(&AgentFrame::Ping.encode(0)),
        }
    }
}

/// Destination of the agent's output.
#[derive(Debug)]
pub struct Feed {
    frames: AgentFrames,
    shared: Arc<LinkShared>,
}

impl Feed {
    /// Takes bytes.
    ///
    /// # Errors
    /// When they are not what an agent of this version writes; nothing more is taken then.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.frames.push(bytes);
        take_all(&mut self.frames, &self.shared)
    }
}

fn take_all(frames: &mut AgentFrames, shared: &LinkShared) -> Result<(), String> {
    while let Some((number, frame)) = frames.next_frame().map_err(|error| error.to_string())? {
        match frame {
            AgentFrame::Ready { version, .. } if version != VERSION => {
                return Err(format!(
                    "the agent speaks version {version} and this plugin {VERSION}: use the agent \
                     that comes with the plugin"
                ));
            }
            AgentFrame::Ready { location, .. } => {
                let location = DirectoryLocation::from_text(&location);
                shared.location.get_or_init(|| location);
                shared.state.send_replace(LinkState::Ready);
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
