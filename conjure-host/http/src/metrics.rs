//! Figures for Prometheus: requests by route and status, what is open and runs.

use std::fmt;
use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper ends of buckets of time, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// The labels under which a request is counted.
#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) method: String,
    /// The path with the names of its parameters, so that there is one for each operation.
    pub(super) route: String,
    pub(super) status: u16,
}

/// All figures.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
    /// Event streams that are open.
    streams: Gauge<i64, AtomicI64>,
    /// Sessions with a turn that runs.
    running: Gauge<i64, AtomicI64>,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("conjure");
        let requests = Family::default();
        let seconds = Histogram::new(BUCKETS);
        let streams = Gauge::default();
        let running = Gauge::default();
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
        registry.register(
            "event_streams",
            "Event streams that are open",
            streams.clone(),
        );
        registry.register(
            "sessions_running",
            "Sessions with a turn that runs",
            running.clone(),
        );
        Self {
            registry,
            requests,
            seconds,
            streams,
            running,
        }
    }

    /// Counts a request.
    pub(super) fn record(&self, asked: &RequestLabels, seconds: f64) {
        self.requests.get_or_create(asked).inc();
        self.seconds.observe(seconds);
    }

    /// As Prometheus reads them, with so many sessions that run.
    pub(super) fn text(&self, running: usize) -> Result<String, fmt::Error> {
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Counts a stream for as long as it is there.
pub(super) struct StreamCount(Gauge<i64, AtomicI64>);

impl StreamCount {
    pub(super) fn new(metrics: &Metrics) -> Self {
        metrics.streams.inc();
        Self(metrics.streams.clone())
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}
