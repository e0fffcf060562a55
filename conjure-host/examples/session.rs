//! A program that embeds the host: a skill of its own, and a session that uses it.
//!
//! `cargo run -p conjure-host --example session` needs no key, since a script plays the model. With
//! `anthropic` as the provider and a key in the environment, the rest stays as it is.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;

use conjure_host::Host;
use conjure_host::provider::{Script, Scripted};
use conjure_host::session::{BackendSpec, SessionSpec, ToolPreview};
use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::Execute;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = tempfile::tempdir()?;
    let host = Host::builder()
        .data_dir(data.path())
        .skill(stock)
        .provider("script", model()?)
        .build()
        .await?;
    let mut spec = SessionSpec::hybrid([BackendSpec::native(["stock"])]);
    spec.provider = Some("script".to_owned());
    spec.working_dir = Some(data.path().to_owned());
    // Nobody is there who could be asked.
    spec.policy.allow.push("stock_*".parse()?);
    let session = host.session(spec).await?;
    let tools = session.tool_preview().await;
    for route in tools.iter().flat_map(ToolPreview::routes) {
        println!("tool {} of {}", route.name, route.backend);
    }
    let answer = session.chat("How many screws are left?").await?;
    println!("answer: {}", answer.text);
    let cost = session.cost().await;
    println!("replies: {}", cost.total.replies);
    session.close().await;
    Ok(())
}

/// Knows what is in the warehouse. It could be a shared library as well: the calls are the same.
fn stock() -> Skill {
    Skill::new("stock", "Knows what is in the warehouse").execute(
        "count ITEM",
        |_cx, call: Execute| match call.command.strip_prefix("count ") {
            Some(item) => format!("{item}: 12"),
            None => "say: count ITEM".to_owned(),
        },
    )
}

/// Calls the skill, and says what came of it.
fn model() -> Result<Scripted, serde_json::Error> {
    let script: Script = serde_json::from_value(json!({ "steps": [
        { "calls": [{
            "as": "count",
            "tool": "stock_execute",
            "arguments": { "command": "count screws" },
        }] },
        { "text": "The warehouse says: {{count.text}}." },
    ] }))?;
    Ok(Scripted::new(script, BTreeMap::new()))
}
