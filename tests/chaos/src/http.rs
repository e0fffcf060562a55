//! A client of the HTTP API: requests, and streams of events that are left and taken up again.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use conjure_core::chat::EventId;
use serde_json::Value;

/// How long an answer, or a sign of life of a stream, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// How often a stream without events looks whether it is to be left.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The token of every server that is asked.
pub const TOKEN: &str = "a-token-of-nobody";

/// A server.
#[derive(Debug, Clone, Copy)]
pub struct Api(pub SocketAddr);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body: JSON, or null where it is none.
    pub body: Value,
}

impl Api {
    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn ask(
        self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> io::Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut head = String::new();
        if !body.is_empty() {
            let length = body.len();
            head = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
        }
        if let Some(key) = key {
            head.push_str(&format!("idempotency-key: {key}\r\n"));
        }
        let mut stream = self.send(method, path, &head, &body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(truncated_error)?;
        Ok(Answer {
            status: status(head).ok_or_else(truncated_error)?,
            body: serde_json::from_str(body).unwrap_or_default(),
        })
    }

    /// Follows a thread from behind an event on.
    ///
    /// # Errors
    /// When the server does not answer, or not with a stream.
    pub fn follow(self, thread: &str, after: Option<EventId>) -> io::Result<Events> {
        let path = format!("/api/v1/threads/{thread}/events");
        let after = after.map(|id| format!("last-event-id: {}.{}\r\n", id.epoch, id.seq));
        let stream = self.send("GET", &path, &after.unwrap_or_default(), "")?;
        let mut events = Events {
            lines: BufReader::new(stream),
            line: Vec::new(),
        };
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if events.lines.read_line(&mut head)? == 0 {
                return Err(truncated_error());
            }
        }
        if status(&head) != Some(200) {
            return Err(io::Error::new(ErrorKind::InvalidData, head));
        }
        events
            .lines
            .get_ref()
            .set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(events)
    }

    /// Sends a request of HTTP/1.0: its answer comes without chunks, and the connection ends with it.
    fn send(self, method: &str, path: &str, head: &str, body: &str) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.0)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n{head}\r\n{body}",
            self.0
        );
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }
}

fn status(head: &str) -> Option<u16> {
    head.split(' ').nth(1)?.parse().ok()
}

fn truncated_error() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the answer is cut off")
}

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    lines: BufReader<TcpStream>,
    /// What came of a line.
    line: Vec<u8>,
}

impl Events {
    /// The next event; nothing when none came until then.
    ///
    /// # Errors
    /// When the stream is over, or holds something else.
    pub fn next(&mut self, until: Instant) -> io::Result<Option<(EventId, Value)>> {
        let mut id = None;
        loop {
            match self.lines.read_until(b'\n', &mut self.line) {
                Ok(_) if !self.line.ends_with(b"\n") => return Err(truncated_error()),
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    // An event that began comes whole.
                    if id.is_none() && self.line.is_empty() && Instant::now() >= until {
                        return Ok(None);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            self.line.clear();
            let wrong = || io::Error::new(ErrorKind::InvalidData, line.clone());
            match line.trim_end().split_once(": ") {
                Some(("id", text)) => id = Some(number(text).ok_or_else(wrong)?),
                Some(("data", data)) => {
                    let data = serde_json::from_str(data).map_err(|_| wrong())?;
                    return Ok(Some((id.ok_or_else(wrong)?, data)));
                }
                // A stream that only shows that it lives is left too.
                _ if id.is_none() && Instant::now() >= until => return Ok(None),
                _ => {}
            }
        }
    }
}

fn number(text: &str) -> Option<EventId> {
    let (epoch, seq) = text.split_once('.')?;
    Some(EventId {
        epoch: epoch.parse().ok()?,
        seq: seq.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    /// A server that takes one request and gives these pieces, some time apart.
    fn server(pieces: &'static [&'static str]) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                std::thread::sleep(3 * POLL_INTERVAL);
            }
        });
        Api(address)
    }

    #[test]
    fn an_event_comes_whole_however_it_is_cut() {
        let api = server(&[
            "HTTP/1.1 200 OK\r\n\r\nretry: 1000\n\nid: 2.1",
            "7\nevent: done\nda",
            "ta: {\"a\":1}\n\n: alive\n\n",
            "id: 2.18\ndata: {\"a\"",
        ]);
        let mut events = api.follow("t", None).unwrap();
        let later = Instant::now() + ANSWER_TIMEOUT;
        let id = EventId { epoch: 2, seq: 17 };
        assert_eq!(events.next(later).unwrap(), Some((id, json!({ "a": 1 }))));
        // Half an event is none, and the stream is over.
        let error = events.next(later).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_stream_without_events_is_left() {
        let api = server(&["HTTP/1.1 200 OK\r\n\r\n", "", "", "", "", "", ""]);
        let mut events = api.follow("t", None).unwrap();
        assert_eq!(events.next(Instant::now() + POLL_INTERVAL).unwrap(), None);
    }

    #[test]
    fn an_answer_has_its_status_and_body() {
        let api = server(&["HTTP/1.1 404 Not Found\r\na: b\r\n\r\n{\"a\"", ":2}"]);
        let answer = api.ask("GET", "/", None, None).unwrap();
        assert_eq!((answer.status, answer.body), (404, json!({ "a": 2 })));
    }
}
