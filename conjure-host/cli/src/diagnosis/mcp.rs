//! MCP servers that are saved, and those of sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::HealthFinding;
use conjure_config::BackendSpec;
use conjure_runtime::Host;
use conjure_store::{Store, StoreError};

/// The backend that they run under.
const BACKEND: &str = "mcp";
/// How long they may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE: u64 = 200;

pub(super) async fn examine(host: &Host, store: &Store) -> Vec<HealthFinding> {
    let all = match servers(store).await {
        Ok(all) => all,
        Err(error) => {
            let finding = HealthFinding::well("mcp", "all", "");
            return vec![finding.ill(error.to_string(), "")];
        }
    };
    if all.is_empty() {
        return Vec::new();
    }
    if host.registry().snapshot().get(BACKEND).is_none() {
        let finding = HealthFinding::well("mcp", "all", "");
        return vec![finding.ill(
            "no plugin `mcp` is loaded, which MCP servers run under",
            "put it into a plugin directory; `conjure plugin list` shows them",
        )];
    }
    let looked = all
        .into_iter()
        .map(|(name, settings)| server_finding(host, name, settings));
    futures_util::future::join_all(looked).await
}

/// Every server, by who has it.
async fn servers(store: &Store) -> Result<BTreeMap<String, Value>, StoreError> {
    let mut all = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.mcp_servers(after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        for server in page.into_iter().filter(|server| server.enabled) {
            all.insert(server.name, server.settings.0);
        }
    }
    after = None;
    loop {
        let page = store.sessions(after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        for session in page {
            let whose = session.name.unwrap_or(session.id);
            for (name, settings) in session.mcps.0.as_object().into_iter().flatten() {
                // What is the same is looked at once.
                if all.get(name) != Some(settings) {
                    all.insert(format!("{name} of {whose}"), settings.clone());
                }
            }
        }
    }
    Ok(all)
}

async fn server_finding(host: &Host, name: String, settings: Value) -> HealthFinding {
    let finding = HealthFinding::well("mcp", &name, "");
    let mut servers = Map::new();
    servers.insert("it".to_owned(), settings);
    let backend = BackendSpec {
        kind: BACKEND.to_owned(),
        config: Some(json!({ "servers": servers })),
        ..BackendSpec::default()
    };
    let statuses = match host.mcp_status(&backend, None, READY_TIMEOUT).await {
        Ok(statuses) => statuses,
        Err(error) => return finding.ill(error.to_string(), ""),
    };
    let Some(status) = statuses.first() else {
        return finding.note("it is switched off", "");
    };
    let text = |member: &str| {
        status
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match text("state") {
        "ready" => {
            let tools = status
                .get("tools")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            HealthFinding {
                found: format!("ready, {tools} tools"),
                ..finding
            }
        }
        "needs_auth" => finding.ill("it wants a login", format!("conjure mcp login {name}")),
        state => finding.ill(
            format!("{state}: {}", text("why")),
            "`conjure mcp check` says more of the servers of a session file",
        ),
    }
}
