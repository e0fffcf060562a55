//! The stream to a session's agent, over one connection after another.
//!
//! What goes out is kept until the relay over there confirms it, and sent again over the next
//! connection from where the relay says it is; what comes in is counted, and said to the relay. So
//! a call never sees that a connection was lost: it waits.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use conjure_process_tree::frame::Frames;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, watch};

use super::route::{RelayCarrier, RelayRoute, Relayed, RouteFailure, jittered};
use crate::client::Feed;
use crate::relay::{CONFIRM_BYTES, RELAY_PIECE, RelayFrame, SentStream};

/// The most bytes that wait to be confirmed; then whoever sends waits.
const MAX_UNCONFIRMED_BYTES: usize = 16 * 1024 * 1024;
/// Delays before another connection: the first, and the longest.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// How many times an answer is waited for until a connection counts as lost.
const MAX_UNANSWERED: u32 = 3;

/// The state of a stream, which its writer, its reader and its session share.
pub struct ResumableStream {
    /// Number that the relay knows the stream by.
    pub(super) number: u64,
    state: Mutex<StreamState>,
    /// Wakes whoever sends.
    wake_sender: Notify,
    /// Time since which the connection is lost, if it is.
    lost_since: watch::Sender<Option<Instant>>,
    /// The last question that the relay has answered.
    answered: watch::Sender<u64>,
    /// Once the stream is over: whether the relay has ended everything.
    closed: watch::Sender<Option<bool>>,
}

#[derive(Default)]
struct StreamState {
    outgoing: SentStream,
    received: u64,
    confirmed: u64,
    /// Number of questions that were asked.
    questions: u64,
    /// A question, and how far the stream has to be given before it is asked.
    question: Option<(u64, u64)>,
    closing: bool,
    /// Task that waits for room.
    waiter: Option<Waker>,
}

/// Reason of a connection's end.
enum DisconnectCause {
    /// The stream is over too.
    StreamEnded(String),
    /// Another one can go on.
    ConnectionLost,
}

impl Default for ResumableStream {
    fn default() -> Self {
        Self::new()
    }
}

