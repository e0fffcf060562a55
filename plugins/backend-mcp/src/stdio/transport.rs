//! The transport over a process's standard input and output, for rmcp's client.
//!
//! rmcp's own one cannot be told how long a line may be, answers output that is no message with
//! an error that no server expects, and loses what it cannot read whole. Answers to requests that
//! pass it by go to whoever waits for them, here where they are read.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStdin, ChildStdout};

use super::input::ServerInput;
use super::stderr::StderrTail;
use crate::link::Link;
use crate::skim::Skim;
use crate::wire;

/// Size of one read, in bytes.
const READ_BYTES: usize = 32 * 1024;
/// How many lines that are no messages are noted beside standard error.
const MAX_NOTED_LINES: usize = 20;

/// The pipes of a server.
pub(crate) struct StdioTransport {
    input: ServerInput,
    stdout: ChildStdout,
    /// What was read and not looked at: the beginning of a line.
    buffer: Vec<u8>,
    /// How much of the buffer has no line break.
    scanned: usize,
    /// A line that is too long is being passed over.
    oversized_line: Option<OversizedLine>,
    max_line_bytes: usize,
    messages: VecDeque<ServerJsonRpcMessage>,
    link: Arc<Link>,
    tail: StderrTail,
    skipped: usize,
}

/// A line that is too long.
#[derive(Default)]
struct OversizedLine {
    skim: Skim,
    /// Whoever waits for it was told.
    answered: bool,
}

impl StdioTransport {
    /// Over these pipes, with lines of at most `most` bytes.
    pub(crate) fn new(
        stdin: ChildStdin,
        stdout: ChildStdout,
        most: usize,
        link: Arc<Link>,
        tail: StderrTail,
    ) -> Self {
        Self {
            input: ServerInput::new(stdin),
            stdout,
            buffer: Vec::new(),
            scanned: 0,
            oversized_line: None,
            max_line_bytes: most,
            messages: VecDeque::new(),
            link,
            tail,
            skipped: 0,
        }
    }

    /// Where lines are written to the server.
    pub(crate) fn input(&self) -> &ServerInput {
        &self.input
    }

    /// Takes the lines out of the buffer that are whole.
    fn lines(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = buffer.as_slice();
        let mut searched = self.scanned;
        while let Some(end) = rest
            .get(searched..)
            .and_then(|new| new.iter().position(|byte| *byte == b'\n'))
        {
            let (line, after) = rest.split_at(searched + end);
            if self.oversized_line.is_some() {
                self.skip_oversized(line);
                self.oversized_line = None;
            } else {
                self.line(line);
            }
            rest = after.get(1..).unwrap_or_default();
            searched = 0;
        }
        if rest.len() > self.max_line_bytes || self.oversized_line.is_some() {
            if self.oversized_line.is_none() {
                self.skip(b"[a line that is too long]");
                self.oversized_line = Some(OversizedLine::default());
                // A print without a line break may come before it.
                let message = rest
                    .windows(wire::MESSAGE_START.len())
                    .position(|window| window == wire::MESSAGE_START);
                rest = rest.get(message.unwrap_or_default()..).unwrap_or_default();
            }
            self.skip_oversized(rest);
            rest = &[];
        }
        self.scanned = rest.len();
        if rest.len() == buffer.len() {
            self.buffer = buffer;
        } else {
            self.buffer = rest.to_vec();
        }
    }

    /// Looks at more of a line that is too long; its request gets an error as soon as it is known.
    fn skip_oversized(&mut self, piece: &[u8]) {
        let Some(line) = self.oversized_line.as_mut().filter(|line| !line.answered) else {
            return;
        };
        line.skim.feed(piece);
        if let Some(request) = line.skim.answered_request() {
            line.answered = true;
            let most = self.max_line_bytes;
            let why = format!("its answer is longer than {most} bytes and was left out");
            let answer = wire::error_in_place(request.clone(), why);
            self.messages.push_back(answer);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let read = wire::read(line);
        self.messages.extend(read.messages);
        if read.skipped > 0 {
            self.skip(line);
        }
    }

    fn skip(&mut self, line: &[u8]) {
        self.skipped += 1;
        self.link.note_skipped();
        if self.skipped <= MAX_NOTED_LINES {
            self.tail
                .push_excerpt("[no message, on standard output]", line);
        }
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        // Others can write too, and only the end of its input tells the server to end.
        self.input.close();
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let line = wire::line(&item);
        let input = self.input.clone();
        let sending = self.link.backlog().sending(&item);
        async move {
            let _sending = sending;
            input.write(line?).await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // Before anything is taken, so that nothing is lost when this future is dropped here.
            if !self.link.until_room().await {
                return None;
            }
            if let Some(message) = self.messages.pop_front() {
                self.link.note_activity();
                if let Some(message) = self.link.take(message, None)
                    && self.link.backlog().record(&message)
                {
                    return Some(message);
                }
                continue;
            }
            self.buffer.reserve(READ_BYTES);
            // Nothing is lost when this future is dropped here.
            match self.stdout.read_buf(&mut self.buffer).await {
                Ok(1..) => self.lines(),
                Ok(0) | Err(_) => {
                    let line = std::mem::take(&mut self.buffer);
                    if !line.is_empty() && self.oversized_line.is_none() {
                        self.line(&line);
                    }
                    if self.messages.is_empty() {
                        self.link.close("it closed its standard output");
                        return None;
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.input.close();
        self.link.close("the connection was closed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Duration;

    use rmcp::model::{ClientJsonRpcMessage, ClientResult, RequestId};
    use tokio::process::{Child, Command};

    use super::*;
    use crate::answer_backlog::MAX_UNANSWERED;
    use crate::secrets::Secrets;
    use crate::server_notices::ServerNotices;

    /// How long nothing has to come for it not to come.
    const SILENCE: Duration = Duration::from_millis(100);

    /// A program that asks for something a thousand times and then reads nothing.
    fn asking() -> (Child, StdioTransport) {
        let script = r#"i=0; while [ $i -lt 1000 ]; do
            echo "{\"jsonrpc\":\"2.0\",\"id\":$i,\"method\":\"ping\"}"; i=$((i+1)); done
            exec sleep 1000"#;
        let mut shell = Command::new("/bin/sh");
        let shell = shell.args(["-c", script]).kill_on_drop(true);
        let mut shell = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let outside = ServerNotices::new("s", Secrets::default(), |_| {});
        let link = Link::new(Arc::new(outside));
        let transport = StdioTransport::new(stdin, stdout, 1_000, link, StderrTail::default());
        (shell, transport)
    }

    #[tokio::test]
    async fn a_server_that_asks_and_asks_is_read_as_far_as_it_was_answered() {
        let (_shell, mut transport) = asking();
        for _ in 0..MAX_UNANSWERED {
            assert!(transport.receive().await.is_some());
        }
        let more = tokio::time::timeout(SILENCE, transport.receive()).await;
        assert!(more.is_err(), "it has no answer yet");
        let empty = ClientResult::empty(());
        let answer = ClientJsonRpcMessage::response(empty, RequestId::Number(0));
        transport.send(answer).await.unwrap();
        assert!(transport.receive().await.is_some());
        let more = tokio::time::timeout(SILENCE, transport.receive()).await;
        assert!(more.is_err(), "it has one answer");
    }
}
