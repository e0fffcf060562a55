//! A server over HTTP, and clients that are slow, many, or somebody else.

mod connections;
mod sessions;

use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{HttpAccess, McpHost, McpOptions};
use conjure_config::SessionSpec;
use conjure_runtime::{Host, HostBuilder};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The token of a server that is given no other.
const TOKEN: &str = "a-token-of-nobody";

/// A server until this is dropped.
struct Serving {
    address: String,
    end: CancellationToken,
    served: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Serving {
    async fn new(options: McpOptions, tokens: &[&str]) -> Self {
        Self::of(Host::builder(), options, tokens).await
    }

    /// Serves what the host of this builder has.
    async fn of(host: HostBuilder, options: McpOptions, tokens: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = host.data_dir(dir.path()).build().await.unwrap();
        let server = McpHost::new(host, SessionSpec::calls(&[], None), options).unwrap();
        let tokens = if tokens.is_empty() {
            &[TOKEN][..]
        } else {
            tokens
        };
        let access = HttpAccess {
            tokens: tokens
                .iter()
                .map(|token| SecretString::from(*token))
                .collect(),
            ..HttpAccess::default()
        };
        let server = server.listen(([127, 0, 0, 1], 0).into(), access);
        let server = server.await.unwrap();
        let (address, end) = (server.address().to_string(), CancellationToken::new());
        let until = end.clone();
        Self {
            address,
            end,
            served: tokio::spawn(async move { server.serve(until).await.unwrap() }),
            _dir: dir,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    /// The head of a request, with more headers and for a body of so many bytes. It has the usual
    /// token unless these have one.
    fn head(&self, method: &str, more: &str, bytes: usize) -> String {
        let token = match more.to_ascii_lowercase().contains("authorization:") {
            true => String::new(),
            false => format!("authorization: Bearer {TOKEN}\r\n"),
        };
        format!(
            "{method} /mcp HTTP/1.1\r\nhost: {}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\nconnection: close\r\n{token}{more}\
             content-length: {bytes}\r\n\r\n",
            self.address
        )
    }

    /// Posts a message on a connection of its own, and gives the whole answer.
    async fn post(&self, more: &str, body: &Value) -> String {
        self.send("POST", more, &body.to_string()).await
    }

    async fn send(&self, method: &str, more: &str, body: &str) -> String {
        let mut stream = self.connect().await;
        let request = self.head(method, more, body.len()) + body;
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    /// Ends the server, in time.
    async fn end(self) {
        self.end.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.served).await;
        ended.unwrap().unwrap();
    }
}

/// What comes until the other side closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    // A connection that is closed on unread bytes is reset, and that is an end too.
    let _ = read.unwrap();
    String::from_utf8(answer).unwrap()
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } } })
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}
