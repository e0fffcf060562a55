//! The bounded channel that a call's output goes through.
//!
//! At most 256 pieces and 1 MiB are under way; a plugin that is faster is told so and waits with
//! `call.writable`. A reader that goes away stops nothing: output is then taken and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use conjure_abi::{EmitKind, EmitStatus};
use tokio::sync::{Notify, mpsc};

/// The most pieces under way.
pub const EMIT_ITEMS: usize = 256;

/// The most bytes under way. A larger piece travels alone.
pub const EMIT_BYTES: usize = 1024 * 1024;

/// The most bytes of one piece; a larger one ends the call's output.
pub const EMIT_PIECE: usize = 16 * 1024 * 1024;

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emit {
    /// Kind of the output.
    pub kind: EmitKind,
    /// Output as it came, or one JSON event, which is unchecked.
    pub bytes: Vec<u8>,
}

/// The plugin's end.
#[derive(Debug, Clone)]
pub struct EmitSink {
    sender: mpsc::Sender<Emit>,
    budget: Arc<OutputBudget>,
}

/// The host's end.
#[derive(Debug)]
pub struct EmitStream {
    receiver: mpsc::Receiver<Emit>,
    room: Arc<OutputBudget>,
}

#[derive(Debug, Default)]
struct OutputBudget {
    bytes: AtomicUsize,
    /// Size of the piece that found no room last.
    rejected_size: AtomicUsize,
    closed: AtomicBool,
    freed: Notify,
}

/// A channel for the output of one call.
pub fn emit_channel() -> (EmitSink, EmitStream) {
    let (sender, receiver) = mpsc::channel(EMIT_ITEMS);
    let room = Arc::new(OutputBudget::default());
    let sink = EmitSink {
        sender,
        budget: Arc::clone(&room),
    };
    (sink, EmitStream { receiver, room })
}

impl EmitSink {
    /// Takes a piece, or says why not. Never waits.
    pub(super) fn offer(&self, kind: EmitKind, bytes: &[u8]) -> EmitStatus {
        if bytes.len() > EMIT_PIECE {
            return EmitStatus::Cancelled;
        }
        if self.budget.closed.load(Ordering::Acquire) {
            return EmitStatus::Ok;
        }
        if !self.fits(bytes.len()) {
            self.budget
                .rejected_size
                .store(bytes.len(), Ordering::Release);
            return EmitStatus::Full;
        }
        self.budget.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        let piece = Emit {
            kind,
            bytes: bytes.to_vec(),
        };
        match self.sender.try_send(piece) {
            Ok(()) => EmitStatus::Ok,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.budget.bytes.fetch_sub(bytes.len(), Ordering::AcqRel);
                self.budget
                    .rejected_size
                    .store(bytes.len(), Ordering::Release);
                EmitStatus::Full
            }
            Err(mpsc::error::TrySendError::Closed(_)) => EmitStatus::Ok,
        }
    }

    fn fits(&self, length: usize) -> bool {
        let under_way = self.budget.bytes.load(Ordering::Acquire);
        under_way == 0 || under_way.saturating_add(length) <= EMIT_BYTES
    }

    /// Becomes ready when the piece that found no room last would find some.
    pub(super) async fn writable(&self) {
        loop {
            let freed = self.budget.freed.notified();
            let wanted = self.budget.rejected_size.load(Ordering::Acquire);
            let room = self.fits(wanted) && self.sender.capacity() > 0;
            if room || self.budget.closed.load(Ordering::Acquire) {
                return;
            }
            freed.await;
        }
    }
}

impl EmitStream {
    /// The next piece; nothing when the call is over and everything was read.
    pub async fn next(&mut self) -> Option<Emit> {
        let piece = self.receiver.recv().await?;
        self.release(&piece);
        Some(piece)
    }

    /// The next piece that is already there.
    pub fn try_next(&mut self) -> Option<Emit> {
        let piece = self.receiver.try_recv().ok()?;
        self.release(&piece);
        Some(piece)
    }

    fn release(&self, piece: &Emit) {
        self.room
            .bytes
            .fetch_sub(piece.bytes.len(), Ordering::AcqRel);
        self.room.freed.notify_waiters();
    }
}

impl Drop for EmitStream {
    fn drop(&mut self) {
        self.room.closed.store(true, Ordering::Release);
        self.room.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(sink: &EmitSink, length: usize) -> EmitStatus {
        sink.offer(EmitKind::Stdout, &vec![b'x'; length])
    }

    #[tokio::test]
    async fn bytes_are_bounded_and_room_is_told() {
        let (sink, mut stream) = emit_channel();
        assert_eq!(offer(&sink, EMIT_BYTES), EmitStatus::Ok);
        assert_eq!(offer(&sink, 1), EmitStatus::Full);
        let waiting = tokio::spawn({
            let sink = sink.clone();
            async move { sink.writable().await }
        });
        assert_eq!(stream.next().await.unwrap().bytes.len(), EMIT_BYTES);
        waiting.await.unwrap();
        assert_eq!(offer(&sink, 1), EmitStatus::Ok);
    }

    #[tokio::test]
    async fn a_piece_above_the_bound_travels_alone() {
        let (sink, mut stream) = emit_channel();
        assert_eq!(offer(&sink, 1), EmitStatus::Ok);
        assert_eq!(offer(&sink, EMIT_BYTES + 1), EmitStatus::Full);
        stream.next().await.unwrap();
        sink.writable().await;
        assert_eq!(offer(&sink, EMIT_BYTES + 1), EmitStatus::Ok);
        assert_eq!(offer(&sink, EMIT_PIECE + 1), EmitStatus::Cancelled);
    }

    #[test]
    fn pieces_are_bounded() {
        let (sink, mut stream) = emit_channel();
        for _ in 0..EMIT_ITEMS {
            assert_eq!(offer(&sink, 0), EmitStatus::Ok);
        }
        assert_eq!(offer(&sink, 0), EmitStatus::Full);
        assert!(stream.try_next().is_some());
        assert_eq!(offer(&sink, 0), EmitStatus::Ok);
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_stops_nothing() {
        let (sink, stream) = emit_channel();
        assert_eq!(offer(&sink, EMIT_BYTES), EmitStatus::Ok);
        drop(stream);
        sink.writable().await;
        assert_eq!(offer(&sink, EMIT_BYTES), EmitStatus::Ok);
    }
}