impl ResumableStream {
    /// A stream that carried nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let (_, number) = uuid::Uuid::new_v4().as_u64_pair();
        Self {
            number,
            state: Mutex::default(),
            wake_sender: Notify::new(),
            lost_since: watch::Sender::new(None),
            answered: watch::Sender::new(0),
            closed: watch::Sender::new(None),
        }
    }

    /// Number of bytes that were read.
    pub fn received(&self) -> u64 {
        self.lock().received
    }

    /// Time since the connection was lost, if it is.
    pub fn time_lost(&self) -> Option<Duration> {
        self.lost_since.borrow().map(|since| since.elapsed())
    }

    /// Becomes ready when the connection is lost.
    pub async fn until_lost(&self) {
        let _ = self.lost_since.subscribe().wait_for(Option::is_some).await;
    }

    /// Becomes ready when the connection has carried all that is under way in both directions now,
    /// as far as the agent takes it: it is there, however slow it is.
    pub async fn until_carried(&self) {
        let question = {
            let mut state = self.lock();
            state.questions += 1;
            state.question = Some((state.questions, state.outgoing.end()));
            state.questions
        };
        self.wake_sender.notify_one();
        let mut answered = self.answered.subscribe();
        let _ = answered.wait_for(|answered| *answered >= question).await;
    }

    /// How far it has gone in both directions: what was heard, and what the agent has taken.
    pub fn progress(&self) -> (u64, u64) {
        let state = self.lock();
        (state.received, state.outgoing.confirmed())
    }

    /// Ends everything over there, once all that was sent is there. Says whether that was done
    /// before the stream was over; nothing when neither came about in this time.
    pub async fn close(&self, within: Duration) -> Option<bool> {
        self.lock().closing = true;
        self.wake_sender.notify_one();
        let mut closed = self.closed.subscribe();
        let _ = tokio::time::timeout(within, closed.wait_for(Option::is_some)).await;
        *self.closed.borrow()
    }

    /// Keeps the stream going, over this connection and others, to its end. Says why that came
    /// about.
    pub async fn run<R: RelayRoute>(
        self: Arc<Self>,
        route: Arc<R>,
        first: Relayed<R::Carrier>,
        feed: Feed,
    ) -> String {
        let why = self.run_connections(&*route, first, feed).await;
        self.closed.send_if_modified(|closed| {
            let was_open = closed.is_none();
            closed.get_or_insert(false);
            was_open
        });
        why
    }

    async fn run_connections<R: RelayRoute>(
        &self,
        route: &R,
        first: Relayed<R::Carrier>,
        mut feed: Feed,
    ) -> String {
        let mut connection = first;
        loop {
            let carried = tokio::select! {
                end = self.run_connection(&mut connection, &mut feed) => end,
                () = self.until_silent(route.probe_interval()) => DisconnectCause::ConnectionLost,
            };
            if let DisconnectCause::StreamEnded(how) = carried {
                return how;
            }
            let since = Instant::now();
            self.lost_since.send_replace(Some(since));
            let reason = match connection.carrier.into_stderr().await.as_str() {
                "" => String::new(),
                complaint => format!(" ({complaint})"),
            };
            route.notify(&format!(
                "the connection to {} is lost{reason}; what runs there goes on, and the \
                 connection is made again",
                route.target()
            ));
            connection = match self.reconnect(route, since).await {
                Ok(connection) => connection,
                Err(why) => return why,
            };
            self.lost_since.send_replace(None);
            route.notify(&format!(
                "the connection to {} is back after {:.1} s; nothing was lost",
                route.target(),
                since.elapsed().as_secs_f64()
            ));
        }
    }

    /// Another connection to the same stream, tried until it is time to give up.
    async fn reconnect<R: RelayRoute>(
        &self,
        route: &R,
        since: Instant,
    ) -> Result<Relayed<R::Carrier>, String> {
        let mut wait = FIRST_DELAY;
        loop {
            let failed = match route.attach(self).await {
                Ok((connection, over_there)) => {
                    if self.lock().outgoing.resume(over_there) {
                        return Ok(connection);
                    }
                    return Err("its relay has not kept what was sent".to_owned());
                }
                Err(failed) => failed,
            };
            let RouteFailure {
                text,
                is_transient: may_pass,
            } = failed;
            // Nobody waits for what does not get better.
            if !may_pass {
                return Err(text);
            }
            let limit = route.retry_time();
            if since.elapsed() + wait >= limit {
                return Err(format!(
                    "the connection was lost for {} s (`reconnect_ms`), and what ran there ends; \
                     at last {text}",
                    limit.as_secs()
                ));
            }
            tokio::time::sleep(jittered(wait)).await;
            wait = (wait * 2).min(MAX_DELAY);
        }
    }

    /// Carries the stream over one connection, for as long as that lasts.
    async fn run_connection<C: RelayCarrier>(
        &self,
        connection: &mut Relayed<C>,
        feed: &mut Feed,
    ) -> DisconnectCause {
        let Relayed { carrier, frames } = connection;
        let (input, output) = carrier.streams();
        let Some(input) = input else {
            return DisconnectCause::ConnectionLost;
        };
        tokio::select! {
            end = self.read(output, frames, feed) => end,
            // The end of the connection is seen by whoever reads.
            never = self.write(input) => match never {},
        }
    }

    /// Becomes ready when the connection has carried nothing for too long, where the relay is asked
    /// so often.
    async fn until_silent(&self, every: Option<Duration>) {
        let Some(every) = every else {
            return std::future::pending().await;
        };
        loop {
            let mut seen = self.progress();
            let answered = async {
                tokio::time::sleep(every).await;
                self.until_carried().await;
            };
            let mut answered = std::pin::pin!(answered);
            let mut quiet = 0;
            loop {
                tokio::select! {
                    () = &mut answered => break,
                    () = tokio::time::sleep(every) => {}
                }
                let now = self.progress();
                quiet = if now == seen { quiet + 1 } else { 0 };
                seen = now;
                // The first of these waits comes before the question.
                if quiet > MAX_UNANSWERED {
                    return;
                }
            }
        }
    }

    async fn read(
        &self,
        output: &mut (impl AsyncRead + Unpin),
        frames: &mut Frames,
        feed: &mut Feed,
    ) -> DisconnectCause {
        let mut buffer = Vec::with_capacity(RELAY_PIECE);
        loop {
            loop {
                let frame = match frames.next_frame() {
                    Ok(None) => break,
                    Ok(Some(frame)) => RelayFrame::decode(frame),
                    Err(error) => Err(error),
                };
                match frame {
                    Ok(RelayFrame::Stream(bytes)) => {
                        if let Err(why) = feed.take(&bytes) {
                            return DisconnectCause::StreamEnded(why);
                        }
                        self.count(bytes.len() as u64);
                    }
                    Ok(RelayFrame::Received(count)) => self.confirm(count),
                    Ok(RelayFrame::Answer(question)) => {
                        self.answered.send_replace(question);
                    }
                    Ok(RelayFrame::AgentEnded(how)) => return DisconnectCause::StreamEnded(how),
                    Ok(RelayFrame::Closed) => {
                        self.closed.send_replace(Some(true));
                        return DisconnectCause::StreamEnded("the session was closed".to_owned());
                    }
                    Ok(RelayFrame::Refused(refusal)) => {
                        return DisconnectCause::StreamEnded(refusal.text);
                    }
                    Ok(_) => {}
                    Err(error) => return DisconnectCause::StreamEnded(error.to_string()),
                }
            }
            buffer.clear();
            match output.read_buf(&mut buffer).await {
                Ok(1..) => frames.push(&buffer),
                Ok(0) | Err(_) => return DisconnectCause::ConnectionLost,
            }
        }
    }

    /// Counts bytes that have come, and has them confirmed now and then.
    fn count(&self, bytes: u64) {
        let mut state = self.lock();
        state.received += bytes;
        if state.received - state.confirmed >= CONFIRM_BYTES {
            drop(state);
            self.wake_sender.notify_one();
        }
    }

    fn confirm(&self, count: u64) {
        let mut state = self.lock();
        state.outgoing.confirm(count);
        if let Some(waiting) = state.waiter.take() {
            waiting.wake();
        }
    }

    async fn write(&self, input: &mut (impl AsyncWrite + Unpin)) -> std::convert::Infallible {
        let mut closes = false;
        loop {
            let mut bytes = Vec::new();
            {
                let mut state = self.lock();
                if state.received - state.confirmed >= CONFIRM_BYTES {
                    state.confirmed = state.received;
                    bytes.extend(RelayFrame::Received(state.received).encode());
                }
                if let Some(piece) = state.outgoing.next(RELAY_PIECE) {
                    bytes.extend(RelayFrame::Stream(piece).encode());
                } else if state.closing && !closes {
                    closes = true;
                    bytes.extend(RelayFrame::Close.encode());
                }
                let given = state.outgoing.sent();
                if let Some((question, _)) = state.question.take_if(|(_, from)| given >= *from) {
                    bytes.extend(RelayFrame::Question(question).encode());
                }
            }
            if bytes.is_empty() {
                self.wake_sender.notified().await;
            } else if input.write_all(&bytes).await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ResumableStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ResumableStream");
        shown.field("number", &self.number).finish_non_exhaustive()
    }
}

/// The writing end of a stream.
#[derive(Debug)]
pub struct StreamInput(pub Arc<ResumableStream>);

impl AsyncWrite for StreamInput {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        if state.outgoing.len() >= MAX_UNCONFIRMED_BYTES {
            state.waiter = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.outgoing.push(bytes);
        drop(state);
        self.0.wake_sender.notify_one();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
