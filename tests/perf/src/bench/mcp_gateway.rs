//! What `conjure mcp serve` adds to a call when it stands between a client and a stdio server.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::on_runtime;
use crate::figure::{Figure, TIMES, short};
use crate::mcp_client::McpClient;
use crate::samples::{Samples, us};
use crate::shipped::BenchArtifacts;

/// Microseconds that it may add, and those of the same call to the server itself on the machine for
/// which that was said.
const TARGET: f64 = 100.0;
const BARE: f64 = 34.0;

/// How many calls one way are made before the next way has its turn, how many of the first do not
/// count, and how often each way has a turn: what one way left in the caches is not charged to
/// another, and what else the machine does hits all of them.
const TURN: usize = 120;
const WARM_UP: usize = 20;
const TURNS: usize = 30;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let (plugin, server) = (shipped.mcp()?.to_owned(), shipped.mcp_server()?.to_owned());
    let program = shipped.program()?.to_owned();
    on_runtime(async move {
        let dir = tempfile::tempdir()?;
        let session = dir.path().join("session.toml");
        std::fs::write(
            &session,
            format!(
                "[[backend]]\nkind = \"mcp\"\nprefix = \"none\"\n[backend.config.servers.s]\n\
                 command = {}\nera = \"legacy\"\n",
                json!(server)
            ),
        )?;
        let at = |path: &std::path::Path| path.display().to_string();
        let arguments = [
            "--plugin".to_owned(),
            at(&plugin),
            "--data-dir".to_owned(),
            at(&dir.path().join("data")),
            "mcp".to_owned(),
            "serve".to_owned(),
            "--stdio".to_owned(),
            "--isolation=in-process".to_owned(),
            "--config".to_owned(),
            at(&session),
        ];
        let direct = McpClient::start(&server, &[]).await?;
        let gateway = McpClient::start(&program, &arguments).await?;
        let own = std::env::current_exe()?;
        let relay = McpClient::start(&own, &["--relay".to_owned(), at(&server)]).await?;
        let text = "x".repeat(100);
        let ways = [&direct, &relay, &gateway];
        let mut took = ways.map(|_| Samples::default());
        for _ in 0..TURNS {
            for (way, took) in ways.iter().zip(&mut took) {
                for call in 0..TURN {
                    let begun = Instant::now();
                    way.echo("echo", &text).await?;
                    if call >= WARM_UP {
                        took.push(us(begun.elapsed()));
                    }
                }
            }
        }
        let [bare, copied, through] = took.map(|took| took.median());
        let method = "A call with 100 bytes by the official Rust SDK's client through `conjure mcp \
                      serve --stdio` to a stdio server, less the same call to the server itself, \
                      in turns of 100; the difference of the medians.";
        let note = format!(
            "{} µs against {} µs; a program in its place that only copies the bytes adds {} µs.",
            short(through),
            short(bare),
            short(copied - bare),
        );
        let added = through - bare;
        let ratio = "What it adds, divided by the same call to the server itself: the machine for \
                     which 100 µs were said does that in 34 µs.";
        Ok(vec![
            Figure::single("mcp_gateway", "µs", added, method)
                .at_most(TARGET)
                .note(note),
            Figure::single("mcp_gateway_ratio", TIMES, added / bare, ratio).at_most(TARGET / BARE),
        ])
    })
}
