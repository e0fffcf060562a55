//! The spans of a turn: one for itself, one for each model call, one for each tool call, with the
//! names that OpenTelemetry's conventions for generative AI give.

use std::time::Duration;

use conjure_core::chat::{FunctionCall, Usage};
use conjure_core::log::{CallEnd, TurnOutcome};
use conjure_core::routing::Route;
use conjure_core::turn::TurnInput;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Array, StringValue, Value};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The target of the spans of turns, model calls and tool calls.
pub const TARGET: &str = "conjure::trace";
use crate::backend::CallReport;

/// The span of a turn; the first of its trace.
pub(crate) fn turn(thread: &str, turn_id: &str) -> Span {
    tracing::info_span!(
        target: TARGET,
        parent: None,
        "turn",
        otel.name = "invoke_agent conjure",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = "conjure",
        gen_ai.conversation.id = thread,
        conjure.turn.id = turn_id,
        conjure.turn.outcome = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    )
}

/// A turn is over.
pub(crate) fn record_turn_end(span: &Span, outcome: &TurnOutcome, usage: &Usage) {
    span.record("conjure.turn.outcome", outcome.as_str());
    record_tokens(span, usage);
    match outcome {
        TurnOutcome::Failed { kind, .. } => record_failure(span, kind),
        TurnOutcome::Limit { limit, .. } => record_failure(span, limit),
        _ => {}
    }
}

/// The span of a model call.
pub(crate) fn model_call(turn: &Span, thread: &str, provider: &str, model: &str) -> Span {
    tracing::info_span!(
        target: TARGET,
        parent: turn,
        "model call",
        otel.name = format!("chat {model}"),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider_name(provider),
        gen_ai.conversation.id = thread,
        gen_ai.request.model = model,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_creation.input_tokens = Empty,
        conjure.retries = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    )
}

/// What came of a model call.
pub(crate) fn record_reply(span: &Span, input: &TurnInput) {
    let (reply, failure) = match input {
        TurnInput::ModelDone { response, meta, .. } => (Some((response, meta)), None),
        TurnInput::ModelFailed {
            partial, failure, ..
        } => (
            partial.as_ref().map(|(response, meta)| (response, meta)),
            Some(failure),
        ),
        _ => return,
    };
    if let Some((response, meta)) = reply {
        span.record("gen_ai.response.model", meta.model.as_str());
        record_tokens(span, &meta.usage);
        span.record(
            "gen_ai.usage.cache_read.input_tokens",
            meta.usage.cache_read,
        );
        span.record(
            "gen_ai.usage.cache_creation.input_tokens",
            meta.usage.cache_write,
        );
        span.record("conjure.retries", meta.retries);
        if let Some(stop) = &response.stop {
            let reasons = vec![StringValue::from(stop.raw.clone())];
            span.set_attribute(
                "gen_ai.response.finish_reasons",
                Value::Array(Array::String(reasons)),
            );
        }
    }
    if let Some(failure) = failure {
        record_failure(span, &failure.kind);
    }
}

/// The span of a tool call.
pub(crate) fn tool_call(
    turn: &Span,
    call: &FunctionCall,
    route: Option<&Route>,
    queued: Duration,
) -> Span {
    let origin = route.map(|route| &route.definition.origin);
    let version = origin.and_then(|origin| origin.version.as_ref());
    tracing::info_span!(
        target: TARGET,
        parent: turn,
        "tool call",
        otel.name = format!("execute_tool {}", call.name),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = call.name,
        gen_ai.tool.call.id = call.call_id,
        gen_ai.tool.type = "function",
        conjure.backend = route.map(|route| &*route.backend),
        conjure.plugin = origin.and_then(|origin| origin.plugin.as_deref()),
        conjure.plugin.version = version.map(tracing::field::display),
        conjure.queue_ms = milliseconds(queued),
        conjure.run_ms = Empty,
        conjure.call.end = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    )
}

/// What came of a tool call.
pub(crate) fn record_call(span: &Span, report: &CallReport) {
    span.record("conjure.run_ms", milliseconds(report.duration));
    let end = match report.end {
        CallEnd::Done => "done",
        CallEnd::Failed => "failed",
        CallEnd::Refused => "refused",
        CallEnd::Cancelled => "cancelled",
        CallEnd::TimedOut => "timed_out",
        CallEnd::Indeterminate => "indeterminate",
    };
    span.record("conjure.call.end", end);
    if report.end != CallEnd::Done {
        record_failure(span, end);
    }
}

/// The trace context of a span, as plugins are given it; nothing where nobody collects spans.
pub(crate) fn traceparent(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| {
        format!(
            "00-{}-{}-{:02x}",
            context.trace_id(),
            context.span_id(),
            context.trace_flags()
        )
    })
}

fn record_tokens(span: &Span, usage: &Usage) {
    span.record("gen_ai.usage.input_tokens", usage.prompt_tokens());
    span.record("gen_ai.usage.output_tokens", usage.output);
}

fn record_failure(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A provider as the conventions name it.
fn provider_name(provider: &str) -> &str {
    match provider {
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        other => other,
    }
}
