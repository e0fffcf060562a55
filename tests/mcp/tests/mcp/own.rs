//! Our own difficult server, `mock-mcp`, and what talks to it from outside.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use conjure_kit::{Workspace, build_bin};

/// The program.
pub(crate) fn program() -> PathBuf {
    build_bin("conjure-mock-mcp", "mock-mcp").unwrap()
}

/// A directory with the MCP plugin and a session of one server, `s`, from lines of TOML.
pub(crate) fn session_of(server: &str) -> Workspace {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let session = format!(
        "[[backend]]\nkind = \"mcp\"\nprefix = \"none\"\n[backend.config.servers.s]\n{server}\n"
    );
    workspace.write("session.toml", session).unwrap();
    workspace
}

/// The server over HTTP, until this is dropped.
pub(crate) struct OverHttp {
    child: Child,
    pub(crate) address: String,
}

impl OverHttp {
    pub(crate) fn new(traits: &[&str]) -> Self {
        let mut child = Command::new(program())
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

    /// What it says to a request without a body.
    pub(crate) fn ask(&self, request: &str) -> String {
        let answer = http(&self.address, &format!("{request} HTTP/1.1"), "", "");
        answer.rsplit("\r\n\r\n").next().unwrap().trim().to_owned()
    }
}

impl Drop for OverHttp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole answer to a request, on a connection of its own; `more` are lines of headers.
pub(crate) fn http(address: &str, request: &str, more: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "{request}\r\nhost: {address}\r\nconnection: close\r\n{more}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
