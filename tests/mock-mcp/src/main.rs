//! An MCP server for tests: both eras, stdio and streamable HTTP, and hostile on request.
//!
//! `mock-mcp [--http] [--log FILE] [--name NAME] [TRAIT...]`. Each trait is one way to be difficult; see
//! [`server::Traits`] and [`oauth::Login`]. With `--http` the first line of standard output is the
//! address. `--log` appends every start and every message that arrives. With `--name` it has
//! resources and prompts that no other has; see [`named_server`].

#![allow(
    clippy::indexing_slicing,
    reason = "a member of JSON that is not there is null, and that is meant"
)]

mod files;
mod http;
mod named_server;
mod oauth;
mod server;
mod tools;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use server::{Peer, Server, Traits};

#[tokio::main]
async fn main() {
    let mut traits = Traits::default();
    let mut over_http = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--http" => over_http = true,
            "--log" => traits.log = args.next().map(Into::into),
            "--name" => traits.name = args.next(),
            name => traits.names.push(name.to_owned()),
        }
    }
    let server = Arc::new(Server::new(traits));
    server.append_log(&json!({ "start": std::process::id() }));
    server.check_start().await;
    if over_http {
        http::serve(server).await;
    } else {
        stdio(server).await;
    }
}

/// Serves standard input and output.
async fn stdio(server: Arc<Server>) {
    let (out, mut lines) = mpsc::unbounded_channel::<String>();
    let writer = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(line) = lines.recv().await {
            if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
                return;
            }
        }
    });
    if server.has("ignore-term") {
        tokio::spawn(async {
            let kind = tokio::signal::unix::SignalKind::terminate();
            if let Ok(mut signals) = tokio::signal::unix::signal(kind) {
                while signals.recv().await.is_some() {}
            }
        });
    }
    let peer = Peer::new(out);
    if !server.has("modern") {
        server.notify_changes(&peer);
    }
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = input.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            server.append_log(&json!({ "garbage": line }));
            continue;
        };
        server.append_log(&message);
        Server::take(&server, &peer, message).await;
    }
    server.append_log(&json!({ "eof": std::process::id() }));
    if server.has("ignore-eof") {
        std::future::pending::<()>().await;
    }
    drop(peer);
    writer.abort();
}
