//! Our own difficult server, `mock-mcp`, and what talks to it from outside.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use conjure_kit::{Workspace, conjure_bin};
use serde_json::json;

use crate::wire::{Manner, OverStdio};

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

/// An older client of the session in a directory, over stdio.
pub(crate) fn served(workspace: &Workspace) -> OverStdio {
    served_in(workspace, false)
}

/// A client of the newer era, or of the older one, of the session in a directory, over stdio.
pub(crate) fn served_in(workspace: &Workspace, modern: bool) -> OverStdio {
    let mut command = Command::new(conjure_bin().unwrap());
    command.arg("--plugin-dir").arg(workspace.plugins());
    command.arg("--data-dir").arg(workspace.data_dir());
    command.args(["mcp", "serve", "--stdio", "-c"]);
    command.arg(workspace.work().join("session.toml"));
    let manner = Manner {
        modern,
        name: "client",
        capabilities: json!({}),
    };
    OverStdio::start(command, manner)
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
