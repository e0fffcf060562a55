//! A provider for hours: replies in the wire's form as the mock provider writes them, of which nothing
//! is kept. (The mock provider itself keeps every request.)

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use conjure_mock_llm::{Message, Request, Wire};
use serde_json::{Value, json};

/// What a turn's text is that is to call a tool: of the local executor, of a native skill, of a server
/// of MCP.
pub(crate) const CALLS: [&str; 3] = ["Run it here", "Run it in place", "Run it over there"];

/// A provider on loopback. Its threads end with the process.
pub(crate) struct Model {
    address: SocketAddr,
    failed_calls: Arc<AtomicU64>,
}

impl Model {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let failed_calls = Arc::new(AtomicU64::new(0));
        let failed = Arc::clone(&failed_calls);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = thread::Builder::new().stack_size(256 * 1024);
                let failed = Arc::clone(&failed);
                // Of a connection that breaks off the host makes a new one.
                let _ = serving.spawn(move || serve(stream, &failed));
            }
        });
        Ok(Self {
            address,
            failed_calls,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many results were errors, those of calls that were cancelled too.
    pub(crate) fn failed_calls(&self) -> u64 {
        self.failed_calls.load(Ordering::Relaxed)
    }
}

/// Answers the requests of a connection.
fn serve(stream: TcpStream, failed: &AtomicU64) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let reply = reply(body, failed);
        let stream = lines.get_mut();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
            reply.len()
        )?;
        stream.write_all(&reply)?;
    }
}

/// A call where the newest message asks for one, else a text.
fn reply(body: Value, failed: &AtomicU64) -> Vec<u8> {
    let messages = body.get("messages").and_then(Value::as_array);
    let newest = messages.and_then(|messages| messages.last());
    let newest = newest.map(Value::to_string).unwrap_or_default();
    if newest.contains("\"is_error\":true") {
        failed.fetch_add(1, Ordering::Relaxed);
    }
    let tool = CALLS.iter().position(|said| newest.contains(said));
    let call = |name: &str, arguments: Value| {
        let count = messages.map_or(0, Vec::len);
        Message::new().tool_use(format!("toolu_{count}"), name, arguments)
    };
    let message = match tool {
        Some(0) => call(
            "local_bash_tool",
            json!({ "command": "echo done", "description": "" }),
        ),
        Some(1) => call("log-fetcher_execute", json!({ "command": "fetch app.log" })),
        Some(_) => call("notes_echo", json!({ "text": "done" })),
        None => Message::new().text("It is as it was, word by word. ".repeat(20)),
    };
    message.body(&Request::to(Wire::Anthropic, "a-model", body).streaming())
}
