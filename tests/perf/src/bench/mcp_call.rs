//! A call of an MCP server's tool over stdio, against the official SDK's own client with the same
//! server.

use std::time::Instant;

use anyhow::{Result, ensure};
use conjure_core::chat::FunctionCall;
use conjure_host::Host;
use conjure_host::session::{BackendSpec, SessionSpec};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::on_runtime;
use crate::figure::{Figure, TIMES, short};
use crate::mcp_client::McpClient;
use crate::samples::{Samples, us};
use crate::shipped::BenchArtifacts;

/// How much longer than with the SDK's client it may take.
const TARGET: f64 = 1.7;

const ROUNDS: usize = 3_000;
const WARM_UP: usize = 300;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let (plugin, server) = (shipped.mcp()?.to_owned(), shipped.mcp_server()?.to_owned());
    on_runtime(async move {
        let dir = tempfile::tempdir()?;
        let host = Host::builder()
            .data_dir(dir.path())
            .plugin_file(plugin)
            .build()
            .await?;
        let config = json!({ "servers": { "s": { "command": server, "era": "legacy" } } });
        let calls = host.calls(SessionSpec::hybrid([mcp(config)])).await?;
        let theirs = McpClient::start(&server, &[]).await?;
        let text = "x".repeat(100);
        let call = FunctionCall {
            call_id: "toolu_01A09q90qw90lq917835lq9".to_owned(),
            name: "s_echo".to_owned(),
            arguments: json!({ "text": text }),
            arguments_text: None,
        };
        let (mut through, mut floor) = (Samples::default(), Samples::default());
        for round in 0..WARM_UP + ROUNDS {
            let begun = Instant::now();
            theirs.echo("echo", &text).await?;
            let bare = begun.elapsed();
            let begun = Instant::now();
            let report = calls.call(&call, &CancellationToken::new()).await?;
            let took = begun.elapsed();
            ensure!(!report.output.is_error, "a call failed: {report:?}");
            if round >= WARM_UP {
                floor.push(us(bare));
                through.push(us(took));
            }
        }
        calls.close().await;
        let method = "A call of a stdio server's tool with 100 bytes, from Calls::call to its \
                      report (routing, the MCP plugin, the server), over the same call by the \
                      official Rust SDK's client to a second process of the same server, in turn; \
                      the median of both, divided.";
        let ratio = through.median() / floor.median();
        let figure = Figure::single("mcp_call", TIMES, ratio, method).at_most(TARGET);
        Ok(vec![figure.note(format!(
            "{} µs against {} µs; the quick tenth: {} against {}.",
            short(through.median()),
            short(floor.median()),
            short(through.percentile(10)),
            short(floor.percentile(10)),
        ))])
    })
}

/// A backend of MCP servers.
pub(super) fn mcp(config: serde_json::Value) -> BackendSpec {
    BackendSpec {
        kind: "mcp".to_owned(),
        config: Some(config),
        ..BackendSpec::default()
    }
}
