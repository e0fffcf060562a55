//! Whether a call runs, and beside which others.

use serde::{Deserialize, Serialize};

use crate::chat::FunctionCall;
use crate::context::CallRefusal;
use crate::routing::RouteRef;

/// Looks a call up: the routing table and the policy of a step, behind one question.
pub trait Judge {
    /// What becomes of the call.
    fn judge(&self, call: &FunctionCall) -> CallVerdict;

    /// What becomes of the call, with its route where a table has one: whoever runs the call then
    /// looks its name up no more.
    fn judge_route(&self, call: &FunctionCall) -> (CallVerdict, Option<RouteRef>) {
        (self.judge(call), None)
    }

    /// The backend instance that runs a tool, for the words of results; none where nobody does.
    fn backend(&self, _tool: &str) -> Option<&str> {
        None
    }

    /// What is wrong with an answer that the turn would end with, where it has to have a form;
    /// nothing where it may end with it.
    fn check_answer(&self, _answer: &str) -> Option<String> {
        None
    }
}

impl<F: Fn(&FunctionCall) -> CallVerdict> Judge for F {
    fn judge(&self, call: &FunctionCall) -> CallVerdict {
        self(call)
    }
}

/// The decision on a tool call before it runs: run, ask or refuse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum CallVerdict {
    /// The call runs.
    Run {
        /// The backend instance.
        backend: String,
        /// The plugin and its version, when one is behind it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<String>,
        /// Calls of one lane run one after the other; one without a lane waits for nobody.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lane: Option<String>,
    },
    /// A person decides first whether the call runs.
    Ask {
        /// The backend instance.
        backend: String,
        /// The plugin and its version, when one is behind it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<String>,
        /// As in [`CallVerdict::Run`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lane: Option<String>,
        /// The rule that asks.
        reason: String,
    },
    /// The call does not run.
    Refuse(CallRefusal),
}
