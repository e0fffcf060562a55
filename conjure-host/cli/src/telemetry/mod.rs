//! What the program tells of its own work: logs, and traces over OpenTelemetry.

mod clean_stderr;

use std::io::IsTerminal as _;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

use clean_stderr::CleanStderr;
use conjure_config::env;
use conjure_runtime::SPAN_TARGET as TARGET;

/// What is logged when nothing else is said. To the MCP library each error that a client is
/// answered with is a warning, and each call that it cancels. The library for editors warns of each
/// request that is malformed with the names of all that looked at it, which are longer than a pipe holds.
const USUAL: &str = "warn,rmcp::service=error,agent_client_protocol::jsonrpc::incoming_actor=error";
/// Where spans are sent, as OpenTelemetry names it; one of the two turns tracing on.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];
/// How long the last spans may take to be sent.
const FLUSH: Duration = Duration::from_secs(5);

/// Logs and traces of a program; ends them in [`Telemetry::end`].
pub(crate) struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Logs to stderr as `CONJURE_LOG` says, as JSON where `CONJURE_LOG_FORMAT` is `json`, and sends
/// spans where `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector. Once a process.
///
/// Must not be called on a tokio runtime: spans are sent from a thread of their own.
pub(crate) fn start() -> Telemetry {
    let filter = env::var(env::LOG).unwrap_or_else(|| USUAL.to_owned());
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new(USUAL));
    let is_json = env::var(env::LOG_FORMAT).is_some_and(|format| format == "json");
    let logs = tracing_subscriber::fmt::layer()
        .with_writer(move || CleanStderr { is_json })
        .with_ansi(std::io::stderr().is_terminal());
    let logs = if is_json {
        logs.json().with_filter(filter).boxed()
    } else {
        logs.without_time().with_filter(filter).boxed()
    };
    let (traces, failed) = match traces() {
        Ok(traces) => (traces, None),
        Err(error) => (None, Some(error)),
    };
    let spans = traces.as_ref().map(|traces| {
        tracing_opentelemetry::layer::<tracing_subscriber::layer::Layered<_, Registry>>()
            .with_tracer(traces.tracer("conjure"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(TARGET, Level::INFO))
    });
    let _ = tracing_subscriber::registry()
        .with(logs)
        .with(spans)
        .try_init();
    if let Some(error) = failed {
        tracing::warn!("spans are not sent: {error}");
    }
    Telemetry { traces }
}

/// What sends spans, where a collector is named.
fn traces() -> Result<Option<SdkTracerProvider>, opentelemetry_otlp::ExporterBuildError> {
    let is_named = ENDPOINTS.iter().any(|name| env::var(name).is_some());
    let is_off = env::var("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
    if !is_named || is_off {
        return Ok(None);
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .build()?;
    let mut resource = Resource::builder();
    if env::var("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("conjure");
    }
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    Ok(Some(provider))
}

impl Telemetry {
    /// Sends what was not sent yet.
    pub(crate) fn end(self) {
        if let Some(traces) = self.traces
            && let Err(error) = traces.shutdown_with_timeout(FLUSH)
        {
            tracing::warn!("the last spans were not sent: {error}");
        }
    }
}
