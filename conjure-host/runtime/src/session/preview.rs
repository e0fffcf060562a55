//! What a session would send, before there is one: its routing table, and the tools that stand in
//! its first request beside it.
//!
//! Opens the backends as a session does, for the same provider and model, and closes them again; a
//! session that runs is looked at as it is. Asks no model and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use conjure_core::context::BackendInstructions;
use conjure_core::request::compile;
use conjure_core::routing::{Policy, RoutingTable};
use conjure_core::wire;
use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::backend_conditions::{BackendCondition, cached_conditions};
use super::derived::{compile_settings, visible_instructions};
use super::error::SessionError;
use super::host_state::HostState;
use super::server_states::{BackendServers, cached_server_states};
use super::session_dirs::SessionDirs;
use crate::backend::contributors::Contributors;
use crate::backend::request_context::RequestContext;
use crate::backend::{ToolSnapshot, Toolbox, ToolboxError, is_settled};
use conjure_config::SessionSpec;
use conjure_providers::wire_and_endpoint;
use conjure_store::ThreadId;

/// How long servers behind backends may take to start and to say what they have.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(3);
/// How often it is looked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A tool that runs at the provider; a backend puts it into the request.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerTool {
    /// The backend instance that brings it.
    pub backend: String,
    /// Definition of the tool, in the provider's form.
    pub definition: Value,
}

impl ServerTool {
    /// What the provider calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        let text = |field| self.definition.get(field).and_then(Value::as_str);
        text("name").or_else(|| text("type")).unwrap_or("unnamed")
    }
}

/// The tools of a session's first request.
#[derive(Debug, Clone)]
pub(crate) struct Preview {
    pub(crate) table: Arc<RoutingTable>,
    /// What backends say about their use.
    pub(crate) instructions: Vec<BackendInstructions>,
    pub(crate) server_tools: Vec<ServerTool>,
    /// Tools of the table that the provider does not take.
    pub(crate) omitted_tools: Vec<wire::OmittedTool>,
    /// Backends that could not say what they add, and why.
    pub(crate) failed: Vec<(String, String)>,
    /// How the servers behind backends were when they said what they have.
    pub(crate) servers: Vec<BackendServers>,
    /// How the backends are.
    pub(crate) backends: Vec<BackendCondition>,
}

impl Preview {
    /// Looks at a session that would be opened with this specification.
    pub(crate) async fn of(
        shared: &Arc<HostState>,
        spec: SessionSpec,
    ) -> Result<Self, SessionError> {
        spec.check()?;
        let spec = spec.with_provider_base_url();
        let dirs = SessionDirs::make(shared, &spec, &ThreadId::fresh(), None, None)?;
        let mut toolbox = dirs.attach(&spec, &[]).await?;
        let looked = match started_snapshot(&mut toolbox).await {
            Ok(snapshot) => {
                let contributors = toolbox.contributors();
                let policy = spec.call_policy();
                let looked = Self::from_snapshot(
                    shared,
                    &spec,
                    &policy,
                    &dirs.request_context,
                    &contributors,
                    &snapshot,
                );
                let looked = looked.await;
                Ok(Self {
                    backends: cached_conditions(toolbox.status(), &snapshot),
                    ..looked
                })
            }
            Err(error) => Err(error.into()),
        };
        toolbox.close().await;
        dirs.exchange.end();
        looked
    }

    /// Looks at a session with these backends and this snapshot.
    pub(super) async fn from_snapshot(
        shared: &HostState,
        spec: &SessionSpec,
        policy: &Policy,
        request_context: &RequestContext,
        contributors: &Contributors,
        snapshot: &ToolSnapshot,
    ) -> Self {
        let mut preview = Self {
            table: Arc::clone(snapshot.table()),
            instructions: visible_instructions(policy, snapshot),
            server_tools: Vec::new(),
            omitted_tools: Vec::new(),
            failed: Vec::new(),
            servers: cached_server_states(snapshot),
            backends: Vec::new(),
        };
        let Some(provider) = &spec.provider else {
            return preview;
        };
        // A request without a model names an empty one, too.
        let model = spec.model.as_deref().unwrap_or_default();
        let added = contributors
            .contribute(request_context, provider, model)
            .await;
        let tools = added.tools.into_iter();
        preview.server_tools = tools
            .map(|(backend, definition)| ServerTool {
                backend,
                definition,
            })
            .collect();
        preview.failed = added.failed;
        if let (Some((wire, endpoint)), Ok((target, _))) =
            (wire_and_endpoint(provider, spec), shared.recipient(spec))
        {
            let settings = compile_settings(spec, &shared.models, snapshot, target);
            let request = compile(&[], snapshot.table(), &settings);
            preview.omitted_tools = wire
                .encode(&request, &endpoint.with_model(model))
                .quarantined;
        }
        preview
    }
}

/// The snapshot of backends that were just attached, once each server behind them has said what it has,
/// or failed, or the time is up. A backend that fails when it is asked is asked no more: its worker would
/// be started for that again and again.
async fn started_snapshot(toolbox: &mut Toolbox) -> Result<ToolSnapshot, ToolboxError> {
    let until = Instant::now() + SERVER_START_TIMEOUT;
    let mut failed: Vec<String> = Vec::new();
    loop {
        let snapshot = toolbox.snapshot()?;
        let starting = cached_server_states(&snapshot).into_iter();
        let starting: Vec<String> = starting
            .filter(|of| !of.servers.iter().all(is_settled))
            .map(|of| of.backend)
            .filter(|backend| !failed.contains(backend))
            .collect();
        if starting.is_empty() || Instant::now() >= until {
            return Ok(snapshot);
        }
        sleep(POLL_INTERVAL).await;
        let asking = starting.into_iter().filter_map(|backend| {
            let asking = toolbox.fetch_catalog(&backend)?;
            Some(async move { (backend, timeout_at(until, asking).await) })
        });
        let asking: Vec<_> = asking.collect();
        for (backend, asked) in join_all(asking).await {
            match asked {
                Ok(Ok(asked)) => toolbox.set_catalog(asked),
                Ok(Err(_)) | Err(_) => failed.push(backend),
            }
        }
    }
}
