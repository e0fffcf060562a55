//! What every wire must get right in the same way: replies that end oddly, arguments that are none,
//! and addresses where nothing is. What is special to one wire is tested in its folder.

use serde_json::{Value, json};

use super::test_kit::{Rig, calls, stream};
use super::{Decoded, Endpoint, Wire};

const ANTHROPIC: Rig = Rig {
    wire: Wire::Anthropic,
    provider: "anthropic",
    model: "claude-sonnet-4-5",
};
const RESPONSES: Rig = Rig {
    wire: Wire::OpenaiResponses,
    provider: "openai",
    model: "gpt-5.2",
};
const CHAT: Rig = Rig {
    wire: Wire::OpenaiChat,
    provider: "openrouter",
    model: "some-model",
};
const GEMINI: Rig = Rig {
    wire: Wire::Gemini,
    provider: "gemini",
    model: "gemini-2.5-pro",
};
const RIGS: [Rig; 4] = [ANTHROPIC, RESPONSES, CHAT, GEMINI];

/// The events with which a reply of this wire says `text`; none for an empty text.
fn says(wire: Wire, text: &str) -> Vec<Value> {
    if text.is_empty() {
        return match wire {
            Wire::Anthropic => vec![json!({"type": "message_start", "message": {"id": "m"}})],
            _ => vec![],
        };
    }
    match wire {
        Wire::Anthropic => vec![
            json!({"type": "message_start", "message": {"id": "m"}}),
            json!({"type": "content_block_start", "index": 0,
                   "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0,
                   "delta": {"type": "text_delta", "text": text}}),
            json!({"type": "content_block_stop", "index": 0}),
        ],
        Wire::OpenaiResponses => vec![
            json!({"type": "response.output_item.added", "output_index": 0,
                   "item": {"type": "message", "content": []}}),
            json!({"type": "response.output_text.delta", "output_index": 0, "delta": text}),
        ],
        Wire::OpenaiChat => vec![json!({"choices": [{"index": 0, "delta": {"content": text}}]})],
        Wire::Gemini => vec![json!({"candidates": [{"content": {"parts": [{"text": text}]}}]})],
    }
}

