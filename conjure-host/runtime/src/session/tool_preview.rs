//! What a session would have and what its rules would decide, told before it runs.

use std::sync::Arc;

use conjure_core::context::BackendInstructions;
use conjure_core::routing::{Policy, PolicyVerdict, Route, RoutingTable, ToolPolicy};
use conjure_core::wire;
use serde_json::Value;
use tokio::sync::oneshot;

use super::backend_conditions::{BackendCondition, query_conditions};
use super::preview::{Preview, ServerTool};
use super::server_states::BackendServers;
use super::thread_resources::ThreadResources;
use super::tools::Tools;
use conjure_config::SessionSpec;

/// Tells the tools of an open thread's next request, and what the rules of now say of them. Asked on a
/// task of its own: backends are asked what they add.
pub(super) fn send_preview(
    resources: &ThreadResources,
    spec: &SessionSpec,
    policy: &Policy,
    tools: &Tools,
    done: oneshot::Sender<ToolPreview>,
) {
    let (host, request_context) = (
        Arc::clone(&resources.host),
        resources.request_context.clone(),
    );
    let (spec, policy) = (spec.clone(), policy.clone());
    let (contributors, snapshot) = (tools.contributors(), Arc::clone(tools.newest()));
    let statuses = tools.status();
    tokio::spawn(async move {
        let looked = Preview::from_snapshot(
            &host,
            &spec,
            &policy,
            &request_context,
            &contributors,
            &snapshot,
        );
        let conditions = query_conditions(statuses, &snapshot, &spec, &request_context);
        let (mut looked, conditions) = tokio::join!(looked, conditions);
        looked.backends = conditions;
        let _ = done.send(ToolPreview::new(looked, policy));
    });
}

/// The tools that a session would have, and its rules beside them.
#[derive(Debug, Clone)]
pub struct ToolPreview {
    preview: Preview,
    policy: Policy,
}

impl ToolPreview {
    pub(crate) fn new(preview: Preview, policy: Policy) -> Self {
        Self { preview, policy }
    }

    /// What the rules say of every tool of the routing table that a request has, in its order.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolPolicy> {
        let mut tools = self.policy.tool_policies(&self.preview.table);
        tools.retain(|tool| self.is_sent(&tool.name));
        tools
    }

    /// The tools of the routing table that a request has, in its order: all but those of
    /// [`ToolPreview::omitted_tools`].
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        let routes = self.preview.table.routes().iter();
        routes.filter(|route| self.is_sent(route.name.as_str()))
    }

    fn is_sent(&self, name: &str) -> bool {
        let mut left_out = self.preview.omitted_tools.iter();
        !left_out.any(|tool| tool.tool == name)
    }

    /// The routing table.
    #[must_use]
    pub fn table(&self) -> &Arc<RoutingTable> {
        &self.preview.table
    }

    /// What the model is told of the words of backends about their use.
    #[must_use]
    pub fn instructions(&self) -> &[BackendInstructions] {
        &self.preview.instructions
    }

    /// The tools that backends put into the request beside those of the table. They run at the
    /// provider, so no rule is asked about their calls.
    #[must_use]
    pub fn server_tools(&self) -> &[ServerTool] {
        &self.preview.server_tools
    }

    /// The tools of the table that a request goes without, because the provider would refuse it.
    #[must_use]
    pub fn omitted_tools(&self) -> &[wire::OmittedTool] {
        &self.preview.omitted_tools
    }

    /// The backends that could not say what they add to a request, and why.
    #[must_use]
    pub fn failed(&self) -> &[(String, String)] {
        &self.preview.failed
    }

    /// How the backends are, in their order. Of a session that is open those that have servers are
    /// asked how these are now.
    #[must_use]
    pub fn backends(&self) -> &[BackendCondition] {
        &self.preview.backends
    }

    /// How the servers behind the backends, such as those of MCP, were when the backends said what
    /// they have.
    #[must_use]
    pub fn server_states(&self) -> &[BackendServers] {
        &self.preview.servers
    }

    /// What one call would get; nothing when a request has no such tool.
    #[must_use]
    pub fn of_call(&self, name: &str, arguments: &Value) -> Option<PolicyVerdict> {
        let route = self.preview.table.route(name)?;
        if !self.is_sent(name) {
            return None;
        }
        Some(self.policy.verdict_for(route, arguments))
    }
}
