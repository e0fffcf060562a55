//! Frames in and out of an asynchronous stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::codec::{Decoder, Frame, FrameError};
use super::message::Message;

/// Log lines that wait to be written; more are dropped.
const MAX_LOGS: usize = 256;

/// How many bytes go into one write when there are that many.
const BATCH: usize = 64 * 1024;

/// What waits to be written. The number of frames in it is bounded by whoever sends them:
/// credits, host requests and calls are, and log lines are here.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: mpsc::UnboundedSender<WaitingOutput>,
    logs: Arc<AtomicUsize>,
}

pub(super) struct WaitingOutput {
    bytes: Vec<u8>,
    log: bool,
}

impl Outbox {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<WaitingOutput>) {
        let (queue, waiting) = mpsc::unbounded_channel();
        let logs = Arc::default();
        (Self { queue, logs }, waiting)
    }

    /// Queues a message. One to a stream that has ended goes nowhere.
    ///
    /// # Errors
    /// [`FrameError::TooLarge`].
    pub(super) fn send(&self, call_id: u64, message: Message) -> Result<(), FrameError> {
        let mut bytes = Vec::new();
        message.into_frame(call_id).encode(&mut bytes)?;
        let _ = self.queue.send(WaitingOutput { bytes, log: false });
        Ok(())
    }

    /// Queues a log line, unless there are too many.
    pub(super) fn log(&self, call_id: u64, line: Message) {
        if self.logs.fetch_add(1, Ordering::Relaxed) >= MAX_LOGS {
            self.logs.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut bytes = Vec::new();
        if line.into_frame(call_id).encode(&mut bytes).is_ok() {
            let _ = self.queue.send(WaitingOutput { bytes, log: true });
        }
    }

    /// Writes what is queued until the stream fails or nobody can queue any more.
    pub(super) async fn write<W: AsyncWrite + Unpin>(
        mut writer: W,
        mut waiting: mpsc::UnboundedReceiver<WaitingOutput>,
        logs: Arc<AtomicUsize>,
    ) -> Result<(), FrameError> {
        while let Some(first) = waiting.recv().await {
            let mut batch = Vec::new();
            let mut next = Some(first);
            while let Some(one) = next {
                batch.extend(one.bytes);
                if one.log {
                    logs.fetch_sub(1, Ordering::Relaxed);
                }
                next = if batch.len() < BATCH {
                    waiting.try_recv().ok()
                } else {
                    None
                };
            }
            writer.write_all(&batch).await?;
            writer.flush().await?;
        }
        Ok(writer.shutdown().await?)
    }

    pub(super) fn logs(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.logs)
    }
}

/// Reads frames until the stream ends.
pub(super) async fn read<R: AsyncRead + Unpin>(
    mut reader: R,
    mut take: impl FnMut(Frame) -> Result<(), FrameError>,
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
    }
}
