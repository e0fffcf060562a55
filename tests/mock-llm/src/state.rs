//! What the mock knows so far: requests, how each ended, violations, gates.
//!
//! Lives inside a watch channel, so that a test waits for a change instead of sleeping. Changes in
//! `server` only.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::request::Request;
use crate::validate::Violation;

/// How the answer to a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Everything was written, as scripted.
    Delivered,
    /// The script cut the connection before the answer was complete.
    Cut,
    /// The client closed the connection before the end.
    ClientGone,
    /// The mock was shut down before the end.
    ShutDown,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) requests: Vec<Exchange>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) gates: BTreeMap<String, Gate>,
    pub(crate) closing: bool,
}

/// A request and its end.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Arc<Request>,
    pub(crate) expected: bool,
    pub(crate) outcome: Option<Outcome>,
}

/// A named place where an answer waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) reached: bool,
    pub(crate) released: bool,
}

impl State {
    pub(crate) fn gate(&mut self, token: &str) -> &mut Gate {
        self.gates.entry(token.to_owned()).or_default()
    }

    pub(crate) fn is_reached(&self, token: &str) -> bool {
        self.gates.get(token).is_some_and(|gate| gate.reached)
    }

    pub(crate) fn is_released(&self, token: &str) -> bool {
        self.gates.get(token).is_some_and(|gate| gate.released)
    }

    pub(crate) fn outcome(&self, index: usize) -> Option<Outcome> {
        self.requests.get(index)?.outcome
    }
}
