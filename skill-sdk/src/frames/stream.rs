//! Frames in and out of an asynchronous stream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::codec::{Decoder, Frame, FrameError};
use super::message::Message;

/// Log lines that wait to be written; more are dropped.
const MAX_LOGS: usize = 256;

/// Bytes that wait to be written at the most: another side that does not read, and asks, is left.
const MAX_WAITING: usize = 128 * 1024 * 1024;

/// Number of bytes that go into one write when there are that many.
const BATCH: usize = 64 * 1024;

/// What is to be written. The number of frames that wait is bounded by whoever sends them: credits,
/// host requests and calls are, and log lines are here.
///
/// Whoever sends writes itself, where the stream takes all of it at once: a task that is woken for
/// that costs more than the write. What is left is written by [`Outbox::run`].
#[derive(Clone)]
pub(super) struct Outbox(Arc<Mutex<OutputState>>);

struct OutputState {
    /// The writer; none once the stream is closed.
    writer: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    queue: VecDeque<QueuedFrame>,
    waiting_bytes: usize,
    logs: usize,
    /// The bytes that are being written, and how many of them are.
    batch: Vec<u8>,
    written: usize,
    /// All was written and not flushed yet.
    unflushed: bool,
    /// Wakes [`Outbox::run`].
    runner: Option<Waker>,
}

struct QueuedFrame {
    bytes: Vec<u8>,
    log: bool,
}

impl Outbox {
    pub(super) fn new(writer: impl AsyncWrite + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(OutputState {
            writer: Some(Box::pin(writer)),
            queue: VecDeque::new(),
            waiting_bytes: 0,
            logs: 0,
            batch: Vec::new(),
            written: 0,
            unflushed: false,
            runner: None,
        })))
    }

    /// Sends a message. One to a stream that has ended goes nowhere.
    ///
    /// # Errors
    /// [`FrameError::TooLarge`].
    pub(super) fn send(&self, call_id: u64, message: Message) -> Result<(), FrameError> {
        let mut bytes = Vec::new();
        message.into_frame(call_id).encode(&mut bytes)?;
        self.push(QueuedFrame { bytes, log: false });
        Ok(())
    }

    /// Sends a log line, unless too many wait.
    pub(super) fn log(&self, call_id: u64, line: Message) {
        let mut bytes = Vec::new();
        if line.into_frame(call_id).encode(&mut bytes).is_ok() {
            self.push(QueuedFrame { bytes, log: true });
        }
    }

    fn push(&self, frame: QueuedFrame) {
        let mut state = self.state();
        if state.writer.is_none() || frame.log && state.logs >= MAX_LOGS {
            return;
        }
        let was_idle = state.is_idle();
        state.logs += usize::from(frame.log);
        state.waiting_bytes += frame.bytes.len();
        state.queue.push_back(frame);
        let is_left = if was_idle {
            let mut nobody = Context::from_waker(Waker::noop());
            !matches!(state.write(&mut nobody), Poll::Ready(Ok(())))
        } else {
            // Else the task is at it already.
            state.waiting_bytes > MAX_WAITING
        };
        if is_left {
            if let Some(runner) = state.runner.take() {
                runner.wake();
            }
        }
    }

    /// Writes what whoever sent it could not, until the stream fails.
    pub(super) async fn run(&self) -> Result<(), FrameError> {
        poll_fn(|cx| {
            let mut state = self.state();
            state.runner = Some(cx.waker().clone());
            match state.write(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Closes the stream. Nothing more is written.
    pub(super) fn close(&self) {
        let mut state = self.state();
        let writer = state.writer.take();
        state.queue.clear();
        drop(state);
        drop(writer);
    }

    fn state(&self) -> MutexGuard<'_, OutputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputState {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.batch.is_empty() && !self.unflushed
    }

    /// Writes what waits and flushes it.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        if self.waiting_bytes > MAX_WAITING {
            let reason = "the other side asks and does not read the answers";
            return Poll::Ready(Err(std::io::Error::other(reason)));
        }
        loop {
            self.fill_batch();
            let Some(writer) = &mut self.writer else {
                return Poll::Ready(Ok(()));
            };
            if self.batch.is_empty() {
                if self.unflushed {
                    ready!(writer.as_mut().poll_flush(cx))?;
                    self.unflushed = false;
                }
                return Poll::Ready(Ok(()));
            }
            let rest = self.batch.get(self.written..).unwrap_or_default();
            match ready!(writer.as_mut().poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
            if self.written >= self.batch.len() {
                self.batch.clear();
                self.written = 0;
                self.unflushed = true;
            }
        }
    }

    /// Takes frames for the next write, when there is none under way.
    fn fill_batch(&mut self) {
        while self.written == 0 && self.batch.len() < BATCH {
            let Some(frame) = self.queue.pop_front() else {
                return;
            };
            self.logs -= usize::from(frame.log);
            self.waiting_bytes -= frame.bytes.len();
            if self.batch.is_empty() {
                self.batch = frame.bytes;
            } else {
                self.batch.extend(frame.bytes);
            }
        }
    }
}

/// Reads frames until the stream ends. `batch_taken` is called
/// whenever all that came at once was taken.
pub(super) async fn read<R: AsyncRead + Unpin>(
    mut reader: R,
    mut take: impl FnMut(Frame) -> Result<(), FrameError>,
    mut batch_taken: impl FnMut(),
) -> Result<(), FrameError> {
    let mut decoder = Decoder::new();
    let mut piece = vec![0; BATCH];
    loop {
        let count = reader.read(&mut piece).await?;
        if count == 0 {
            return decoder.finish();
        }
        decoder.push(piece.get(..count).unwrap_or_default());
        while let Some(frame) = decoder.next_frame()? {
            take(frame)?;
        }
        batch_taken();
    }
}
