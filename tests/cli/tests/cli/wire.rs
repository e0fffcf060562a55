//! `conjure wire`: a provider's bytes and the canonical form.

use conjure_mock_llm::{Block, Message, Request, Wire};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::stage::{conjure, json, workspace};

const WIRES: [(Wire, &str, &str); 4] = [
    (Wire::Anthropic, "anthropic", "claude-sonnet-4-5"),
    (Wire::Responses, "openai-responses", "gpt-5"),
    (Wire::Chat, "openai-chat", "gpt-5"),
    (Wire::Gemini, "gemini", "gemini-2.5-pro"),
];

/// The reply that a server of this wire would write.
fn recorded(wire: Wire, model: &str, message: &Message, stream: bool) -> Vec<u8> {
    let asks = json!({ "model": model, "stream_options": { "include_usage": true } });
    let request = Request::to(wire, model, asks);
    let request = if stream { request.streaming() } else { request };
    message.body(&request)
}

fn decoded(args: &str, body: &[u8]) -> Value {
    let output = conjure(&workspace(&[]), &format!("wire decode {args}"))
        .stdin(body)
        .run()
        .unwrap();
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(0), ""),
        "{args}"
    );
    json(&output)
}

#[test]
fn a_reply_means_the_same_on_every_wire_streamed_or_not() {
    let message = Message::new()
        .text("It is noon. ")
        .tool_use("call_1", "clock", json!({"zone": "UTC"}))
        .tool_use("call_2", "clock", json!({"zone": "Asia/Tokyo"}));
    for (wire, name, model) in WIRES {
        for stream in [true, false] {
            let body = recorded(wire, model, &message, stream);
            let reply = decoded(&format!("--wire {name}"), &body);
            assert_eq!(reply["text"], "It is noon. ", "{name}");
            assert_eq!(reply["complete"], true, "{name}");
            assert_eq!(reply["error"], Value::Null, "{name}");
            let calls = reply["tool_calls"].as_array().unwrap();
            let arguments: Vec<&Value> = calls.iter().map(|call| &call["arguments"]).collect();
            assert_eq!(
                arguments,
                [&json!({"zone": "UTC"}), &json!({"zone": "Asia/Tokyo"})],
                "{name}"
            );
            assert!(
                calls
                    .iter()
                    .all(|call| call["name"] == "clock" && call["id"].is_string())
            );
            assert_eq!(reply["usage"]["output"], 5, "{name}");
            assert_eq!(reply["parts"].as_array().unwrap().len(), 3, "{name}");
            assert!(!reply["events"].as_array().unwrap().is_empty(), "{name}");
        }
    }
}

