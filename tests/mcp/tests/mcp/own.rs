//! Our own difficult server, `mock-mcp`, and what talks to it from outside.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use conjure_kit::Workspace;

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
