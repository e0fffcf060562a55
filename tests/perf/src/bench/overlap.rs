//! A turn with calls on two backends: it takes as long as the slower one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use conjure_core::chat::Content;
use conjure_host::Host;
use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_host::store;
use serde_json::{Value, json};

use super::on_runtime;
use crate::figure::{Figure, short};
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Milliseconds that a turn may take more than its slowest group.
const TARGET: f64 = 2.0;

const ROUNDS: usize = 40;
const WARM_UP: usize = 3;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let (skill, local) = (shipped.skill()?.to_owned(), shipped.local()?.to_owned());
    on_runtime(async move {
        let durable = Turns::measure(&skill, &local, true).await?;
        let memory = Turns::measure(&skill, &local, false).await?;
        let method = "A scripted turn (two model requests): two naps of 100 ms, one after the \
                      other in a native skill of a real library, and `sleep 0.1` by the local \
                      executor; from Session::chat to its answer, less what the two naps say that \
                      they took";
        Ok(vec![
            Figure::new(
                "overlap",
                "ms",
                &durable.beyond,
                &format!(
                    "{method}; the thread's log in a file, written through as the program does."
                ),
            )
            .at_most(TARGET)
            .note(durable.note()),
            Figure::new(
                "overlap_memory_log",
                "ms",
                &memory.beyond,
                &format!("{method}; the thread's log in memory."),
            )
            .at_most(TARGET)
            .note(memory.note()),
        ])
    })
}

struct Turns {
    total: Samples,
    beyond: Samples,
}

impl Turns {
    async fn measure(skill: &Path, local: &Path, durable: bool) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let script = script(dir.path())?;
        let mut builder = Host::builder()
            .data_dir(dir.path())
            .plugin_file(skill)
            .plugin_file(local);
        if durable {
            builder = builder.log(store::open(dir.path()).await?);
        }
        let host = builder.build().await?;
        let (mut whole, mut beyond) = (Samples::default(), Samples::default());
        for round in 0..WARM_UP + ROUNDS {
            let session = host.session(spec(&script)?).await?;
            let begun = Instant::now();
            let answer = session.chat("Go").await?;
            let took = ms(begun.elapsed());
            anyhow::ensure!(answer.text == "Done.", "the answer is {answer:?}");
            let mut naps = 0.0;
            for output in outputs(&session.messages().await) {
                naps += output.parse::<f64>().unwrap_or(0.0) / 1e6;
            }
            anyhow::ensure!(naps > 200.0, "two naps took {naps} ms");
            session.close().await;
            if round >= WARM_UP {
                whole.push(took);
                beyond.push(took - naps);
            }
        }
        Ok(Self {
            total: whole,
            beyond,
        })
    }

    fn note(&self) -> String {
        format!("The whole turn takes {} ms.", short(self.total.median()))
    }
}

/// The texts that calls gave back.
fn outputs(messages: &[conjure_core::chat::Message]) -> Vec<String> {
    let parts = messages.iter().flat_map(|message| &message.content);
    parts
        .filter_map(|part| match &part.content {
            Content::FunctionCallOutput(output) => Some(output.joined_text()),
            _ => None,
        })
        .collect()
}

fn spec(script: &Path) -> Result<SessionSpec> {
    let mut spec = SessionSpec::hybrid([
        BackendSpec::native(["measured"]),
        BackendSpec::local(Vec::<String>::new()),
    ]);
    spec.provider = Some("scripted".to_owned());
    spec.model = Some("script".to_owned());
    spec.script = Some(script.to_owned());
    spec.policy.allow = vec!["*".parse().context("a pattern")?];
    Ok(spec)
}

fn script(dir: &Path) -> Result<PathBuf> {
    let nap = |name: &str| json!({ "as": name, "tool": "measured_nap", "arguments": {} });
    let script: Value = json!({
        "steps": [
            { "calls": [
                nap("first"),
                { "as": "command", "tool": "local_bash_tool", "arguments": { "command": "sleep 0.1" } },
                nap("second"),
            ] },
            { "text": "Done." },
        ]
    });
    let path = dir.join("script.json");
    std::fs::write(&path, serde_json::to_vec(&script)?)?;
    Ok(path)
}
