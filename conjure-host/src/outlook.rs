//! What a session's rules would decide, told before it runs.

use std::sync::Arc;

use conjure_core::routing::{Outlook, Policy, RoutingTable, Verdict};
use serde_json::Value;

use crate::Host;
use crate::session::{SessionError, SessionSpec, policy};

/// The rules of a session beside the tools that it would have.
#[derive(Debug, Clone)]
pub struct Outlooks {
    table: Arc<RoutingTable>,
    policy: Policy,
}

impl Outlooks {
    /// The outlook of every tool, in the table's order.
    #[must_use]
    pub fn tools(&self) -> Vec<Outlook> {
        self.policy.outlook(&self.table)
    }

    /// What one call would get; nothing when there is no such tool.
    #[must_use]
    pub fn of_call(&self, name: &str, arguments: &Value) -> Option<Verdict> {
        let route = self.table.route(name)?;
        Some(self.policy.verdict_for(route, arguments))
    }
}

impl Host {
    /// What the policy of a specification says of the tools that such a session would begin with.
    /// Opens its backends and closes them again; asks no model and runs no call.
    ///
    /// # Errors
    /// [`SessionError`] when the tools cannot be made ready.
    pub async fn outlooks(&self, spec: SessionSpec) -> Result<Outlooks, SessionError> {
        let policy = policy(&spec);
        let calls = self.calls(spec).await?;
        let table = calls.table();
        calls.close().await;
        Ok(Outlooks { table, policy })
    }
}
