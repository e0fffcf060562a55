//! The bounded channel of one call, and what came out of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use conjure_abi::{EmitKind, EmitStatus, LogLevel};
use serde_json::Value;
use tokio::sync::watch;

use super::DEADLINE;
use super::transcript::SharedTranscript;

/// A line that a plugin wrote to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How severe it is.
    pub level: LogLevel,
    /// The line.
    pub message: String,
}

/// What came out of a call so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct CapturedOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) events: Vec<Value>,
    pub(super) logs: Vec<LogLine>,
    pub(super) fulls: usize,
}

/// The host's side of a call: its output, and whether it is cancelled or over.
pub(super) struct Channel {
    capacity: usize,
    transcript: Arc<SharedTranscript>,
    stopped: AtomicBool,
    state: Mutex<ChannelState>,
    /// For threads that wait.
    condvar: Condvar,
    /// For futures that wait.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct ChannelState {
    queue: VecDeque<(u32, Vec<u8>)>,
    output: CapturedOutput,
    closed: bool,
}

impl Channel {
    pub(super) fn new(capacity: usize, transcript: Arc<SharedTranscript>) -> Arc<Self> {
        Arc::new(Self {
            capacity: capacity.max(1),
            transcript,
            stopped: AtomicBool::new(false),
            state: Mutex::default(),
            condvar: Condvar::new(),
            changed: watch::Sender::new(()),
        })
    }

    /// Takes a piece. A full channel stays full until it is [drained](Self::drain), which
    /// whoever is told so must see to.
    pub(super) fn emit(&self, kind: u32, bytes: &[u8]) -> EmitStatus {
        let status = {
            let mut state = self.state();
            if state.closed || self.is_stopped() {
                EmitStatus::Cancelled
            } else if state.queue.len() >= self.capacity {
                state.output.fulls += 1;
                EmitStatus::Full
            } else {
                state.queue.push_back((kind, bytes.to_vec()));
                EmitStatus::Ok
            }
        };
        self.notify();
        status
    }

    pub(super) fn log(&self, level: u32, message: &[u8]) {
        self.state().output.logs.push(LogLine {
            level: LogLevel::from_number(level),
            message: String::from_utf8_lossy(message).into_owned(),
        });
        self.notify();
    }

    /// Makes room.
    pub(super) fn drain(&self) {
        self.drain_locked(&mut self.state());
        self.notify();
    }

    fn drain_locked(&self, state: &mut ChannelState) {
        let ChannelState { queue, output, .. } = state;
        for (kind, bytes) in queue.drain(..) {
            match EmitKind::from_number(kind) {
                Some(EmitKind::Stdout) => output.stdout.extend(bytes),
                Some(EmitKind::Stderr) => output.stderr.extend(bytes),
                Some(EmitKind::Event) => {
                    let event = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
                        Value::String(String::from_utf8_lossy(&bytes).into_owned())
                    });
                    self.transcript.record("event", &event);
                    output.events.push(event);
                }
                // A newer plugin's kind: a host ignores it.
                None => {}
            }
        }
    }

    pub(super) fn cancel(&self) {
        self.stopped.store(true, Ordering::Release);
        self.notify();
    }

    /// Ends the call: nothing more is taken.
    pub(super) fn end(&self) -> CapturedOutput {
        let output = {
            let mut state = self.state();
            self.drain_locked(&mut state);
            state.closed = true;
            state.output.clone()
        };
        self.cancel();
        output
    }

    /// What came out so far.
    pub(super) fn output(&self) -> CapturedOutput {
        let mut state = self.state();
        self.drain_locked(&mut state);
        let output = state.output.clone();
        drop(state);
        self.notify_futures();
        output
    }

    /// Waits for output, at most as long as the kit waits for anything.
    pub(super) fn wait_for(&self, enough: impl Fn(&CapturedOutput) -> bool) -> bool {
        let deadline = Instant::now() + DEADLINE;
        let mut state = self.state();
        loop {
            self.drain_locked(&mut state);
            self.notify_futures();
            if enough(&state.output) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed {
                return false;
            }
            state = self
                .condvar
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Becomes ready when the call is cancelled or over.
    pub(super) async fn stopped(&self) {
        self.wait_until(Self::is_stopped).await;
    }

    /// Becomes ready when there is room, or the call is cancelled or over.
    pub(super) async fn writable(&self) {
        self.wait_until(|channel| {
            channel.is_stopped() || channel.state().queue.len() < channel.capacity
        })
        .await;
    }

    async fn wait_until(&self, ready: impl Fn(&Self) -> bool) {
        let mut changes = self.changed.subscribe();
        while !ready(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn notify(&self) {
        self.condvar.notify_all();
        self.notify_futures();
    }

    fn notify_futures(&self) {
        self.changed.send_replace(());
    }

    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
