//! What a relay knows: who has the stream, what is under way in it in both directions, and the agent
//! at its end.

use std::collections::VecDeque;
use std::process::ChildStdin;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::connection::StreamConnection;
use super::frame::RelayFrame;
use super::stream::SentStream;
use super::{CONFIRM_BYTES, RELAY_PIECE};

/// The state of a relay.
pub(super) struct RelayState {
    /// Token of the first client.
    pub(super) token: Option<String>,
    /// Number of connections so far, which is the number of the newest.
    pub(super) count: u64,
    /// Number of clients that said who they are, and not yet what they want.
    pub(super) handshakes: usize,
    /// The one that has the stream.
    pub(super) current: Option<StreamConnection>,
    /// The newest that had it.
    newest: u64,
    /// When something was heard last, or the last connection ended.
    pub(super) since: Instant,
    /// The number of the stream.
    pub(super) stream: Option<u64>,
    /// Bytes that the agent wrote.
    pub(super) outgoing: SentStream,
    /// Bytes for the agent.
    pub(super) incoming: IncomingStream,
    /// A question, and how far the stream has to be given before it is answered.
    pub(super) question: Option<(u64, u64)>,
    pub(super) agent: Option<RelayAgent>,
    /// Description of the agent's exit.
    pub(super) exit_description: Option<String>,
    pub(super) closed: bool,
}

/// The bytes on their way to the agent.
#[derive(Debug, Default)]
pub(super) struct IncomingStream {
    /// The agent's standard input, on which no write waits.
    pub(super) input: Option<Arc<ChildStdin>>,
    pub(super) pending: VecDeque<Vec<u8>>,
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
    pub(super) input_closed: bool,
}

impl RelayState {
    pub(super) fn new() -> Self {
        Self {
            token: None,
            count: 0,
            handshakes: 0,
            current: None,
            newest: 0,
            since: Instant::now(),
            stream: None,
            outgoing: SentStream::default(),
            incoming: IncomingStream::default(),
            question: None,
            agent: None,
            exit_description: None,
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
        self.incoming.confirm = None;
        if let Some(before) = self.current.replace(connection) {
            before.end();
        }
        true
    }

    /// Tells the connection that has the stream what there is to tell, as far as it takes that at
    /// once; the rest waits for the thread that writes to it. A connection that is over has the
    /// stream no more.
    pub(super) fn flush(&mut self) {
        while let Some(mut connection) = self.current.take() {
            if connection.unsent.is_empty() {
                connection.unsent = self.next_bytes(&mut connection.end_sent);
            }
            let is_told_all = connection.unsent.is_empty();
            let sent = connection.send();
            if sent.is_err() {
                connection.end();
                self.since = Instant::now();
                return;
            }
            self.current = Some(connection);
            if is_told_all || matches!(sent, Ok(false)) {
                return;
            }
        }
    }

    /// The next frames for the connection that has the stream; none when it was told everything.
    fn next_bytes(&mut self, is_told_end: &mut bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(count) = self.incoming.confirm.take() {
            bytes.extend(RelayFrame::Received(count).encode());
        }
        match self.outgoing.next(RELAY_PIECE) {
            Some(piece) => bytes.extend(RelayFrame::Stream(piece).encode()),
            None => {
                if let Some(how) = self.exit_description.clone().filter(|_| !*is_told_end) {
                    *is_told_end = true;
                    bytes.extend(RelayFrame::AgentEnded(how).encode());
                }
            }
        }
        let given = self.outgoing.sent();
        if let Some((question, _)) = self.question.take_if(|(_, from)| given >= *from) {
            bytes.extend(RelayFrame::Answer(question).encode());
        }
        bytes
    }

    /// Whether a connection has the stream and takes nothing more at once.
    pub(super) fn is_blocked(&self, number: u64) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.number == number && !current.unsent.is_empty())
    }

    /// Whether the agent of a stream is there and is told more.
    pub(super) fn takes_input(&self, stream: u64) -> bool {
        let agent = self.agent.as_ref();
        agent.is_some_and(|agent| agent.stream == stream && !agent.input_closed)
    }
}

impl IncomingStream {
    /// A stream to an agent's standard input.
    pub(super) fn to(input: ChildStdin) -> Self {
        Self {
            input: Some(Arc::new(input)),
            ..Self::default()
        }
    }

    /// Takes bytes that came, and gives the agent what it takes at once.
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        self.received += bytes.len() as u64;
        self.pending.push_back(bytes);
        self.deliver();
    }

    /// Gives the agent what it takes at once. One that is gone is told about elsewhere.
    pub(super) fn deliver(&mut self) {
        let Some(input) = self.input.clone() else {
            return;
        };
        while let Some(piece) = self.pending.front_mut() {
            let written = match rustix::io::write(&*input, piece) {
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => piece.len(),
            };
            drop(piece.drain(..written));
            if piece.is_empty() {
                self.pending.pop_front();
            }
            self.note_delivered(written as u64);
        }
    }

    /// Number of bytes that the agent does not have yet.
    pub(super) fn undelivered(&self) -> u64 {
        self.received - self.delivered_bytes
    }

    /// The agent has so many bytes more.
    fn note_delivered(&mut self, bytes: u64) {
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
