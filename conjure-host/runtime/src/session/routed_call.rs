//! A call with the route that its judge found.

use std::sync::Arc;

use conjure_core::chat::FunctionCall;
use conjure_core::context::no_such_tool;
use conjure_core::log::{CallEnd, StateMove};
use conjure_core::routing::{Route, RouteRef};

use crate::backend::run::Runner;
use crate::backend::{CallReport, ToolSnapshot};

/// A call that runs with the tools of one snapshot. Its name was looked up when it was judged.
pub(super) struct RoutedCall {
    call: FunctionCall,
    snapshot: Arc<ToolSnapshot>,
    route: Option<RouteRef>,
}

impl RoutedCall {
    /// Where the tools are other ones than when it was judged, its name is looked up again.
    pub(super) fn new(
        call: FunctionCall,
        route: Option<RouteRef>,
        snapshot: Arc<ToolSnapshot>,
    ) -> Self {
        let table = snapshot.table();
        let known = route.filter(|route| table.position(*route).is_some());
        let route = known.or_else(|| table.find(&call.name).map(|(found, _)| found));
        Self {
            call,
            snapshot,
            route,
        }
    }

    pub(super) fn call(&self) -> &FunctionCall {
        &self.call
    }

    pub(super) fn snapshot(&self) -> &ToolSnapshot {
        &self.snapshot
    }

    pub(super) fn route(&self) -> Option<&Route> {
        let (route, _) = self.snapshot.at(self.route?)?;
        Some(route)
    }

    /// Runs it to its one terminal result.
    pub(super) async fn run(&self, runner: &Runner<'_>) -> CallReport {
        match self.route.and_then(|route| self.snapshot.at(route)) {
            Some(found) => runner.run(&self.call, found).await,
            None => {
                let refusal = no_such_tool(self.snapshot.table(), &self.call.name, true);
                CallReport::without_answer(&self.call, refusal.text, CallEnd::Refused)
            }
        }
    }

    /// The report of a call whose runner panicked.
    pub(super) fn broken(&self) -> CallReport {
        let backend = self.route().map(|route| &*route.backend);
        CallReport::broken(&self.call, backend)
    }

    /// What became of the state of its plugin's version before, if this call was the first to move
    /// it.
    pub(super) fn take_outcome(&self) -> Option<StateMove> {
        let (_, target) = self.snapshot.at(self.route?)?;
        target.take_outcome()
    }
}