/// The events with which a call begins, in the middle of its arguments.
fn begins_a_call(wire: Wire) -> Vec<Value> {
    match wire {
        Wire::Anthropic => vec![
            json!({"type": "content_block_start", "index": 1,
                   "content_block": {"type": "tool_use", "id": "c", "name": "read", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1,
                   "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}}),
        ],
        Wire::OpenaiResponses => vec![
            json!({"type": "response.output_item.added", "output_index": 1,
                   "item": {"type": "function_call", "call_id": "c", "name": "read"}}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 1,
                   "delta": "{\"a\":"}),
        ],
        Wire::OpenaiChat => vec![json!({"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "c", "function": {"name": "read", "arguments": "{\"a\":"}}]}}]})],
        Wire::Gemini => vec![json!({"candidates": [{"content": {"parts": [
            {"functionCall": {"name": "read", "willContinue": true,
                              "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}]}}]}}]})],
    }
}

/// An error of the server's inside a stream.
fn breaks(wire: Wire) -> Value {
    let error = json!({"type": "overloaded_error", "message": "Overloaded.", "code": 503,
                       "status": "UNAVAILABLE"});
    in_a_stream(wire, &error)
}

/// The event in which an error of this wire comes.
fn in_a_stream(wire: Wire, error: &Value) -> Value {
    match wire {
        Wire::Anthropic | Wire::OpenaiResponses => json!({"type": "error", "error": error}),
        Wire::OpenaiChat | Wire::Gemini => json!({ "error": error }),
    }
}

#[test]
fn a_stream_that_was_cut_while_a_call_was_written_may_be_asked_for_again() {
    for rig in RIGS {
        for end in [None, Some(breaks(rig.wire))] {
            for (text, again) in [("", true), ("Let me see.", false)] {
                let mut events = says(rig.wire, text);
                events.extend(begins_a_call(rig.wire));
                events.extend(end.clone());
                let Decoded { response, error } = rig.decode(&stream(&events)).0;
                let error = error.unwrap();
                assert!(!response.complete, "{}", rig.wire);
                assert_eq!(
                    error.retryable, again,
                    "{}, after {text:?}: {error}",
                    rig.wire
                );
            }
        }
    }
}

#[test]
fn a_stream_that_was_cut_is_asked_for_again_unless_a_tool_of_the_providers_has_run() {
    let begins = |block: Value| {
        vec![
            json!({"type": "message_start", "message": {"id": "m"}}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
        ]
    };
    let ends = json!({"type": "content_block_stop", "index": 0});
    let used = json!({"type": "server_tool_use", "id": "s", "name": "bash_code_execution",
                      "input": {}});
    let code = json!({"type": "code_interpreter_call", "id": "c", "status": "in_progress"});
    let thought = begins(json!({"type": "redacted_thinking", "data": "x"}));
    let written = begins(used);
    for (rig, events, again) in [
        (ANTHROPIC, [thought, vec![ends.clone()]].concat(), true),
        (ANTHROPIC, written.clone(), true),
        (ANTHROPIC, [written, vec![ends]].concat(), false),
        (
            RESPONSES,
            vec![json!({"type": "response.output_item.added", "output_index": 0, "item": code})],
            false,
        ),
    ] {
        let error = rig.decode(&stream(&events)).0.error.unwrap();
        assert_eq!(error.kind, super::REPLY_CUT, "{events:?}");
        assert_eq!(error.retryable, again, "{events:?}");
    }
}

#[test]
fn tokens_and_the_mark_of_the_end_make_a_reply_whole_that_does_not_say_why_it_stopped() {
    let call = json!({"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "c", "function": {"name": "read", "arguments": "{\"a\":1}"}}]}}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
    let whole = stream(&[call.clone(), usage.clone()]) + "data: [DONE]\n\n";
    let dialects = [
        "openrouter",
        "openai",
        "deepseek",
        "mistral",
        "llamacpp",
        "ollama",
        "mine",
    ];
    for provider in dialects {
        let rig = Rig { provider, ..CHAT };
        let response = rig.complete_reply(&whole);
        assert_eq!(calls(&response)[0].2, json!({"a": 1}), "{provider}");
        assert_eq!(calls(&response)[0].3, None, "{provider}");
        assert_eq!(response.stop, None, "{provider}");
    }
    // Without one of the two it was cut, and the call does not run.
    for body in [
        stream(&[call.clone(), usage]),
        stream(std::slice::from_ref(&call)) + "data: [DONE]\n\n",
    ] {
        let Decoded { response, error } = CHAT.decode(&body).0;
        assert_eq!(error.unwrap().kind, "cut", "{body}");
        assert!(calls(&response)[0].3.is_some(), "{body}");
    }
}

/// A whole reply with one call of `read`, made of what a server puts where the arguments belong.
fn with_call(wire: Wire, call: &Value) -> String {
    match wire {
        Wire::Anthropic => stream(&[
            json!({"type": "message_start", "message": {"id": "m"}}),
            json!({"type": "content_block_start", "index": 0, "content_block":
                   {"type": "tool_use", "id": "c", "name": "read", "input": call["input"]}}),
            json!({"type": "content_block_delta", "index": 0, "delta":
                   {"type": "input_json_delta", "partial_json": call["partial_json"]}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": "message_stop"}),
        ]),
        Wire::OpenaiResponses => {
            let item = json!({"type": "function_call", "call_id": "c", "name": "read",
                              "status": "completed", "arguments": call["arguments"]});
            stream(&[
                json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
                json!({"type": "response.function_call_arguments.delta", "output_index": 0,
                       "delta": call["delta"]}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed",
                       "response": {"status": "completed", "output": [item]}}),
            ])
        }
        Wire::OpenaiChat => {
            stream(&[
                json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c",
                    "function": {"name": "read", "arguments": call["arguments"]}}]}}]}),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            ]) + "data: [DONE]\n\n"
        }
        Wire::Gemini => {
            let mut called = json!({"name": "read"});
            for (name, value) in call.as_object().unwrap() {
                called[name] = value.clone();
            }
            stream(&[
                json!({"candidates": [{"content": {"parts": [{"functionCall": called}]}}]}),
                json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}),
            ])
        }
    }
}

