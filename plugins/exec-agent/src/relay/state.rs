//! What a relay knows: who has the stream, what is under way in it in both directions, and the agent
//! at its end.

use std::collections::VecDeque;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::CONFIRM_BYTES;
use super::connection::StreamConnection;
use super::stream::SentStream;

/// The state of a relay.
pub(super) struct RelayState {
    /// Token of the first client.
    pub(super) token: Option<String>,
    /// Number of connections so far, which is the number of the newest.
    pub(super) count: u64,
    /// Number of clients that said who they are, and not yet what they want.
    pub(super) beginning: usize,
    /// The one that has the stream.
    pub(super) current: Option<StreamConnection>,
    /// The newest that had it.
    newest: u64,
    /// When something was heard last, or the last connection ended.
    pub(super) since: Instant,
    /// The number of the stream.
    pub(super) stream: Option<u64>,
    /// Bytes that the agent wrote.
    pub(super) out: SentStream,
    /// Bytes for the agent.
    pub(super) told: IncomingStream,
    /// A question, and how far the stream has to be given before it is answered.
    pub(super) question: Option<(u64, u64)>,
    pub(super) agent: Option<RelayAgent>,
    /// Description of the agent's exit.
    pub(super) over: Option<String>,
    pub(super) closed: bool,
}

/// The bytes on their way to the agent.
#[derive(Debug, Default)]
pub(super) struct IncomingStream {
    pub(super) waiting: VecDeque<Vec<u8>>,
    /// Number of bytes that came.
    pub(super) received: u64,
    /// Number of bytes that the agent has.
    delivered_bytes: u64,
    confirmed: u64,
    /// Number of bytes that are to be confirmed.
    pub(super) confirm: Option<u64>,
}

/// The agent. It is not waited for while this value is there, so that its number is its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct RelayAgent {
    pub(super) stream: u64,
    pub(super) pid: Pid,
    /// Whether the agent gets no more bytes.
    pub(super) ends: bool,
}

impl RelayState {
    pub(super) fn new() -> Self {
        Self {
            token: None,
            count: 0,
            beginning: 0,
            current: None,
            newest: 0,
            since: Instant::now(),
            stream: None,
            out: SentStream::default(),
            told: IncomingStream::default(),
            question: None,
            agent: None,
            over: None,
            closed: false,
        }
    }

    pub(super) fn is_current(&self, number: u64) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.number == number)
    }

    /// Whether a connection came before one that has had the stream.
    pub(super) fn is_before(&self, number: u64) -> bool {
        number < self.newest
    }

    /// Gives the stream to a connection, and ends the one that had it: that one may hang on a
    /// network that is gone. False when a newer one has had it.
    pub(super) fn take_over(&mut self, connection: StreamConnection) -> bool {
        if self.is_before(connection.number) {
            return false;
        }
        self.newest = connection.number;
        self.since = Instant::now();
        self.question = None;
        self.told.confirm = None;
        if let Some(before) = self.current.replace(connection) {
            before.end();
        }
        true
    }

    /// Whether the agent of a stream is there and is told more.
    pub(super) fn is_told(&self, stream: u64) -> bool {
        let agent = self.agent.as_ref();
        agent.is_some_and(|agent| agent.stream == stream && !agent.ends)
    }
}

impl IncomingStream {
    /// Takes bytes that came.
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        self.received += bytes.len() as u64;
        self.waiting.push_back(bytes);
    }

    /// Number of bytes that the agent does not have yet.
    pub(super) fn undelivered(&self) -> u64 {
        self.received - self.delivered_bytes
    }

    /// The agent has so many bytes more.
    pub(super) fn note_delivered(&mut self, bytes: u64) {
        self.delivered_bytes += bytes;
        if self.delivered_bytes - self.confirmed >= CONFIRM_BYTES {
            self.confirm_all();
            self.confirm = Some(self.delivered_bytes);
        }
    }

    /// Whoever comes back has heard how many there are.
    pub(super) fn confirm_all(&mut self) {
        self.confirmed = self.delivered_bytes;
    }
}

impl RelayAgent {
    /// Kills it. Older systems have no handles of processes, but its number does.
    pub(super) fn kill(self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }
}
