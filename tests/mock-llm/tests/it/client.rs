//! A client with nothing between it and the socket, and legal requests to send.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use conjure_mock_llm::{MockLlm, Reply, Request, Script, Wire};
use serde_json::{Value, json};

/// What the client reads before its deadline counts as everything.
const DEADLINE: Duration = Duration::from_secs(20);

/// The smallest legal request.
pub(crate) fn ask(stream: bool) -> Value {
    json!({
        "model": "claude-test",
        "max_tokens": 100,
        "stream": stream,
        "messages": [{"role": "user", "content": "Hello"}],
    })
}

/// A mock that gives one reply.
pub(crate) fn mock(reply: impl Into<Reply>) -> MockLlm {
    MockLlm::start_blocking(Script::new().reply(reply)).unwrap()
}

/// One request on a connection of its own, read to the end.
pub(crate) fn exchange(mock: &MockLlm, body: &Value) -> Response {
    let mut client = Client::connect(mock.address());
    client.post("/v1/messages", body, "connection: close\r\n");
    client.read_all()
}

/// The answer to the smallest streaming request, given this reply.
pub(crate) fn stream(reply: impl Into<Reply>) -> Response {
    exchange(&mock(reply), &ask(true))
}

/// The smallest legal request of a wire.
pub(crate) fn ask_of(wire: Wire, stream: bool) -> Request {
    let body = match wire {
        Wire::Anthropic => ask(false),
        Wire::Responses => json!({
            "model": "gpt-test",
            "input": "Hello",
            "include": ["reasoning.encrypted_content"],
        }),
        Wire::Chat => {
            json!({"model": "deepseek-test", "messages": [{"role": "user", "content": "Hello"}]})
        }
        Wire::Gemini => json!({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}),
    };
    let mut request = Request::to(wire, "gemini-test", body);
    if stream {
        request = request.streaming();
    }
    if stream && wire == Wire::Chat {
        request.body["stream_options"] = json!({"include_usage": true});
    }
    request
}

/// The answer to the smallest legal request of a wire, given this reply.
pub(crate) fn answer(wire: Wire, stream: bool, reply: impl Into<Reply>) -> Response {
    exchange_of(&mock(reply), &ask_of(wire, stream))
}

/// One request of any wire on a connection of its own, read to the end.
pub(crate) fn exchange_of(mock: &MockLlm, request: &Request) -> Response {
    let mut client = Client::connect(mock.address());
    client.send_request(request);
    client.read_all()
}

pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { stream }
    }

    /// Sends a request with the headers that every call needs, and more.
    pub(crate) fn post(&mut self, path: &str, body: &Value, headers: &str) {
        let body = body.to_string();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: mock\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        self.send(head.as_bytes());
    }

    /// Sends a request of any wire on a connection that ends after it.
    pub(crate) fn ask(&mut self, wire: Wire, model: &str, body: &Value) {
        self.send_request(&Request::to(wire, model, body.clone()));
    }

    /// Sends a request as it is, on a connection that ends after it.
    pub(crate) fn send_request(&mut self, request: &Request) {
        let Request {
            method,
            path,
            query,
            headers,
            body,
            raw_body,
            ..
        } = request;
        let query = if query.is_empty() {
            String::new()
        } else {
            format!("?{query}")
        };
        // What is no JSON says itself what it is.
        let (media_type, body) = if body.is_null() {
            ("", raw_body.clone())
        } else {
            (
                "content-type: application/json\r\n",
                body.to_string().into_bytes(),
            )
        };
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = body.len();
        let head = format!(
            "{method} {path}{query} HTTP/1.1\r\nhost: mock\r\n{headers}connection: close\r\n\
             {media_type}content-length: {length}\r\n\r\n"
        );
        self.send(&[head.as_bytes(), &body].concat());
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads until the text so far ends with this.
    pub(crate) fn read_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            assert!(bytes.len() < 100_000, "`{end}` does not come");
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Reads until the connection ends and keeps nothing: how many bytes and line ends there were.
    pub(crate) fn count(&mut self) -> (u64, u64) {
        let mut buffer = vec![0; 64 * 1024];
        let (mut bytes, mut lines) = (0, 0);
        loop {
            let read = match self.stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            if read == 0 {
                return (bytes, lines);
            }
            bytes += u64::try_from(read).unwrap();
            let ends = buffer[..read].iter().filter(|byte| **byte == b'\n');
            lines += u64::try_from(ends.count()).unwrap();
        }
    }

    /// Reads until the connection ends, in order or not.
    pub(crate) fn read_all(&mut self) -> Response {
        let mut raw = Vec::new();
        let error = self
            .stream
            .read_to_end(&mut raw)
            .err()
            .map(|error| error.kind());
        Response::parse(&raw, error)
    }
}

/// An answer, taken apart.
#[derive(Debug, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The HTTP chunks as they were announced, or the body as one.
    pub(crate) chunks: Vec<String>,
    /// Whether the framing says that the body is complete.
    pub(crate) complete: bool,
    /// How the connection ended, if not in order.
    pub(crate) error: Option<ErrorKind>,
}

impl Response {
    fn parse(raw: &[u8], error: Option<ErrorKind>) -> Self {
        let end = raw.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, rest) = match end {
            Some(end) => (&raw[..end], &raw[end + 4..]),
            None => (raw, &raw[..0]),
        };
        let head = String::from_utf8_lossy(head).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        let header = |name: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|value| value.trim().to_owned())
        };
        let (chunks, complete) = if header("transfer-encoding:").is_some() {
            dechunk(rest)
        } else {
            let length = header("content-length:").map(|value| value.parse().unwrap());
            (
                vec![String::from_utf8_lossy(rest).into_owned()],
                length.is_none_or(|length: usize| length == rest.len()),
            )
        };
        Self {
            status,
            head,
            chunks,
            complete,
            error,
        }
    }

    pub(crate) fn body(&self) -> String {
        self.chunks.concat()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self
            .head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| *key == name)?;
        Some(value)
    }

    /// The data of each event; a string where it is no JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.body()
            .lines()
            .filter_map(|line| line.strip_prefix("data: ").map(str::to_owned))
            .map(|data| serde_json::from_str(&data).unwrap_or(Value::String(data)))
            .collect()
    }

    /// The names of the events, where they have one.
    pub(crate) fn names(&self) -> Vec<String> {
        self.body()
            .lines()
            .filter_map(|line| line.strip_prefix("event: ").map(str::to_owned))
            .collect()
    }

    /// The types of the events.
    pub(crate) fn kinds(&self) -> Vec<String> {
        self.events()
            .iter()
            .map(|event| event["type"].as_str().unwrap_or("?").to_owned())
            .collect()
    }
}

fn dechunk(mut rest: &[u8]) -> (Vec<String>, bool) {
    let mut chunks = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            return (chunks, false);
        };
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        rest = &rest[end + 2..];
        if size == 0 {
            return (chunks, rest == b"\r\n");
        }
        let have = size.min(rest.len());
        chunks.push(String::from_utf8_lossy(&rest[..have]).into_owned());
        if rest.len() < size + 2 {
            return (chunks, false);
        }
        rest = &rest[size + 2..];
    }
}
