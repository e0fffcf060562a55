//! Figures for Prometheus: requests by route and status.

use std::fmt;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper ends of buckets of time, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// What a request is counted under.
#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Asked {
    pub(super) method: String,
    /// The path with the names of its parameters, so that there is one for each operation.
    pub(super) route: String,
    pub(super) status: u16,
}

/// All figures.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Asked, Counter>,
    seconds: Histogram,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("conjure");
        let requests = Family::default();
        let seconds = Histogram::new(BUCKETS);
        registry.register(
            "http_requests",
            "Requests that were answered",
            requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time from the headers of a request to the headers of its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        Self {
            registry,
            requests,
            seconds,
        }
    }

    /// Counts a request.
    pub(super) fn answered(&self, asked: &Asked, seconds: f64) {
        self.requests.get_or_create(asked).inc();
        self.seconds.observe(seconds);
    }

    /// As Prometheus reads them.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
