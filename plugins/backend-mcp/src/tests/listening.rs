//! A server over HTTP, as the plugin is told of it.

use conjure_kit::MockMcp;
use serde_json::{Value, json};

/// A server that listens; dropping it ends it.
pub(super) struct Listening(MockMcp);

impl Listening {
    pub(super) fn new(traits: &[&str]) -> Self {
        Self(MockMcp::over_http(traits).unwrap())
    }

    pub(super) fn url(&self) -> String {
        self.0.url()
    }

    pub(super) fn config(&self) -> Value {
        json!({ "url": self.url(), "request_timeout_ms": 2_000 })
    }

    /// What it says to a request that no client of the protocol makes.
    pub(super) fn ask(&self, request: &str) -> String {
        self.0.ask(request).unwrap()
    }
}
