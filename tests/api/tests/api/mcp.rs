//! MCP servers of a test: the difficult one of ours, started by sessions or saved.

use conjure_kit::{MockMcp, Workspace};
use serde_json::{Value, json};

use crate::server::Server;

/// A workspace with the plugin for MCP servers.
pub(crate) fn workspace() -> Workspace {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    workspace
}

/// The settings of a server with these traits, which sessions start.
pub(crate) fn program(traits: &[&str]) -> Value {
    let program = MockMcp::program().unwrap();
    json!({ "command": program.display().to_string(), "args": traits })
}

/// Saves an MCP server; its path.
pub(crate) fn saved(server: &Server, name: &str, settings: &Value) -> String {
    let new = json!({ "name": name, "settings": settings });
    let made = server.post("/api/v1/mcp-servers", &new).is(201);
    made.header("location").unwrap().to_owned()
}
