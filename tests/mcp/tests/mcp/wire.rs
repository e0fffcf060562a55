//! A client that speaks the protocol by hand, so that a test sees every byte of an answer: over
//! stdio and over HTTP, in both eras.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// What a program sends to and hears from a server.
pub(crate) trait Wire {
    /// The answer to a request: its result, or `{"error": …}`.
    fn ask(&mut self, method: &str, params: &Value) -> Value;

    /// All entries of a list.
    fn list(&mut self, method: &str, field: &str) -> Vec<Value> {
        let mut listed = self.ask(method, &json!({}));
        match listed[field].take() {
            Value::Array(entries) => entries,
            _ => Vec::new(),
        }
    }
}

/// How a client speaks.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) modern: bool,
    pub(crate) name: &'static str,
    pub(crate) capabilities: Value,
}

impl Manner {
    fn initialize(&self) -> Value {
        json!({
            "protocolVersion": "2025-11-25", "capabilities": self.capabilities,
            "clientInfo": { "name": self.name, "version": "1" },
        })
    }

    fn request(&self, id: u64, method: &str, params: &Value) -> Value {
        let mut params = params.clone();
        if self.modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": self.name, "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            });
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    /// What an answer says, without what only its era demands of every result.
    fn answer(&self, message: &Value) -> Value {
        if let Some(error) = message.get("error") {
            return json!({ "error": error });
        }
        let mut result = message["result"].clone();
        if let (true, Some(fields)) = (self.modern, result.as_object_mut()) {
            assert_eq!(
                fields.remove("resultType"),
                Some(json!("complete")),
                "{message}"
            );
            fields.remove("ttlMs");
            fields.remove("cacheScope");
        }
        result
    }
}

/// A server over stdio.
pub(crate) struct OverStdio {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    manner: Manner,
    next: u64,
    /// What came while answers were waited for.
    heard: VecDeque<Value>,
    /// What it says of itself in the handshake.
    pub(crate) info: Value,
}

impl OverStdio {
    pub(crate) fn start(mut command: Command, manner: Manner) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self {
            child,
            input,
            output,
            manner,
            next: 0,
            heard: VecDeque::new(),
            info: Value::Null,
        };
        if server.manner.modern {
            server.info = server.ask("server/discover", &json!({}));
        } else {
            let initialize = server.manner.initialize();
            server.info = server.ask("initialize", &initialize);
            server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        server
    }

    /// Sends a request whose answer nobody waits for.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let request = self.manner.request(self.next, method, params);
        self.send(&request);
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// The next message of the server's.
    fn read(&mut self) -> Value {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "it ended");
            if let Ok(message) = serde_json::from_str(&line) {
                return message;
            }
        }
    }

    /// Waits for a notification.
    pub(crate) fn until_told(&mut self, method: &str) -> Value {
        loop {
            let message = self.heard.pop_front();
            let message = message.unwrap_or_else(|| self.read());
            if message["method"] == method {
                return message;
            }
        }
    }
}

impl Wire for OverStdio {
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let request = self.manner.request(self.next, method, params);
        self.send(&request);
        loop {
            let message = self.read();
            if message["id"] == request["id"] && message.get("method").is_none() {
                return self.manner.answer(&message);
            }
            self.heard.push_back(message);
        }
    }
}

impl Drop for OverStdio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server over HTTP, with a connection a request.
pub(crate) struct Http {
    address: String,
    token: String,
    manner: Manner,
    session: Option<String>,
    next: u64,
    pub(crate) info: Value,
}

impl Http {
    pub(crate) fn connect(url: &str, token: &str, manner: Manner) -> Self {
        let address = url.strip_prefix("http://").unwrap();
        let mut server = Self {
            address: address.strip_suffix("/mcp").unwrap().to_owned(),
            token: token.to_owned(),
            manner,
            session: None,
            next: 0,
            info: Value::Null,
        };
        if server.manner.modern {
            server.info = server.ask("server/discover", &json!({}));
        } else {
            let initialize = server.manner.initialize();
            server.info = server.ask("initialize", &initialize);
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            server.post("notifications/initialized", &initialized);
        }
        server
    }

    /// Headers and body of the answer.
    fn post(&self, method: &str, message: &Value) -> (String, Vec<u8>) {
        let body = message.to_string();
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n",
            self.address,
            self.token,
            body.len()
        );
        if self.manner.modern {
            head += &format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n");
            let name = message["params"]
                .get("name")
                .or(message["params"].get("uri"));
            if let Some(name) = name.and_then(Value::as_str) {
                head += &format!("mcp-name: {name}\r\n");
            }
        }
        if let Some(session) = &self.session {
            head += &format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
        }
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{head}\r\n{body}").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let body = answer.split_off(end.unwrap() + 4);
        let head = String::from_utf8(answer).unwrap().to_lowercase();
        let body = match head.contains("transfer-encoding: chunked") {
            true => joined(&body),
            false => body,
        };
        (head, body)
    }
}

/// The bytes of a body that came in chunks.
fn joined(mut chunked: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunked.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&chunked[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        body.extend_from_slice(&chunked[end + 2..end + 2 + size]);
        chunked = &chunked[end + 4 + size..];
    }
    body
}

impl Wire for Http {
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let request = self.manner.request(self.next, method, params);
        let (head, body) = self.post(method, &request);
        if let Some(line) = head
            .lines()
            .find(|line| line.starts_with("mcp-session-id: "))
        {
            self.session = line.split_once(": ").map(|(_, id)| id.to_owned());
        }
        let body = String::from_utf8(body).unwrap();
        let lines = body.lines();
        let messages = lines.map(|line| line.strip_prefix("data:").unwrap_or(line));
        let mut messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let answer = messages
            .find(|message| message["id"] == request["id"] && message.get("method").is_none());
        let answer = answer.unwrap_or_else(|| panic!("{method}: no answer in {head}{body}"));
        self.manner.answer(&answer)
    }
}
