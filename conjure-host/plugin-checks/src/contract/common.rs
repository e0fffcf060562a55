//! What every plugin does: answer a ping, refuse what it does not know or cannot read, end.

use std::time::Duration;

use conjure_abi::code;
use conjure_plugins::{CallOptions, PluginCallFailure};
use conjure_skill_sdk::protocol::{Empty, Manifest, Prompts, Resources, State, op};
use serde_json::{Value, json};

use super::bench::{Bench, Broken, CheckResult, SHUTDOWN, expect, refused, told};
use super::{CheckKind, ContractCheck};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommonCheck {
    Ping,
    Unknown,
    Garbage,
    State,
    Resources,
    Prompts,
    Shutdown,
}

pub(super) fn checks(manifest: &Manifest) -> Vec<ContractCheck> {
    // A backend lists what a session has, which is not open here.
    let lists = manifest.kind == "skill";
    let offered = [
        ("it answers a ping", CommonCheck::Ping, true),
        (
            "an operation that it does not know is refused",
            CommonCheck::Unknown,
            true,
        ),
        (
            "a request that is no JSON is refused",
            CommonCheck::Garbage,
            true,
        ),
        (
            "the state that it hands out is taken over by a new instance",
            CommonCheck::State,
            lists && manifest.has("state.export/1") && manifest.has("state.import/1"),
        ),
        (
            "its resources can be listed",
            CommonCheck::Resources,
            lists && manifest.has("resource.list/1"),
        ),
        (
            "its prompts can be listed",
            CommonCheck::Prompts,
            lists && manifest.has("prompt.list/1"),
        ),
        ("it ends when it is told to", CommonCheck::Shutdown, true),
    ];
    let offered = offered.into_iter().filter(|(_, _, is_there)| *is_there);
    offered
        .map(|(name, check, _)| ContractCheck::new(name, CheckKind::Common(check)))
        .collect()
}

pub(super) async fn run(check: CommonCheck, bench: &Bench) -> CheckResult {
    let session = bench.session(false);
    match check {
        CommonCheck::Ping => {
            let Empty {} = session.answer(op::PING, &Empty {}).await?;
            Ok(())
        }
        CommonCheck::Unknown => {
            let expected = "a fault with the code of what is not supported (1)";
            match session.ask::<Value>("no.such.operation", &json!({})).await {
                Err(PluginCallFailure::Fault { code, .. }) if code == code::UNSUPPORTED => {}
                Err(other) => return Err(Broken::new(expected, told(&other))),
                Ok(_) => return Err(Broken::new(expected, "a reply")),
            }
            still_there(bench).await
        }
        CommonCheck::Garbage => {
            let expected = "a fault, and that the next request works";
            let cut: &[&[u8]] = &[b"{\"body\"", b"", b"\xff\xfe", b"[]"];
            // What a tool of a skill takes, its schema says: it may be a number.
            let is_skill = bench.plugin.manifest().kind == "skill";
            let no_body: &[&[u8]] = if is_skill { &[] } else { &[b"{\"body\":7}"] };
            for garbage in cut.iter().chain(no_body) {
                let asked = session.instance().request(
                    some_operation(bench),
                    garbage.to_vec(),
                    CallOptions::default(),
                );
                match asked.await {
                    Err(failure) => drop(refused(failure, expected)?),
                    // Also an answer for the model may say that nothing fits.
                    Ok(reply) => {
                        let reply: Value = serde_json::from_slice(&reply).unwrap_or_default();
                        let says_so = reply.get("is_error") == Some(&Value::Bool(true));
                        expect(says_so, expected, || {
                            let sent = String::from_utf8_lossy(garbage);
                            format!("a reply to `{sent}`")
                        })?;
                    }
                }
            }
            still_there(bench).await
        }
        CommonCheck::State => {
            let state: State = session.answer(op::STATE_EXPORT, &Empty {}).await?;
            let next = bench.another_instance().await?;
            let state = State {
                version: bench.plugin.id().version.to_string(),
                ..state
            };
            let json = session.envelope(&state, Duration::from_secs(20));
            let taken = next
                .request(op::STATE_IMPORT, json, CallOptions::default())
                .await;
            next.close(SHUTDOWN).await;
            taken.map(drop).map_err(|failure| {
                Broken::new("that a new instance takes the state", failure.to_string())
            })
        }
        CommonCheck::Resources => {
            let _: Resources = session.answer(op::RESOURCE_LIST, &Empty {}).await?;
            Ok(())
        }
        CommonCheck::Prompts => {
            let _: Prompts = session.answer(op::PROMPT_LIST, &Empty {}).await?;
            Ok(())
        }
        CommonCheck::Shutdown => {
            let Empty {} = session.answer(op::SHUTDOWN, &Empty {}).await?;
            Ok(())
        }
    }
}

/// An operation of the plugin's kind that needs a body.
fn some_operation(bench: &Bench) -> &str {
    let manifest = bench.plugin.manifest();
    match manifest.kind.as_str() {
        "executor" => op::EXECUTOR_VIEW,
        "backend" => op::BACKEND_CALL,
        _ => manifest
            .tools
            .first()
            .map_or(op::SKILL_EXECUTE, |tool| tool.op.as_str()),
    }
}

async fn still_there(bench: &Bench) -> CheckResult {
    let Empty {} = bench.session(false).answer(op::PING, &Empty {}).await?;
    Ok(())
}