#[test]
fn malformed_arguments_never_reach_a_tool_as_an_empty_object() {
    let cases = [
        (&GEMINI, json!({"args": "{\"a\": 1}"})),
        (&GEMINI, json!({"args": "a: 1"})),
        (&GEMINI, json!({"args": [1]})),
        (&GEMINI, json!({"args": 1})),
        (&GEMINI, json!({"args": false})),
        (&GEMINI, json!({"partialArgs": "{\"a\": 1}"})),
        (
            &GEMINI,
            json!({"partialArgs": {"jsonPath": "$.a", "stringValue": "x"}}),
        ),
        (&GEMINI, json!({"partialArgs": [7]})),
        (&GEMINI, json!({"partialArgs": [{"stringValue": "x"}]})),
        (
            &GEMINI,
            json!({"partialArgs": [{"jsonPath": "$.a", "structValue": {"b": 1}}]}),
        ),
        (
            &GEMINI,
            json!({"partialArgs": [{"jsonPath": "$.a", "numberValue": "7"}]}),
        ),
        (
            &GEMINI,
            json!({"partialArgs": [{"jsonPath": "$..a", "stringValue": "x"}]}),
        ),
        // More was promised, and nothing came.
        (&GEMINI, json!({"willContinue": true})),
        (&GEMINI, json!({"willContinue": true, "partialArgs": []})),
        (&CHAT, json!({"arguments": "{\"a\": "})),
        (&CHAT, json!({"arguments": "a: 1"})),
        (&CHAT, json!({"arguments": [1]})),
        (&CHAT, json!({"arguments": 1})),
        (&CHAT, json!({"arguments": false})),
        (&RESPONSES, json!({"arguments": "{\"a\": "})),
        (&RESPONSES, json!({"arguments": [1]})),
        (&RESPONSES, json!({"arguments": 1})),
        (&RESPONSES, json!({"arguments": false})),
        (&RESPONSES, json!({"arguments": "", "delta": "{\"a\": "})),
        (&ANTHROPIC, json!({"input": {}, "partial_json": "{\"a\": "})),
        (&ANTHROPIC, json!({"input": {}, "partial_json": [1]})),
        (&ANTHROPIC, json!({"input": "a: 1", "partial_json": ""})),
        (&ANTHROPIC, json!({"input": [1], "partial_json": ""})),
        (&ANTHROPIC, json!({"input": false, "partial_json": ""})),
    ];
    for (rig, call) in cases {
        let body = with_call(rig.wire, &call);
        let Decoded { response, error } = rig.decode(&body).0;
        let runs = error.is_none() && response.complete;
        for (_, _, arguments, text) in calls(&response) {
            assert!(
                !runs || text.is_some(),
                "{}: {call} runs with {arguments}",
                rig.wire
            );
        }
        assert!(
            !runs || calls(&response).len() == 1,
            "{}: {call} is lost",
            rig.wire
        );
    }
}

#[test]
fn arguments_that_a_gateway_moves_are_found() {
    let cases = [
        (&CHAT, json!({"arguments": {"a": 1}})),
        (&RESPONSES, json!({"arguments": {"a": 1}})),
        (&RESPONSES, json!({"arguments": "", "delta": "{\"a\": 1}"})),
        (
            &RESPONSES,
            json!({"arguments": null, "delta": "{\"a\": 1}"}),
        ),
        (&ANTHROPIC, json!({"input": {}, "partial_json": {"a": 1}})),
        (&ANTHROPIC, json!({"input": {"a": 1}, "partial_json": ""})),
    ];
    for (rig, call) in cases {
        let calls = calls(&rig.complete_reply(&with_call(rig.wire, &call)));
        assert_eq!(calls[0].2, json!({"a": 1}), "{}: {call}", rig.wire);
        assert_eq!(calls[0].3, None, "{}: {call}", rig.wire);
    }
}

#[test]
fn nothing_at_an_address_is_told_with_the_model_and_the_address_on_every_wire() {
    let bodies = [
        r#"{"error":{"type":"not_found_error","message":"Not here"}}"#,
        r#"{"error":{"type":"invalid_request_error","message":"Not here"}}"#,
        r#"{"error":{"status":"INVALID_ARGUMENT","message":"Not here"}}"#,
        r#"{"error":{"code":"invalid_api_key","message":"Not here"}}"#,
        r#"{"error":"Not here"}"#,
        r#"{"detail":"Not here"}"#,
        "<html><title>Not here</title></html>",
        "",
    ];
    for rig in RIGS {
        let endpoint = Endpoint::new(rig.provider)
            .with_model(rig.model)
            .at("http://127.0.0.1:9/v7");
        for body in bodies {
            let error = rig.wire.error(&endpoint, 404, &[], body.as_bytes());
            assert_eq!((error.kind.as_str(), error.retryable), ("not_found", false));
            let advice = format!(
                "Check that the provider has the model `{}` (`conjure models` lists what it has), \
                 and that the base URL `http://127.0.0.1:9/v7` is its API's.",
                rig.model
            );
            assert!(error.message.ends_with(&advice), "{}: {error}", rig.wire);
        }
        // The same words where it is told inside the stream.
        let told = json!({"type": "not_found_error", "message": "Not here.", "code": 404,
                          "status": "NOT_FOUND"});
        let event = in_a_stream(rig.wire, &told);
        let mut decoder = rig.wire.decoder(&endpoint);
        let mut events = Vec::new();
        decoder.push(stream(&[event]).as_bytes(), &mut events);
        let error = decoder.finish(&mut events).error.unwrap();
        let refused = rig.wire.error(&endpoint, 404, &[], b"").message;
        let (_, advice) = refused.split_once("It gave no reason. ").unwrap();
        assert_eq!(error.kind, "not_found", "{}", rig.wire);
        assert!(error.message.ends_with(advice), "{}: {error}", rig.wire);
    }
    // What is no request to a model names none.
    let files = Endpoint::new("anthropic").at("http://127.0.0.1:9");
    let error = Wire::Anthropic.error(&files, 404, &[], b"");
    assert!(
        error.message.ends_with(
            "Check the name or id that was asked for, and the base URL `http://127.0.0.1:9`."
        ),
        "{error}"
    );
}
