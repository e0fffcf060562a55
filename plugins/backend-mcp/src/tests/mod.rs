//! Tests through the real interface, with real servers.
//!
//! Names that begin with `trap` and a number are the traps of `conjure-host/docs/mcp.md`.

mod asking;
mod basics;
mod endings;
mod eras;
mod http;
mod instructions;
mod listening;
mod messages;
mod modes;
mod oauth;
mod one_uri;
mod peers;
mod sandboxed;
mod served;
mod several;
pub(crate) mod stage;
mod traps;
mod watching;

/// Where the registry makes connections.
const CONNECT: &str = "src/registry/connect.rs";

#[test]
fn no_connection_starts_outside_the_registry() {
    let mut files = vec![std::path::PathBuf::from("src")];
    let mut starting = Vec::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            files.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let starts = [
            "serve_client_with_",
            "launch(how",
            "Transport::with_client(",
        ];
        if !path.starts_with("src/tests") && starts.iter().any(|start| text.contains(start)) {
            starting.push(path.display().to_string());
        }
    }
    assert_eq!(starting, [CONNECT]);
}
