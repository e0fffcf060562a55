//! MCP servers of a test: the difficult one of ours, started by sessions or over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use conjure_kit::{Workspace, build_bin};
use serde_json::{Value, json};

use crate::server::{Server, connect};

/// A workspace with the plugin for MCP servers.
pub(crate) fn workspace() -> Workspace {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    workspace
}

/// The settings of a server with these traits, which sessions start.
pub(crate) fn program(traits: &[&str]) -> Value {
    let program = build_bin("conjure-mock-mcp", "mock-mcp").unwrap();
    json!({ "command": program.display().to_string(), "args": traits })
}

/// Saves an MCP server; its path.
pub(crate) fn saved(server: &Server, name: &str, settings: &Value) -> String {
    let new = json!({ "name": name, "settings": settings });
    let made = server.post("/api/v1/mcp-servers", &new).is(201);
    made.header("location").unwrap().to_owned()
}

/// A server over HTTP, until this is dropped.
pub(crate) struct OverHttp {
    child: Child,
    pub(crate) address: String,
}

impl OverHttp {
    pub(crate) fn new(traits: &[&str]) -> Self {
        let mut child = Command::new(build_bin("conjure-mock-mcp", "mock-mcp").unwrap())
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

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for OverHttp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Visits a page of this machine, as a browser does that follows no redirection: where it is sent.
pub(crate) fn visit(url: &str) -> Option<String> {
    let (address, path) = url.strip_prefix("http://")?.split_once('/')?;
    let mut stream = connect(address.parse().unwrap());
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let mut lines = answer.lines();
    let location = lines.find_map(|line| line.strip_prefix("location: "));
    location.map(|location| location.trim().to_owned())
}
