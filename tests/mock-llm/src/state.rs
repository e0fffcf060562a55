//! What the mock knows so far: requests, how each ended, violations, gates, signatures given by hand.
//!
//! Lives inside a watch channel, so that a test waits for a change instead of sleeping. Judges
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::message::{Block, Message};
use crate::mint::{self, Origin};
use crate::request::Request;
use crate::validate::Violation;
use crate::wire::Wire;

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

    pub(crate) async fn until_closing(&self) {
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
    pub(crate) issued: IssuedSignatures,
    pub(crate) closing: bool,
}

/// A request and its end.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Arc<Request>,
    pub(crate) expected: bool,
    pub(crate) outcome: Option<Outcome>,
}

/// The signatures that scripts gave by hand and that went out: unlike those that the mock makes,
/// they can be told only by having been sent. Each with the text that it signs, where there is one.
#[derive(Debug, Default)]
pub(crate) struct IssuedSignatures(BTreeMap<(Wire, String, String), Option<String>>);

impl IssuedSignatures {
    /// Where a signature comes from; `None`: it was not given by hand, for this wire and model.
    pub(crate) fn origin(
        &self,
        wire: Wire,
        model: &str,
        signature: &str,
        signed: &str,
    ) -> Option<Origin> {
        let key = (wire, mint::family(model), signature.to_owned());
        let own = self.0.get(&key)?;
        Some(match own {
            Some(text) if wire == Wire::Anthropic && text != signed => Origin::Edited,
            _ => Origin::Own,
        })
    }

    pub(crate) fn add(&mut self, wire: Wire, model: &str, message: &Message) {
        let mut add = |signature: &str, signed: Option<&str>| {
            if signature.is_empty() {
                return;
            }
            let key = (wire, mint::family(model), signature.to_owned());
            self.0.insert(key, signed.map(str::to_owned));
        };
        for block in &message.content {
            match block {
                Block::Thinking {
                    thinking,
                    signature,
                } => add(signature, Some(thinking)),
                Block::RedactedThinking { data } => add(data, None),
                Block::Raw { value, .. } => {
                    let text = |field: &str| value.get(field).and_then(Value::as_str);
                    let fields = ["id", "data", "encrypted_content", "thoughtSignature"];
                    fields
                        .into_iter()
                        .filter_map(text)
                        .for_each(|it| add(it, None));
                    if let Some(signature) = text("signature") {
                        add(signature, text("thinking"));
                    }
                }
                Block::Text { .. } | Block::ToolUse(_) | Block::ServerToolUse(_) => {}
            }
        }
    }
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
