//! The tools of a plugin, as it tells them without a session of a host.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use conjure_plugins::LoadedPlugin;
use conjure_skill_sdk::protocol::{CatalogReply, CatalogRequest, Empty, Open, ToolDecl, op};
use serde_json::{Value, json};

use super::bench::{Bench, BenchSession, CheckFailure, CheckResult};
use super::skill::{RUN_TIME_TOOLS, run_time_tools};

/// The tools of a plugin, as far as it told them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DiscoveredTools {
    /// Tools of a skill's manifest and those that its instance has at run time, tools of a backend's
    /// catalog. An executor has none of its own.
    pub tools: Vec<ToolDecl>,
    /// Why the instance did not tell its tools, such as that it wants a configuration.
    pub missing_reason: Option<String>,
}

/// Asks a plugin for its tools: a backend for its catalog, and a skill whose manifest says that it has
/// tools at run time for these.
#[boxed]
pub async fn tools_of(plugin: &Arc<LoadedPlugin>) -> DiscoveredTools {
    let manifest = plugin.manifest();
    let (mut tools, asked) = match manifest.kind.as_str() {
        "skill" if manifest.has(RUN_TIME_TOOLS) => {
            (manifest.tools.clone(), Box::pin(ask_instance(plugin)).await)
        }
        "skill" => (manifest.tools.clone(), Ok(Vec::new())),
        "backend" => (Vec::new(), Box::pin(ask_instance(plugin)).await),
        _ => (Vec::new(), Ok(Vec::new())),
    };
    let untold = match asked {
        Ok(more) => {
            tools.extend(more);
            None
        }
        Err(CheckFailure::Deviates { got, .. }) => Some(got),
        Err(CheckFailure::LeftOut { reason }) => Some(reason),
    };
    DiscoveredTools {
        tools,
        missing_reason: untold,
    }
}

/// Asks an instance of its own.
async fn ask_instance(plugin: &Arc<LoadedPlugin>) -> CheckResult<Vec<ToolDecl>> {
    let no_room = |error: std::io::Error| CheckFailure::new("room", error.to_string());
    let scratch = tempfile::tempdir().map_err(no_room)?;
    let config: Value = json!({});
    let bench = Bench::set_up(plugin, &config, scratch.path()).await?;
    let session = bench.session(false);
    let told = match plugin.manifest().kind.as_str() {
        "skill" => run_time_tools(&session).await,
        _ => catalog(&session).await,
    };
    bench.take_down().await;
    told
}

async fn catalog(session: &BenchSession<'_>) -> CheckResult<Vec<ToolDecl>> {
    let Empty {} = session
        .expect_reply(op::BACKEND_OPEN, &Open::default())
        .await?;
    let whom = CatalogRequest::default();
    let catalog: CatalogReply = session.expect_reply(op::BACKEND_CATALOG, &whom).await?;
    let Empty {} = session.expect_reply(op::BACKEND_CLOSE, &Empty {}).await?;
    Ok(catalog.tools)
}
