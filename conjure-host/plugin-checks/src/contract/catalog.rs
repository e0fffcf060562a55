//! The tools of a plugin, as it tells them without a session of a host.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use conjure_plugins::LoadedPlugin;
use conjure_skill_sdk::protocol::{CatalogReply, CatalogRequest, Empty, Open, ToolDecl, op};
use serde_json::{Value, json};

use super::bench::{Bench, Broken, CheckResult};

/// The tools of a plugin: those of a skill's manifest, those of a backend's catalog. An executor has
/// none of its own.
///
/// # Errors
/// Why a backend does not tell them, such as that it wants a configuration.
#[boxed]
pub async fn tools_of(plugin: &Arc<LoadedPlugin>) -> Result<Vec<ToolDecl>, String> {
    let manifest = plugin.manifest();
    match manifest.kind.as_str() {
        "skill" => Ok(manifest.tools.clone()),
        "backend" => Box::pin(catalog(plugin))
            .await
            .map_err(|broken| match broken {
                Broken::Deviates { got, .. } => got,
                Broken::LeftOut { reason } => reason,
            }),
        _ => Ok(Vec::new()),
    }
}

async fn catalog(plugin: &Arc<LoadedPlugin>) -> CheckResult<Vec<ToolDecl>> {
    let no_room = |error: std::io::Error| Broken::new("room", error.to_string());
    let scratch = tempfile::tempdir().map_err(no_room)?;
    let config: Value = json!({});
    let bench = Bench::set_up(plugin, &config, scratch.path()).await?;
    let session = bench.session(false);
    let told = async {
        let Empty {} = session.answer(op::BACKEND_OPEN, &Open::default()).await?;
        let whom = CatalogRequest::default();
        let catalog: CatalogReply = session.answer(op::BACKEND_CATALOG, &whom).await?;
        let Empty {} = session.answer(op::BACKEND_CLOSE, &Empty {}).await?;
        Ok(catalog.tools)
    };
    let told = told.await;
    bench.take_down().await;
    told
}
