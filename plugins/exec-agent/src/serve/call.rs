//! A call under way: what came for it, what it may send, and how it is woken.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use conjure_process_tree::Wake;

use super::lock;
use crate::WINDOW;
use crate::error::{AgentError, Result};
use crate::frame::AgentFrame;

/// The agent's outgoing stream, shared by all calls.
pub(super) struct FrameOutput(Mutex<File>);

impl FrameOutput {
    pub(super) fn new(file: File) -> Self {
        Self(Mutex::new(file))
    }

    /// Sends a frame, whole. When nobody takes it the stream is over, which its reader finds out.
    pub(super) fn send(&self, call: u32, frame: &AgentFrame) {
        self.write(&frame.encode(call));
    }

    fn write(&self, bytes: &[u8]) {
        let _ = lock(&self.0).write_all(bytes);
    }
}

/// A call that the agent serves.
pub(super) struct AgentCall {
    number: u32,
    output: Arc<FrameOutput>,
    state: Mutex<AgentCallState>,
    changed: Condvar,
    /// Readable after something changed.
    wake: Wake,
    /// A frame that waits for the next one, so that one write has both.
    pending_frame: Mutex<Option<AgentFrame>>,
}

#[derive(Default)]
struct AgentCallState {
    credit: u32,
    data: VecDeque<Vec<u8>>,
    ended: bool,
    cancelled: bool,
}

impl AgentCall {
    pub(super) fn new(number: u32, output: Arc<FrameOutput>) -> Result<Self> {
        let wake = Wake::new().map_err(|error| AgentError::new(error.to_string()))?;
        Ok(Self {
            number,
            output,
            state: Mutex::new(AgentCallState {
                credit: WINDOW,
                ..AgentCallState::default()
            }),
            changed: Condvar::new(),
            wake,
            pending_frame: Mutex::default(),
        })
    }

    /// Takes what came for it.
    pub(super) fn take(&self, frame: AgentFrame) {
        let mut state = lock(&self.state);
        match frame {
            AgentFrame::Data(bytes) => state.data.push_back(bytes),
            AgentFrame::End => state.ended = true,
            AgentFrame::Credit(more) => state.credit = state.credit.saturating_add(more),
            AgentFrame::Cancel => state.cancelled = true,
            _ => return,
        }
        drop(state);
        self.changed.notify_all();
        self.wake();
    }

    /// Makes it look again at what it waits for.
    pub(super) fn wake(&self) {
        self.wake.wake();
    }

    /// Readable once somebody woke it.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// From now on only who wakes it again does.
    pub(super) fn sleep_again(&self) {
        self.wake.clear();
    }

    pub(super) fn cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.cancelled() {
            return Err(AgentError::cancelled());
        }
        Ok(())
    }

    /// Number of bytes that may be sent now.
    pub(super) fn credit(&self) -> usize {
        lock(&self.state).credit as usize
    }

    pub(super) fn send(&self, frame: &AgentFrame) {
        self.output.send(self.number, frame);
    }

    /// Sends output or data, for which there is credit.
    pub(super) fn spend(&self, frame: &AgentFrame, bytes: usize) {
        self.spend_credit(bytes);
        self.send(frame);
    }

    fn spend_credit(&self, bytes: usize) {
        let spent = u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut state = lock(&self.state);
        state.credit = state.credit.saturating_sub(spent);
    }

    /// Keeps output, for which there is credit, until [`AgentCall::release`] or the last frame. One
    /// frame is held at most; another one sends it.
    pub(super) fn defer(&self, frame: AgentFrame, bytes: usize) {
        self.spend_credit(bytes);
        let before = lock(&self.pending_frame).replace(frame);
        if let Some(before) = before {
            self.send(&before);
        }
    }

    /// Sends what is held.
    pub(super) fn release(&self) {
        let held = lock(&self.pending_frame).take();
        if let Some(held) = held {
            self.send(&held);
        }
    }

    /// Sends the last frame, behind what is held.
    pub(super) fn send_last(&self, frame: &AgentFrame) {
        let held = lock(&self.pending_frame).take();
        let mut bytes = held.map_or_else(Vec::new, |held| held.encode(self.number));
        bytes.extend(frame.encode(self.number));
        self.output.write(&bytes);
    }

    /// Waits until there is credit, and says how much.
    pub(super) fn wait_for_credit(&self) -> Result<usize> {
        let state = self.wait_while(|state| state.credit == 0 && !state.cancelled);
        if state.cancelled {
            return Err(AgentError::cancelled());
        }
        Ok(state.credit as usize)
    }

    /// The next piece of data; nothing at the end.
    pub(super) fn data(&self) -> io::Result<Option<Vec<u8>>> {
        let waiting =
            |state: &AgentCallState| state.data.is_empty() && !state.ended && !state.cancelled;
        let mut state = self.wait_while(waiting);
        if state.cancelled {
            return Err(io::Error::other(AgentError::cancelled()));
        }
        let piece = state.data.pop_front();
        drop(state);
        if let Some(piece) = &piece {
            let more = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            self.send(&AgentFrame::Credit(more));
        }
        Ok(piece)
    }

    fn wait_while(
        &self,
        waiting: impl Fn(&AgentCallState) -> bool,
    ) -> MutexGuard<'_, AgentCallState> {
        let state = lock(&self.state);
        self.changed
            .wait_while(state, |state| waiting(state))
            .unwrap_or_else(PoisonError::into_inner)
    }
}
