//! What a backend does: it opens sessions, tells what they have, answers calls, closes.

use std::collections::BTreeSet;
use std::time::Duration;

use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, CatalogRequest, Empty, Manifest, Open, ToolDecl, ToolResult, op,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bench::{
    Bench, BenchSession, CheckFailure, CheckResult, REQUEST_TIMEOUT, describe_failure, expect,
    refusal_message, to_short_json,
};
use super::skill::{misfits, refuses};
use super::{CheckKind, ContractCheck};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackendCheck {
    Catalog,
    Arguments,
    UnknownTool,
    TwoSessions,
    Watch,
}

/// How long a watch must stay pending.
const PENDING: Duration = Duration::from_millis(500);

pub(super) fn checks(manifest: &Manifest) -> Vec<ContractCheck> {
    let mut checks = vec![
        ("a session opens and has a catalog", BackendCheck::Catalog),
        (
            "its tools refuse arguments that do not fit their schemas",
            BackendCheck::Arguments,
        ),
        (
            "a tool that it does not have is refused",
            BackendCheck::UnknownTool,
        ),
        (
            "a session that closes leaves the others open",
            BackendCheck::TwoSessions,
        ),
    ];
    if manifest.has("backend.watch/1") {
        checks.push(("a watch stays pending", BackendCheck::Watch));
    }
    checks
        .into_iter()
        .map(|(name, check)| ContractCheck::new(name, CheckKind::Backend(check)))
        .collect()
}

pub(super) async fn run(check: BackendCheck, bench: &Bench) -> CheckResult {
    let session = bench.session(false);
    if let Err(broken) = open(&session).await {
        // Nothing is known of one whose world is not here.
        return Err(match bench.missing_resource() {
            Some(unmet) => CheckFailure::left_out(format!("no session opens without {unmet}")),
            None => broken,
        });
    }
    let done = run_check(check, bench, &session).await;
    // Also where it does not hold nothing stays open.
    let closed = close(&session).await;
    done.and(closed)
}

async fn run_check(check: BackendCheck, bench: &Bench, session: &BenchSession<'_>) -> CheckResult {
    let catalog = catalog(session).await?;
    match check {
        BackendCheck::Catalog => well_formed(&catalog.tools)?,
        BackendCheck::Arguments => {
            let mut seen = false;
            for tool in &catalog.tools {
                for arguments in misfits(&tool.input_schema) {
                    seen = true;
                    let call = call(tool, arguments.clone());
                    refuses(session, tool, op::BACKEND_CALL, &call, &arguments).await?;
                }
            }
            if !seen {
                return Err(CheckFailure::left_out("no tool of it requires an argument"));
            }
        }
        BackendCheck::UnknownTool => {
            let tool = ToolDecl::new("no-such-tool", "", json!({}));
            let call = call(&tool, json!({}));
            let expected = "an error result or a fault that says so";
            match session.ask::<ToolResult>(op::BACKEND_CALL, &call).await {
                Ok(result) => {
                    expect(result.is_error, expected, || {
                        to_short_json(&result.joined_text())
                    })?;
                }
                Err(failure) => drop(refusal_message(failure, expected)?),
            }
        }
        BackendCheck::TwoSessions => {
            let other = bench.session(true);
            open(&other).await?;
            let still = async {
                close(session).await?;
                self::catalog(&other).await
            };
            let still = still.await;
            // One may open again, as after a pause; it is closed at the end.
            let again = open(session).await;
            let closed = close(&other).await;
            let still = still?;
            again.and(closed)?;
            expect(
                still.tools.len() == catalog.tools.len(),
                "the same catalog in the session that is open",
                || {
                    format!(
                        "{} tools, and not {}",
                        still.tools.len(),
                        catalog.tools.len()
                    )
                },
            )?;
        }
        BackendCheck::Watch => {
            let cancel = CancellationToken::new();
            let watched = session.request::<Value>(
                op::BACKEND_WATCH,
                &Empty {},
                REQUEST_TIMEOUT,
                &cancel,
                |_| {},
            );
            if let Ok(watched) = tokio::time::timeout(PENDING, watched).await {
                return Err(CheckFailure::new(
                    format!("no reply within {} ms", PENDING.as_millis()),
                    watched
                        .reply
                        .as_ref()
                        .map_or_else(describe_failure, to_short_json),
                ));
            }
        }
    }
    Ok(())
}

fn call(tool: &ToolDecl, arguments: Value) -> Value {
    let call = BackendCall {
        name: tool.name.clone(),
        skill: tool.skill.clone(),
        arguments,
        files: Vec::new(),
    };
    serde_json::to_value(call).unwrap_or_default()
}

async fn open(session: &BenchSession<'_>) -> CheckResult {
    let Empty {} = session
        .expect_reply(op::BACKEND_OPEN, &Open::default())
        .await?;
    Ok(())
}

async fn close(session: &BenchSession<'_>) -> CheckResult {
    let Empty {} = session.expect_reply(op::BACKEND_CLOSE, &Empty {}).await?;
    Ok(())
}

async fn catalog(session: &BenchSession<'_>) -> CheckResult<CatalogReply> {
    let whom = CatalogRequest::default();
    session.expect_reply(op::BACKEND_CATALOG, &whom).await
}

/// Checks that each tool has a name of its own, and a schema of an object.
pub(super) fn well_formed(tools: &[ToolDecl]) -> CheckResult {
    let mut names = BTreeSet::new();
    for tool in tools {
        let name = &tool.name;
        expect(!name.is_empty(), "a name of every tool", || {
            to_short_json(tool)
        })?;
        expect(
            names.insert((tool.skill.as_deref(), name)),
            "another name for each tool",
            || format!("two tools `{name}`"),
        )?;
        expect(
            tool.input_schema.is_object(),
            "JSON Schema of an object for the arguments of each tool",
            || format!("`{name}` has {}", to_short_json(&tool.input_schema)),
        )?;
    }
    Ok(())
}
