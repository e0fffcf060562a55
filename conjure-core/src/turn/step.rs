//! The calls of one step: who runs, who waits, who is done.

use super::judge::CallVerdict;
use crate::chat::FunctionCall;
use crate::routing::RouteRef;

/// The calls of a reply, in its order.
#[derive(Debug, Default)]
pub(super) struct CallStep {
    calls: Vec<StepCall>,
}

#[derive(Debug)]
struct StepCall {
    call: FunctionCall,
    route: Option<RouteRef>,
    backend: String,
    plugin: Option<String>,
    lane: Option<String>,
    status: CallStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStatus {
    /// Waits for a person.
    AwaitingApproval,
    /// Waits for its lane.
    Ready,
    Running,
    Ended,
}

/// A call that can begin.
pub(super) struct StartableCall {
    pub(super) call: FunctionCall,
    pub(super) route: Option<RouteRef>,
    pub(super) backend: String,
    pub(super) plugin: Option<String>,
}

impl CallStep {
    /// Takes a call in. A refused one is ended from the start.
    pub(super) fn add(
        &mut self,
        call: FunctionCall,
        verdict: CallVerdict,
        route: Option<RouteRef>,
    ) {
        let (backend, plugin, lane, status) = match verdict {
            CallVerdict::Run {
                backend,
                plugin,
                lane,
            } => (backend, plugin, lane, CallStatus::Ready),
            CallVerdict::Ask {
                backend,
                plugin,
                lane,
                ..
            } => (backend, plugin, lane, CallStatus::AwaitingApproval),
            CallVerdict::Refuse { .. } => (String::new(), None, None, CallStatus::Ended),
        };
        self.calls.push(StepCall {
            call,
            route,
            backend,
            plugin,
            lane,
            status,
        });
    }

    /// The calls that can begin now; they count as running from here on.
    pub(super) fn start(&mut self) -> Vec<StartableCall> {
        let mut busy: Vec<String> = Vec::new();
        let mut startable = Vec::new();
        for pending in &mut self.calls {
            if pending.status == CallStatus::Ended {
                continue;
            }
            let free = pending
                .lane
                .as_ref()
                .is_none_or(|lane| !busy.contains(lane));
            if pending.status == CallStatus::Ready && free {
                pending.status = CallStatus::Running;
                startable.push(StartableCall {
                    call: pending.call.clone(),
                    route: pending.route,
                    backend: pending.backend.clone(),
                    plugin: pending.plugin.clone(),
                });
            }
            busy.extend(pending.lane.clone());
        }
        startable
    }

    /// A person let the call run. False when it did not wait for that.
    pub(super) fn allow(&mut self, call_id: &str) -> bool {
        self.transition(call_id, &[CallStatus::AwaitingApproval], CallStatus::Ready)
    }

    /// A person did not let the call run. False when it did not wait for that.
    pub(super) fn deny(&mut self, call_id: &str) -> bool {
        self.transition(call_id, &[CallStatus::AwaitingApproval], CallStatus::Ended)
    }

    /// A running call has its result. False when it was not running: a second result is none.
    pub(super) fn end(&mut self, call_id: &str) -> bool {
        self.transition(call_id, &[CallStatus::Running], CallStatus::Ended)
    }

    /// Ends all calls that have not begun, and names them; `true` for those that a person was
    /// asked about.
    pub(super) fn drop_waiting(&mut self) -> Vec<(String, bool)> {
        let mut dropped = Vec::new();
        for pending in &mut self.calls {
            if matches!(
                pending.status,
                CallStatus::AwaitingApproval | CallStatus::Ready
            ) {
                dropped.push((
                    pending.call.call_id.clone(),
                    pending.status == CallStatus::AwaitingApproval,
                ));
                pending.status = CallStatus::Ended;
            }
        }
        dropped
    }

    /// The calls that run.
    pub(super) fn running(&self) -> impl Iterator<Item = &FunctionCall> {
        self.calls
            .iter()
            .filter(|p| p.status == CallStatus::Running)
            .map(|p| &p.call)
    }

    /// A call's name and backend instance.
    pub(super) fn name_and_backend(&self, call_id: &str) -> Option<(&str, &str)> {
        let pending = self.calls.iter().find(|p| p.call.call_id == call_id)?;
        Some((&pending.call.name, &pending.backend))
    }

    /// Whether every call is ended.
    pub(super) fn is_over(&self) -> bool {
        self.calls.iter().all(|p| p.status == CallStatus::Ended)
    }

    fn transition(&mut self, call_id: &str, from: &[CallStatus], to: CallStatus) -> bool {
        let found = self
            .calls
            .iter_mut()
            .find(|p| p.call.call_id == call_id && from.contains(&p.status));
        found.map(|pending| pending.status = to).is_some()
    }
}
