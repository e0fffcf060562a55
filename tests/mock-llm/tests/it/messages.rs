//! What a message looks like on the wire, whole and as a stream.

use conjure_mock_llm::{Block, Faults, Message, Pings, Usage};
use serde_json::{Value, json};

use crate::client::{ask, exchange, mock, stream};

fn quiet(message: Message) -> Message {
    message.faults(Faults {
        pings: Pings::None,
        ..Faults::default()
    })
}

#[test]
fn a_stream_follows_the_recorded_grammar_for_every_block() {
    let message = Message::new()
        .thinking("Let me see.", "c2ln")
        .block(Block::RedactedThinking { data: "ZGF0YQ==".to_owned() })
        .text("Two halves.")
        .tool_use("toolu_1", "clock_read", json!({"zone": "UTC"}))
        .server_tool_use("srvtoolu_1", "bash_code_execution", json!({"command": "ls"}))
        .raw_block(json!({"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {}}))
        .container(json!({"id": "container_1"}))
        .deltas(8);
    let response = stream(message);
    let tool = |kind: &str, id: &str, name: &str| json!({"type": kind, "id": id, "name": name, "input": {}, "caller": {"type": "direct"}});
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    let input = |index: usize, part: &str| {
        delta(
            index,
            json!({"type": "input_json_delta", "partial_json": part}),
        )
    };
    assert_eq!(
        response.events(),
        [
            json!({"type": "message_start", "message": {
                "id": "msg_mock_0", "type": "message", "role": "assistant", "model": "claude-test",
                "content": [], "stop_reason": null, "stop_sequence": null, "stop_details": null,
                "usage": {
                    "input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1,
                    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                    "service_tier": "standard",
                },
            }}),
            start(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""})
            ),
            json!({"type": "ping"}),
            delta(0, json!({"type": "thinking_delta", "thinking": "Let me s"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "ee."})),
            delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
            stop(0),
            start(1, json!({"type": "redacted_thinking", "data": "ZGF0YQ=="})),
            stop(1),
            start(2, json!({"type": "text", "text": ""})),
            delta(2, json!({"type": "text_delta", "text": "Two halv"})),
            delta(2, json!({"type": "text_delta", "text": "es."})),
            stop(2),
            start(3, tool("tool_use", "toolu_1", "clock_read")),
            input(3, ""),
            input(3, "{\"zone\":"),
            input(3, "\"UTC\"}"),
            stop(3),
            start(
                4,
                tool("server_tool_use", "srvtoolu_1", "bash_code_execution")
            ),
            input(4, ""),
            input(4, "{\"comman"),
            input(4, "d\":\"ls\"}"),
            stop(4),
            start(
                5,
                json!({"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {}})
            ),
            stop(5),
            json!({
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use", "stop_sequence": null, "stop_details": null, "container": {"id": "container_1"}},
                "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5},
            }),
            json!({"type": "message_stop"}),
        ]
    );
    assert_eq!(
        response.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    assert_eq!(response.header("request-id"), Some("req_mock_0"));
}

#[test]
fn without_stream_the_same_message_is_one_object() {
    let message = Message::new()
        .text("Noon.")
        .tool_use("toolu_1", "clock_read", json!({"zone": "UTC"}))
        .stop_reason("max_tokens");
    let response = exchange(&mock(message), &ask(false));
    assert_eq!(response.header("content-type"), Some("application/json"));
    let body = response.json();
    assert_eq!(
        body["content"],
        json!([
            {"type": "text", "text": "Noon."},
            {"type": "tool_use", "id": "toolu_1", "name": "clock_read", "input": {"zone": "UTC"}, "caller": {"type": "direct"}},
        ])
    );
    assert_eq!(body["stop_reason"], "max_tokens");
    assert_eq!(body["usage"]["output_tokens"], 5);
}

#[test]
fn wire_05_a_call_without_arguments_has_one_empty_delta() {
    let response = stream(quiet(Message::new().tool_use("toolu_1", "ping", json!({}))));
    let deltas: Vec<Value> = response
        .events()
        .into_iter()
        .filter(|event| event["type"] == "content_block_delta")
        .collect();
    assert_eq!(
        deltas,
        [
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ""}})
        ]
    );
}

#[test]
fn wire_08_a_turn_may_end_with_no_content() {
    let response = stream(Message::new());
    assert_eq!(
        response.kinds(),
        ["message_start", "message_delta", "message_stop"]
    );
    assert_eq!(response.events()[1]["delta"]["stop_reason"], "end_turn");
}

#[test]
fn wire_09_usage_at_the_end_is_the_total() {
    let usage = Usage {
        input_tokens: 404_500,
        output_tokens: 50,
        cache_read: 3,
        cache_write_5m: 4,
        cache_write_1h: 5,
        thinking_tokens: Some(7),
        input_at_start: Some(2_479),
        ..Usage::default()
    };
    let events = stream(Message::new().stop_reason("pause_turn").usage(usage)).events();
    let start = json!({
        "input_tokens": 2_479, "cache_creation_input_tokens": 9, "cache_read_input_tokens": 3, "output_tokens": 1,
        "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 5},
        "service_tier": "standard",
    });
    let end = json!({
        "input_tokens": 404_500, "cache_creation_input_tokens": 9, "cache_read_input_tokens": 3, "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 7},
    });
    assert_eq!(
        [&events[0]["message"]["usage"], &events[1]["usage"]],
        [&start, &end]
    );
}

#[test]
fn wire_09_a_gateway_tells_usage_only_at_the_end() {
    let usage = Usage {
        only_at_end: true,
        ..Usage::default()
    };
    let events = stream(Message::new().usage(usage)).events();
    assert_eq!(events[0]["message"].get("usage"), None);
    assert_eq!(events[1]["usage"]["output_tokens"], 5);
}

#[test]
fn wire_11_content_may_stand_in_the_first_event() {
    let message = Message::new()
        .tool_use("toolu_1", "ping", json!({"n": 1}))
        .prefilled();
    let response = stream(message);
    assert_eq!(response.kinds(), ["message_start", "message_stop"]);
    let first = &response.events()[0]["message"];
    assert_eq!(first["content"][0]["input"], json!({"n": 1}));
    assert_eq!(first["stop_reason"], "tool_use");
}

#[test]
fn wire_19_the_stop_sequence_that_matched_is_told() {
    let message = Message {
        stop_sequence: Some("END".to_owned()),
        ..Message::new().stop_reason("stop_sequence")
    };
    let delta = stream(message).events()[1]["delta"].clone();
    assert_eq!(
        delta,
        json!({"stop_reason": "stop_sequence", "stop_sequence": "END", "stop_details": null})
    );
}
