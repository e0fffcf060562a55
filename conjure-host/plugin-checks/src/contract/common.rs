//! What every plugin does: answer a ping, refuse what it does not know or cannot read, end.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_abi::code;
use conjure_plugins::{CallOptions, LoadedPlugin, PluginCallFailure};
use conjure_skill_sdk::protocol::{Empty, Manifest, Prompts, Resources, State, op};
use serde_json::{Value, json};

use super::bench::{
    Bench, CheckFailure, CheckResult, SHUTDOWN_TIMEOUT, describe_failure, expect, refusal_message,
};
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
        (
            "it answers a ping",
            CommonCheck::Ping,
            manifest.has("conjure.ping/1"),
        ),
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
            has_state(manifest),
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
            let Empty {} = session.expect_reply(op::PING, &Empty {}).await?;
            Ok(())
        }
        CommonCheck::Unknown => {
            refuses_unknown(bench).await?;
            // And goes on doing so.
            refuses_unknown(bench).await
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
                    Err(failure) => drop(refusal_message(failure, expected)?),
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
            refuses_unknown(bench).await
        }
        CommonCheck::State => {
            let state: State = session.expect_reply(op::STATE_EXPORT, &Empty {}).await?;
            let next = bench.another_instance().await?;
            let state = State {
                version: bench.plugin.id().version.to_string(),
                ..state
            };
            let json = session.envelope(&state, Duration::from_secs(20));
            let taken = next
                .request(op::STATE_IMPORT, json, CallOptions::default())
                .await;
            next.close(SHUTDOWN_TIMEOUT).await;
            taken.map(drop).map_err(|failure| {
                CheckFailure::new("that a new instance takes the state", failure.to_string())
            })
        }
        CommonCheck::Resources => {
            let _: Resources = session.expect_reply(op::RESOURCE_LIST, &Empty {}).await?;
            Ok(())
        }
        CommonCheck::Prompts => {
            let _: Prompts = session.expect_reply(op::PROMPT_LIST, &Empty {}).await?;
            Ok(())
        }
        CommonCheck::Shutdown => match session.ask::<Empty>(op::SHUTDOWN, &Empty {}).await {
            Ok(Empty {}) => Ok(()),
            // It has nothing to end, and says so.
            Err(PluginCallFailure::Fault { code, .. }) if code == code::UNSUPPORTED => Ok(()),
            Err(other) => {
                let expected = "a reply to `conjure.shutdown`, or that it is not supported";
                Err(CheckFailure::new(expected, describe_failure(&other)))
            }
        },
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

/// What each plugin does that is there: it says that it does not know an operation.
async fn refuses_unknown(bench: &Bench) -> CheckResult {
    let expected = "a fault with the code of what is not supported (1)";
    let session = bench.session(false);
    match session.ask::<Value>("no.such.operation", &json!({})).await {
        Err(PluginCallFailure::Fault { code, .. }) if code == code::UNSUPPORTED => Ok(()),
        Err(other) => Err(CheckFailure::new(expected, describe_failure(&other))),
        Ok(_) => Err(CheckFailure::new(expected, "a reply")),
    }
}

/// Whether it has a state that moves to another build.
fn has_state(manifest: &Manifest) -> bool {
    manifest.kind == "skill" && manifest.has("state.export/1") && manifest.has("state.import/1")
}

/// Whether the state that an instance hands out is taken over by a new one, where a skill has one.
///
/// # Errors
/// What was said instead.
#[boxed]
pub async fn check_hand_over(plugin: &Arc<LoadedPlugin>) -> Result<(), String> {
    if !has_state(plugin.manifest()) {
        return Ok(());
    }
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let config = json!({});
    let moved = async {
        let bench = Bench::set_up(plugin, &config, scratch.path()).await?;
        let moved = run(CommonCheck::State, &bench).await;
        bench.take_down().await;
        moved
    };
    match Box::pin(moved).await {
        Err(CheckFailure::Deviates { got, .. }) => Err(got),
        Ok(()) | Err(CheckFailure::LeftOut { .. }) => Ok(()),
    }
}