#[test]
fn a_whole_object() {
    let message = Message::new()
        .text("Hi.")
        .tool_use_text("toolu_1", "clock", "{\"zone\": \"U");
    let body = recorded(
        Wire::Anthropic,
        "claude-sonnet-4-5",
        &message.stop_reason("max_tokens"),
        true,
    );
    let reply = decoded("--wire anthropic", &body);
    assert_snapshot!(serde_json::to_string_pretty(&reply).unwrap(), @r#"
    {
      "id": "msg_mock_0",
      "model": "claude-sonnet-4-5",
      "parts": [
        {
          "type": "text",
          "text": "Hi."
        },
        {
          "type": "function_call",
          "call_id": "toolu_1",
          "name": "clock",
          "arguments": {},
          "arguments_text": "{\"zone\": \"U"
        }
      ],
      "tool_calls": [
        {
          "id": "toolu_1",
          "name": "clock",
          "arguments_text": "{\"zone\": \"U"
        }
      ],
      "text": "Hi.",
      "reasoning": "",
      "stop_reason": "max_tokens",
      "stop": {
        "reason": "max_tokens",
        "raw": "max_tokens"
      },
      "usage": {
        "input": 10,
        "cache_read": 0,
        "cache_write": 0,
        "output": 5,
        "reasoning": 0
      },
      "fields": {},
      "complete": true,
      "events": [
        {
          "type": "usage",
          "input": 10,
          "cache_read": 0,
          "cache_write": 0,
          "output": 1,
          "reasoning": 0
        },
        {
          "type": "content",
          "delta": "Hi."
        },
        {
          "type": "call_started",
          "call_id": "toolu_1",
          "name": "clock"
        },
        {
          "type": "call",
          "call_id": "toolu_1"
        },
        {
          "type": "usage",
          "input": 10,
          "cache_read": 0,
          "cache_write": 0,
          "output": 5,
          "reasoning": 0
        }
      ],
      "error": null
    }
    "#);
}

#[test]
fn a_stream_that_just_stops_is_not_complete_and_one_cut_by_a_limit_is() {
    for (wire, name, model) in WIRES {
        let message = Message::new()
            .text("A long answer to a short question.")
            .deltas(4);
        let whole = recorded(
            wire,
            model,
            &message.clone().stop_reason("max_tokens"),
            true,
        );
        let reply = decoded(&format!("--wire {name}"), &whole);
        assert_eq!(reply["complete"], true, "{name}: {reply}");
        assert_eq!(reply["stop"]["reason"], "max_tokens", "{name}: {reply}");
        let body = recorded(wire, model, &message, true);
        let half = &body[..body.len() / 2];
        let reply = decoded(&format!("--wire {name}"), half);
        assert_eq!(reply["complete"], false, "{name}: {reply}");
        let text = reply["text"].as_str().unwrap();
        assert!(text.starts_with("A lo"), "{name}: {text}");
    }
}

#[test]
fn thoughts_are_apart_from_the_text() {
    for (wire, name, model) in WIRES {
        let message = Message::new().reasoning("Let me see.").text("Noon.");
        let body = recorded(wire, model, &message, true);
        let reply = decoded(
            &format!("--wire {name} --provider deepseek --model {model}"),
            &body,
        );
        assert_eq!(reply["reasoning"], "Let me see.", "{name}: {reply}");
        assert_eq!(reply["text"], "Noon.", "{name}");
    }
}

#[test]
fn a_status_makes_the_body_an_error() {
    let body = br#"{"error":{"message":"No such model","type":"invalid_request_error","code":"model_not_found"}}"#;
    let reply = decoded("--wire openai-responses --status 404", body);
    assert_eq!(reply["error"]["kind"], "not_found", "{reply}");
    assert_eq!(reply["error"]["retryable"], false);
    assert!(
        reply["error"]["message"]
            .as_str()
            .unwrap()
            .contains("No such model")
    );
    assert_eq!(reply["complete"], false);
    let page = decoded("--wire gemini --status 502", b"<html>Bad gateway</html>");
    assert_eq!(page["error"]["retryable"], true, "{page}");
}

#[test]
fn what_is_no_reply_at_all_is_an_error_in_the_object() {
    for (_, name, _) in WIRES {
        for body in [&b"<html>Log in</html>"[..], b"\xff\xfe", b"{\"a\":", b""] {
            let reply = decoded(&format!("--wire {name}"), body);
            assert_eq!(reply["complete"], false, "{name} {body:?}");
            assert_eq!(reply["parts"], json!([]), "{name} {body:?}");
        }
        let reply = decoded(&format!("--wire {name}"), b"<html>Log in</html>");
        assert_eq!(reply["error"]["kind"], "protocol", "{name}");
    }
}

#[test]
fn a_file_is_read_and_what_is_missing_is_wrong_usage() {
    let workspace = workspace(&[]);
    let body = recorded(
        Wire::Gemini,
        "gemini-2.5-pro",
        &Message::new().text("Hi."),
        true,
    );
    workspace.write("reply.sse", body).unwrap();
    let output = conjure(&workspace, "wire decode --wire gemini reply.sse")
        .run()
        .unwrap();
    assert_eq!(json(&output)["text"], "Hi.");
    for (args, words) in [
        ("wire decode --wire gemini nothing.sse", "nothing.sse"),
        ("wire decode reply.sse", "--wire"),
        (
            "wire decode --wire telex reply.sse",
            "the wires are anthropic, openai-responses",
        ),
        (
            "wire encode --wire gemini reply.sse",
            "conjure-host/docs/wires.md",
        ),
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        assert!(output.stderr.contains(words), "{args}: {}", output.stderr);
    }
}

/// What `wire encode` prints and says.
fn encoded(args: &str, chat: &Value) -> (Value, String) {
    let output = conjure(&workspace(&[]), &format!("wire encode {args}"))
        .stdin(chat.to_string())
        .run()
        .unwrap();
    assert_eq!(output.code, Some(0), "{args}: {}", output.stderr);
    let stderr = output.stderr.clone();
    (json(&output), stderr)
}

#[test]
fn a_conversation_becomes_a_request_that_each_provider_takes() {
    let chat = json!({
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "What time is it?"},
            {"role": "assistant", "content": [
                {"type": "function_call", "call_id": "c/1", "name": "clock", "arguments": {}},
                {"type": "function_call", "call_id": "c/2", "name": "clock", "arguments": {"zone": "UTC"}}]},
        ],
        "tools": [{"name": "clock", "description": "Tells the time.",
            "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}}}],
    });
    for (wire, name, model) in WIRES {
        let (body, _) = encoded(&format!("--wire {name} --model {model}"), &chat);
        let request = Request::to(wire, model, body).streaming();
        assert_eq!(conjure_mock_llm::validate(wire, &request), [], "{name}");
        assert_eq!(request.tool_names(), ["clock"], "{name}");
    }
}

#[test]
fn what_was_recast_is_explained() {
    let chat = json!([
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "Hm.", "sidecar": {"provider": "anthropic",
                "model_family": "claude-sonnet-4-5", "data": {"signature": "c2ln"}}},
            {"type": "text", "text": " "},
            {"type": "function_call", "call_id": "toolu_1", "name": "clock", "arguments": {}}]},
        {"role": "tool", "content": [
            {"type": "function_call_output", "call_id": "toolu_9", "output": [{"type": "text", "text": "Noon."}]}]},
    ]);
    let (_, said) = encoded("--wire openai-responses --model gpt-5 --explain", &chat);
    assert_snapshot!(said, @"
    POST …/responses
    accept: text/event-stream
    content-type: application/json
    message 2: thoughts are left out: they are anthropic/claude-sonnet-4-5's, and go to nobody else
    message 2: a text is left out: it is empty
    message 3: the result of `toolu_9` is told as text or left out: no call right before it asked for it
    a result is added for the call `toolu_1`, which has none: [No result of this call is known: it may have taken effect or not. Check before you call it again.]
    ");
    let (_, said) = encoded("--wire gemini --model gemini-2.5-pro", &chat);
    assert_eq!(said, "", "only when asked");
    let plain = json!([{"role": "user", "content": "Hi."}]);
    let (_, said) = encoded(
        "--wire anthropic --model claude-sonnet-4-5 --explain",
        &plain,
    );
    assert!(
        said.ends_with("Nothing was recast, left out or added.\n"),
        "{said}"
    );
}

