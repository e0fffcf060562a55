//! Logs as JSON, and traces that reach a collector.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use conjure_kit::Model;
use conjure_mock_llm::{ErrorReply, Message};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;

use crate::stage::{LOCAL, asks, workspace};

/// A collector: what it was sent, one request after the other.
struct Collector {
    address: String,
    received: mpsc::Receiver<ExportTraceServiceRequest>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (send, received) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(request) = receive(stream) {
                    let _ = send.send(request);
                }
            }
        });
        Self { address, received }
    }

    /// Every span that came, with its attributes as text.
    fn spans(&self) -> Vec<(Span, BTreeMap<String, String>)> {
        let mut spans = Vec::new();
        while let Ok(request) = self.received.recv_timeout(Duration::from_millis(500)) {
            for of_resource in request.resource_spans {
                let resource = of_resource.resource.unwrap();
                let service = resource.attributes.iter().find(|a| a.key == "service.name");
                let service = service.and_then(|a| a.value.clone()).and_then(|v| v.value);
                assert_eq!(service, Some(Value::StringValue("conjure".to_owned())));
                spans.extend(
                    of_resource
                        .scope_spans
                        .into_iter()
                        .flat_map(|scope| scope.spans),
                );
            }
        }
        spans
            .into_iter()
            .map(|span| (span.clone(), attributes(span)))
            .collect()
    }
}

fn receive(mut stream: TcpStream) -> Option<ExportTraceServiceRequest> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    ExportTraceServiceRequest::decode(&*body).ok()
}

fn attributes(span: Span) -> BTreeMap<String, String> {
    let text = |value: Value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let known = span
        .attributes
        .into_iter()
        .filter_map(|attribute| Some((attribute.key, text(attribute.value?.value?))));
    known.collect()
}

#[test]
fn a_turn_is_one_trace_with_a_span_for_each_model_call_and_each_tool_call() {
    let collector = Collector::start();
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    model.calls(
        "call-1",
        "local_bash_tool",
        json!({ "command": "echo lamp" }),
    );
    model.says(Message::new().text("It is lit."));
    let output = asks(&workspace, &model, "run --allow *", "Is it lit?")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address)
        .run()
        .unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let spans = collector.spans();
    let named = |name: &str| {
        spans
            .iter()
            .filter(|(span, _)| span.name == name)
            .collect::<Vec<_>>()
    };
    let (turn, about_turn) = named("invoke_agent conjure")[0];
    assert!(turn.parent_span_id.is_empty());
    assert_eq!(about_turn["conjure.turn.outcome"], "completed");
    let calls = named("chat a-model");
    assert_eq!(calls.len(), 2);
    let tools = named("execute_tool local_bash_tool");
    assert_eq!((tools.len(), spans.len()), (1, 4));
    for (span, _) in calls.iter().chain(&tools) {
        assert_eq!(span.trace_id, turn.trace_id);
        assert_eq!(span.parent_span_id, turn.span_id);
    }
    let about = &calls[0].1;
    assert_eq!(about["gen_ai.operation.name"], "chat");
    assert_eq!(about["gen_ai.provider.name"], "anthropic");
    assert_eq!(about["gen_ai.request.model"], "a-model");
    assert!(about["gen_ai.response.finish_reasons"].contains("tool_use"));
    let input = |about: &BTreeMap<String, String>| -> u64 {
        about["gen_ai.usage.input_tokens"].parse().unwrap()
    };
    assert!(input(about) > 0);
    assert_eq!(input(about_turn), input(about) + input(&calls[1].1));
    let about = &tools[0].1;
    assert_eq!(about["gen_ai.tool.call.id"], "call-1");
    assert_eq!(about["conjure.backend"], "local");
    assert_eq!(about["conjure.plugin"], "local");
    assert!(about["conjure.plugin.version"].contains('.'));
    assert!(about.contains_key("conjure.queue_ms") && about.contains_key("conjure.run_ms"));
    assert_eq!(about["conjure.call.end"], "done");
}

#[test]
fn a_model_call_that_fails_is_an_error_in_its_trace() {
    let collector = Collector::start();
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(ErrorReply::new(401).message("no such key"));
    let output = asks(&workspace, &model, "run", "Hello?")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address)
        .run()
        .unwrap();
    assert_eq!(output.code, Some(3), "{output:?}");
    let spans = collector.spans();
    assert_eq!(spans.len(), 2);
    for (span, about) in &spans {
        assert_eq!(span.status.as_ref().unwrap().code, 2, "{span:?}");
        assert!(about.contains_key("error.type"), "{about:?}");
    }
}

#[test]
fn a_collector_that_is_not_there_costs_a_warning() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Fine."));
    let output = asks(&workspace, &model, "run", "Hello?")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .run()
        .unwrap();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "Fine.\n"),
        "{output:?}"
    );
}

#[test]
fn logs_are_json_lines_where_that_is_wanted() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Fine."));
    let output = asks(&workspace, &model, "run --json", "Hello?")
        .env("CONJURE_LOG", "conjure::trace=info,hyper_util=debug")
        .env("CONJURE_LOG_FORMAT", "json")
        .run()
        .unwrap();
    let logged = output.stderr.lines().filter(|line| line.starts_with('{'));
    let logged: Vec<serde_json::Value> = logged
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!logged.is_empty(), "{output:?}");
    for line in logged {
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
    }
}
