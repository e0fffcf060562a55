//! A turn with calls of 100 ms on four backends, two of them MCP: as long as the slowest one.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use conjure_host::Host;
use conjure_host::session::{BackendSpec, SessionSpec};
use serde_json::{Value, json};

use super::mcp_call::mcp;
use super::on_runtime;
use crate::figure::{Figure, TIMES, short};
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// How much longer than its slowest group a turn may take.
const TARGET: f64 = 1.15;

const ROUNDS: usize = 30;
const WARM_UP: usize = 3;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let (plugin, server) = (shipped.mcp()?.to_owned(), shipped.mcp_server()?.to_owned());
    let (skill, local) = (shipped.skill()?.to_owned(), shipped.local()?.to_owned());
    on_runtime(async move {
        let dir = tempfile::tempdir()?;
        let host = Host::builder()
            .data_dir(dir.path())
            .plugin_file(skill)
            .plugin_file(local)
            .plugin_file(plugin)
            .build()
            .await?;
        let slow = |server: &str| {
            let arguments = json!({ "steps": 1, "ms": 100 });
            json!({ "as": server, "tool": format!("{server}_progress"), "arguments": arguments })
        };
        let calls = [
            json!({ "as": "nap", "tool": "measured_nap", "arguments": {} }),
            json!({ "as": "bash", "tool": "local_bash_tool", "arguments": { "command": "sleep 0.1" } }),
            slow("one"),
            slow("two"),
        ];
        let whole = turns(&host, dir.path(), &server, &calls).await?;
        let mut slowest = Samples::default();
        let mut alone = Vec::new();
        for call in &calls {
            let turn = turns(&host, dir.path(), &server, std::slice::from_ref(call)).await?;
            alone.push(short(turn.median()));
            if slowest.len() == 0 || turn.median() > slowest.median() {
                slowest = turn;
            }
        }
        let method = "A scripted turn with a call of 100 ms on each of four backends (a native \
                      skill, the local executor, two MCP servers over stdio), from Session::chat \
                      to its answer; the median, over the median of a turn with the slowest of \
                      these calls alone.";
        let ratio = whole.median() / slowest.median();
        let figure = Figure::single("mcp_overlap", TIMES, ratio, method).at_most(TARGET);
        Ok(vec![figure.note(format!(
            "{} ms together; alone: {} ms.",
            short(whole.median()),
            alone.join(", "),
        ))])
    })
}

/// How long turns with these calls take, in milliseconds.
async fn turns(host: &Host, dir: &Path, server: &Path, calls: &[Value]) -> Result<Samples> {
    let script = dir.join("script.json");
    let steps = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    std::fs::write(&script, serde_json::to_vec(&steps)?)?;
    let mut samples = Samples::default();
    for round in 0..WARM_UP + ROUNDS {
        let session = host.session(spec(&script, server)?).await?;
        let begun = Instant::now();
        let answer = session.chat("Go").await?;
        let took = ms(begun.elapsed());
        anyhow::ensure!(answer.text == "Done.", "the answer is {answer:?}");
        anyhow::ensure!(took >= 100.0, "calls of 100 ms took {took} ms: one failed");
        session.close().await;
        if round >= WARM_UP {
            samples.push(took);
        }
    }
    Ok(samples)
}

fn spec(script: &Path, server: &Path) -> Result<SessionSpec> {
    // Modern servers are shared by sessions, so a turn does not begin with two starts.
    let config = |name: &str| {
        let server = json!({ "command": server, "args": ["modern"], "era": "modern", "cwd": "/" });
        json!({ "servers": { name: server } })
    };
    let instance = |name: &str| BackendSpec {
        name: Some(format!("mcp-{name}")),
        ..mcp(config(name))
    };
    let mut spec = SessionSpec::hybrid([
        BackendSpec::native(["measured"]),
        BackendSpec::local(Vec::<String>::new()),
        instance("one"),
        instance("two"),
    ]);
    spec.provider = Some("scripted".to_owned());
    spec.model = Some("script".to_owned());
    spec.script = Some(script.to_owned());
    spec.policy.allow = vec!["*".parse().context("a pattern")?];
    Ok(spec)
}
