//! A provider for hours: replies in the wire's form as the mock provider writes them, of which nothing
//! is kept. (The mock provider itself keeps every request.)

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use conjure_mock_llm::{Message, Request, Wire};
use serde_json::{Value, json};

/// What a turn's text begins with that is to call a tool.
pub(crate) const CALLS: &str = "Run it";

/// A provider on loopback. Its threads end with the process.
pub(crate) struct Model(SocketAddr);

impl Model {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = thread::Builder::new().stack_size(256 * 1024);
                // Of a connection that breaks off the host makes a new one.
                let _ = serving.spawn(move || serve(stream));
            }
        });
        Ok(Self(address))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0)
    }
}

/// Answers the requests of a connection.
fn serve(stream: TcpStream) -> io::Result<()> {
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
        let reply = reply(body);
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
fn reply(body: Value) -> Vec<u8> {
    let messages = body.get("messages").and_then(Value::as_array);
    let newest = messages.and_then(|messages| messages.last()).cloned();
    let message = match newest.unwrap_or_default().to_string().contains(CALLS) {
        true => {
            let arguments = json!({ "command": "echo done", "description": "" });
            let count = messages.map_or(0, Vec::len);
            Message::new().tool_use(format!("toolu_{count}"), "local_bash_tool", arguments)
        }
        false => Message::new().text("It is as it was, word by word. ".repeat(20)),
    };
    message.body(&Request::to(Wire::Anthropic, "a-model", body).streaming())
}
