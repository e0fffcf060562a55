//! A server over HTTP, and requests to it that no client of the protocol makes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::stage::mock;

/// A server that listens; dropping it ends it.
pub(super) struct Listening {
    child: Child,
    pub(super) address: String,
}

impl Listening {
    pub(super) fn new(traits: &[&str]) -> Self {
        let mut child = Command::new(mock())
            .arg("--http")
            .args(traits)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        Self { child, address }
    }

    pub(super) fn config(&self) -> Value {
        json!({
            "url": format!("http://{}/mcp", self.address),
            "request_timeout_ms": 2_000,
        })
    }

    pub(super) fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.rsplit("\r\n\r\n").next().unwrap().trim().to_owned()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