#[test]
fn what_was_decoded_can_be_encoded_for_its_signer_byte_for_byte() {
    for (wire, name, model) in WIRES {
        let message = Message::new()
            .block(Block::Thinking {
                thinking: "Let me see.".to_owned(),
                signature: String::new(),
            })
            .tool_use("call_1", "clock", json!({}));
        let asks = json!({ "model": model, "store": false,
            "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"} });
        let request = Request::to(wire, model, asks).streaming();
        let whose = format!("--wire {name} --provider deepseek --model {model}");
        let reply = decoded(&whose, &message.body(&request));
        let id = &reply["tool_calls"][0]["id"];
        let chat = json!({
            "messages": [
                {"role": "user", "content": "What time is it?"},
                {"role": "assistant", "content": reply["parts"]},
                {"role": "tool", "content": [{"type": "function_call_output", "call_id": id,
                    "output": [{"type": "text", "text": "Noon."}]}]},
            ],
            "tools": [{"name": "clock", "description": "", "input_schema": {"type": "object"}}],
            "thinking_tokens": 2048,
        });
        let (body, _) = encoded(&whose, &chat);
        let request = Request::to(wire, model, body).streaming();
        assert_eq!(conjure_mock_llm::validate(wire, &request), [], "{name}");
        assert_eq!(conjure_mock_llm::verify(wire, &request), [], "{name}");
        // What the signer wants back is in its sidecar; without one, it is the thought itself.
        let body = request.body.to_string();
        let signed: Vec<&str> = reply["parts"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|part| part["sidecar"]["data"].as_object().into_iter().flatten())
            .filter_map(|(_, value)| value.as_str())
            .filter(|text| text.len() >= 16)
            .collect();
        assert!(
            signed.iter().any(|text| body.contains(text)) || body.contains("Let me see."),
            "{name}: {body}"
        );
    }
}
