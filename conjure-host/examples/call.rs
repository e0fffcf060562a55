//! Calls without a model: one, and several that share a session's state.
//!
//! `cargo run -p conjure-host --example call`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_core::chat::FunctionCall;
use conjure_host::Host;
use conjure_host::session::SessionSpec;
use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::Execute;
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = tempfile::tempdir()?;
    let host = Host::builder()
        .data_dir(data.path())
        .skill(orders)
        .build()
        .await?;
    // A session of its own: what the skill counted is gone with it.
    let report = host.execute(place("tea"), &[], None).await?;
    println!("{}", report.output.joined_text());

    let calls = host.calls(SessionSpec::calls(&[], None)).await?;
    for item in ["bread", "salt"] {
        let report = calls.call(&place(item), &CancellationToken::new()).await?;
        println!("{}", report.output.joined_text());
    }
    let mut unknown = place("sugar");
    unknown.name = "orders_cancel".to_owned();
    if let Err(error) = calls.call(&unknown, &CancellationToken::new()).await {
        println!("{error}");
    }
    calls.close().await;
    Ok(())
}

fn place(item: &str) -> FunctionCall {
    FunctionCall {
        call_id: format!("call-{item}"),
        name: "orders_execute".to_owned(),
        arguments: json!({ "command": format!("place {item}") }),
        arguments_text: None,
    }
}

/// Runs once a session: the number is that session's.
fn orders() -> Skill {
    let placed = Arc::new(AtomicU64::new(0));
    Skill::new("orders", "Places orders").execute("place ITEM", move |_cx, call: Execute| {
        let number = placed.fetch_add(1, Ordering::Relaxed) + 1;
        format!("order {number}: {}", call.command)
    })
}
