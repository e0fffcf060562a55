//! What the mock knows so far: requests, how each ended, violations, gates.
//!
//! Lives inside a watch channel, so that a test waits for a change instead of sleeping. Judges
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

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

/// The state, and the news that it changed.
#[derive(Debug)]
pub(crate) struct Ledger(watch::Sender<State>);

impl Default for Ledger {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl Ledger {
    pub(crate) fn state(&self) -> watch::Ref<'_, State> {
        self.0.borrow()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        self.0.send_modify(change);
    }

    /// Waits until the state answers the question.
    pub(crate) async fn wait<T>(&self, ready: impl Fn(&State) -> Option<T>) -> T {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(found) = ready(&changes.borrow_and_update()) {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) async fn closing(&self) {
        self.wait(|state| state.closing.then_some(())).await;
    }

    pub(crate) fn end(&self, index: usize, outcome: Outcome) {
        self.change(|state| {
            if let Some(exchange) = state.requests.get_mut(index) {
                exchange.outcome = Some(outcome);
            }
        });
    }
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
