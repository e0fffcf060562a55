//! Shows output to the host while the command runs.
//!
//! The host may be slow: then pieces wait in a bounded queue, and what does not fit is skipped
//! and counted. The command never waits for it, and the reply has what was skipped.

use std::time::Duration;

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::abi::{EmitKind, EmitStatus};
use conjure_skill_sdk::protocol::PluginEvent;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many pieces wait for a slow host.
const MAX_WAITING: usize = 32;
/// How long a finished command waits for the host to take the last pieces.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Relays the output of one command to the host.
pub struct OutputRelay {
    cx: Cx,
    queue: Option<PieceQueue>,
    skipped: u64,
    closed: bool,
}

struct PieceQueue {
    /// Gone once the last piece is in.
    pieces: Option<mpsc::Sender<(EmitKind, Vec<u8>)>>,
    task: JoinHandle<()>,
}

impl OutputRelay {
    /// The way to the host of a call.
    #[must_use]
    pub fn new(cx: Cx) -> Self {
        Self {
            cx,
            queue: None,
            skipped: 0,
            closed: false,
        }
    }

    /// Hands a piece over, or queues it, or skips it.
    pub fn push(&mut self, kind: EmitKind, bytes: &[u8]) {
        if self.closed {
            return;
        }
        if self.queue.is_none() {
            match self.cx.try_emit(kind, bytes) {
                EmitStatus::Ok => return,
                EmitStatus::Cancelled => {
                    self.closed = true;
                    return;
                }
                EmitStatus::Full => {}
            }
        }
        // Once something waits, everything goes through the queue: the order stays.
        let queue = self
            .queue
            .get_or_insert_with(|| PieceQueue::new(self.cx.clone()));
        let piece = (kind, bytes.to_vec());
        let sent = queue.pieces.as_ref().map(|pieces| pieces.try_send(piece));
        if !matches!(sent, Some(Ok(()))) {
            self.skipped += bytes.len() as u64;
        }
    }

    /// Gives the host a moment to take what waits, and says what it missed.
    pub async fn finish(mut self) {
        if let Some(mut queue) = self.queue.take() {
            queue.pieces = None;
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, &mut queue.task).await;
        }
        if self.skipped > 0 && !self.closed {
            let text = format!(
                "{} bytes of output were not shown while the command ran; the result has them",
                self.skipped
            );
            self.notice("info", text);
        }
    }

    /// Tells a person something, if the host takes it at once.
    pub fn notice(&self, level: &str, text: String) {
        self.event(&PluginEvent::Notice {
            level: level.to_owned(),
            text,
        });
    }

    fn event(&self, event: &PluginEvent) {
        if let Ok(json) = serde_json::to_vec(event) {
            let _ = self.cx.try_emit(EmitKind::Event, &json);
        }
    }
}

impl PieceQueue {
    fn new(cx: Cx) -> Self {
        let (pieces, mut waiting) = mpsc::channel::<(EmitKind, Vec<u8>)>(MAX_WAITING);
        let task = tokio::spawn(async move {
            while let Some((kind, bytes)) = waiting.recv().await {
                if cx.emit_async(kind, &bytes).await.is_err() {
                    return;
                }
            }
        });
        Self {
            pieces: Some(pieces),
            task,
        }
    }
}

impl std::fmt::Debug for OutputRelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputRelay")
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

impl Drop for PieceQueue {
    fn drop(&mut self) {
        self.task.abort();
    }
}
