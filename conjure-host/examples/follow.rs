//! Following a turn: what happens is told as it happens, and a call that asks is decided about.
//!
//! `cargo run -p conjure-host --example follow`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;

use conjure_core::chat::Event;
use conjure_core::turn::ApprovalDecision;
use conjure_host::Host;
use conjure_host::provider::{Script, Scripted};
use conjure_host::session::{ApprovalMode, BackendSpec, Session, SessionSpec};
use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::Execute;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = tempfile::tempdir()?;
    let host = Host::builder()
        .data_dir(data.path())
        .skill(lamp)
        .provider("script", model()?)
        .build()
        .await?;
    let mut spec = SessionSpec::hybrid([BackendSpec::native(["lamp"])]);
    spec.provider = Some("script".to_owned());
    spec.working_dir = Some(data.path().to_owned());
    let session = host.session(spec).await?;
    // Without this a call that would ask is denied, since nobody is there.
    session.attend(ApprovalMode::Attended).await;
    let (answer, ()) = tokio::join!(session.chat("Light the lamp."), follow(&session));
    println!("answer: {}", answer?.text);
    session.close().await;
    Ok(())
}

/// Shows the events of a turn. A follower that is slow, or goes away, holds nothing up.
async fn follow(session: &Session) {
    let mut events = session.events_since_opened();
    loop {
        let stamped = events.next().await;
        match &stamped.event {
            Event::Approval { call, reason } => {
                println!("{} wants to run: {reason}", call.name);
                session.decide(&call.id, ApprovalDecision::Allow).await;
            }
            Event::ToolOutput { .. } => println!("it writes something"),
            Event::FunctionCallOutput(output) => println!("it ended: {}", output.call_id),
            Event::Done { .. } => break,
            _ => {}
        }
    }
}

fn lamp() -> Skill {
    Skill::new("lamp", "Lights a lamp").execute("on | off", |cx, call: Execute| {
        cx.stdout(b"click\n")?;
        Ok::<_, conjure_skill_sdk::Error>(format!("the lamp is {}", call.command))
    })
}

fn model() -> Result<Scripted, serde_json::Error> {
    let script: Script = serde_json::from_value(json!({ "steps": [
        { "calls": [{ "tool": "lamp_execute", "arguments": { "command": "on" } }] },
        { "text": "The lamp is lit." },
    ] }))?;
    Ok(Scripted::new(script, BTreeMap::new()))
}
