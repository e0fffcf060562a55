//! Gemini.

use conjure_mock_llm::{Chunks, GeminiDialect, Message, Reply, Request, Usage, Wire};
use serde_json::{Value, json};

use super::everything;
use crate::client::{Response, answer, ask_of, exchange_of, mock};

/// The parts of all chunks, each with its finish reason if it has one.
fn parts(response: &Response) -> Vec<Value> {
    response
        .events()
        .iter()
        .flat_map(|event| {
            event["candidates"][0]["content"]["parts"]
                .as_array()
                .cloned()
        })
        .flatten()
        .collect()
}

/// The part with a word for its signature, which no two have alike.
fn signed(mut part: Value) -> Value {
    if let Some(signature) = part.get_mut("thoughtSignature") {
        assert!(signature.is_string());
        *signature = json!("signed");
    }
    part
}

fn streamed(model: &str, message: Message) -> Response {
    let body = ask_of(Wire::Gemini, false).body;
    let request = Request::to(Wire::Gemini, model, body).streaming();
    exchange_of(&mock(message), &request)
}

#[test]
fn a_stream_follows_the_recorded_grammar() {
    let response = answer(Wire::Gemini, true, everything().deltas(4));
    assert_eq!(
        json!(parts(&response).into_iter().map(signed).collect::<Vec<_>>()),
        json!([
            json!({"text": "Let ", "thought": true}),
            json!({"text": "me s", "thought": true}),
            json!({"text": "ee.", "thought": true}),
            json!({"text": "I lo", "thoughtSignature": "signed"}),
            json!({"text": "ok."}),
            json!({"functionCall": {"name": "clock_read", "args": {"zone": "UTC"}}}),
            json!({"functionCall": {"name": "bell_ring", "args": {}}}),
        ])
    );
    let finishes: Vec<Value> = response
        .events()
        .iter()
        .filter_map(|event| event["candidates"][0].get("finishReason").cloned())
        .collect();
    // Calls end with STOP, too (w48).
    assert_eq!(finishes, ["STOP"]);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
}

#[test]
fn without_stream_neighbouring_texts_are_one_part() {
    let body = answer(Wire::Gemini, false, everything().deltas(1)).json();
    let parts = body["candidates"][0]["content"]["parts"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(
        json!(parts.into_iter().map(signed).collect::<Vec<_>>()),
        json!([
            {"text": "Let me see.", "thought": true},
            {"text": "I look.", "thoughtSignature": "signed"},
            {"functionCall": {"name": "clock_read", "args": {"zone": "UTC"}}},
            {"functionCall": {"name": "bell_ring", "args": {}}},
        ])
    );
}

#[test]
fn w52_without_sse_the_stream_is_a_json_list_of_the_same_chunks() {
    let mut request = ask_of(Wire::Gemini, true);
    request.query.clear();
    for chunks in [Chunks::Events, Chunks::Bytes(1)] {
        let mock = mock(Reply::from(everything()).chunks(chunks));
        let list = exchange_of(&mock, &request);
        assert_eq!(
            list.header("content-type"),
            Some("application/json; charset=UTF-8")
        );
        let events = answer(Wire::Gemini, true, everything()).events();
        let parts = |events: &[Value]| -> Vec<Value> {
            events
                .iter()
                .map(|event| event["candidates"].clone())
                .collect()
        };
        let list = list.json();
        assert_eq!(parts(list.as_array().unwrap()), parts(&events));
    }
}

#[test]
fn w43_w44_the_third_generation_signs_the_first_call_of_several() {
    let message = || {
        Message::new()
            .tool_use("call_1", "clock_read", json!({}))
            .tool_use("call_2", "bell_ring", json!({}))
    };
    let signed = |model: &str| -> Vec<bool> {
        parts(&streamed(model, message()))
            .iter()
            .map(|part| part.get("thoughtSignature").is_some())
            .collect()
    };
    assert_eq!(signed("gemini-3-flash"), [true, false]);
    assert_eq!(signed("gemini-2.5-flash"), [false, false]);
}

#[test]
fn w46_only_the_pro_models_of_the_third_generation_tell_ids() {
    let message = || Message::new().tool_use("call_1", "clock_read", json!({}));
    let id = |model: &str, message: Message| -> Option<Value> {
        parts(&streamed(model, message))[0]["functionCall"]
            .get("id")
            .cloned()
    };
    assert_eq!(id("gemini-3-pro-preview", message()), Some(json!("call_1")));
    assert_eq!(id("gemini-3-flash-preview", message()), None);
    assert_eq!(id("gemini-2.5-pro", message()), None);
    let told = message().dialect(GeminiDialect {
        ids: Some(true),
        ..GeminiDialect::default()
    });
    assert_eq!(id("gemini-2.5-pro", told), Some(json!("call_1")));
}

#[test]
fn w45_a_signature_may_stand_on_an_empty_part_after_the_text() {
    let message = Message::new()
        .reasoning("hm")
        .text("Noon.")
        .dialect(GeminiDialect {
            trailing_signature: true,
            ..GeminiDialect::default()
        });
    let parts = parts(&answer(Wire::Gemini, true, message));
    assert_eq!(parts[1], json!({"text": "Noon."}));
    assert_eq!(parts[2]["text"], "");
    assert!(parts[2]["thoughtSignature"].is_string());
}

#[test]
fn w49_two_chunks_may_have_a_finish_reason() {
    let message = Message::new().text("Noon.").dialect(GeminiDialect {
        two_finishes: true,
        ..GeminiDialect::default()
    });
    let events = answer(Wire::Gemini, true, message).events();
    let finishes = events
        .iter()
        .filter(|event| event["candidates"][0]["finishReason"] == "STOP");
    assert_eq!(finishes.count(), 2);
}

#[test]
fn w50_arguments_may_come_in_parts_with_paths() {
    let message = Message::new()
        .tool_use(
            "call_1",
            "ring",
            json!({"bells": [{"name": "Emmanuel", "loud": true}], "times": 12}),
        )
        .deltas(5)
        .dialect(GeminiDialect {
            partial_args: true,
            ..GeminiDialect::default()
        });
    let calls: Vec<Value> = parts(&answer(Wire::Gemini, true, message))
        .into_iter()
        .map(|part| part["functionCall"].clone())
        .collect();
    let partial = |args: Value| json!({"partialArgs": [args], "willContinue": true});
    assert_eq!(
        calls,
        [
            json!({"name": "ring", "willContinue": true}),
            partial(
                json!({"jsonPath": "$.bells[0].name", "stringValue": "Emman", "willContinue": true})
            ),
            partial(
                json!({"jsonPath": "$.bells[0].name", "stringValue": "uel", "willContinue": false})
            ),
            partial(json!({"jsonPath": "$.bells[0].loud", "boolValue": true})),
            partial(json!({"jsonPath": "$.times", "numberValue": 12})),
            json!({}),
        ]
    );
}

#[test]
fn w51_a_broken_call_and_a_limit_with_nothing_said_have_no_parts() {
    let broken = Message::new().tool_use_text("call_1", "ring", "{\"bells\": [");
    let nothing = Message::new().stop_reason("max_tokens");
    let candidates = [broken, nothing]
        .map(|message| answer(Wire::Gemini, true, message).events()[0]["candidates"][0].clone());
    assert_eq!(
        candidates,
        [
            json!({"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}),
            json!({"finishReason": "MAX_TOKENS", "index": 0}),
        ]
    );
}

#[test]
fn w53_thoughts_are_not_among_the_candidates_tokens() {
    let usage = Usage {
        input_tokens: 10,
        output_tokens: 50,
        cache_read: 3,
        thinking_tokens: Some(7),
        ..Usage::default()
    };
    let body = answer(Wire::Gemini, false, Message::new().text("Hi").usage(usage)).json();
    assert_eq!(
        body["usageMetadata"],
        json!({
            "promptTokenCount": 13,
            "cachedContentTokenCount": 3,
            "candidatesTokenCount": 43,
            "thoughtsTokenCount": 7,
            "totalTokenCount": 63,
        })
    );
}

#[test]
fn a_result_is_found_by_the_calls_id_or_by_the_tools_name() {
    let with = |response: Value| {
        let mut request = ask_of(Wire::Gemini, false);
        request.body["contents"][0]["parts"] = json!([{"functionResponse": response}]);
        request
    };
    let by_id =
        with(json!({"id": "call_1", "name": "clock_read", "response": {"output": "12:00"}}));
    let by_name = with(json!({"name": "clock_read", "response": {"at": 12}}));
    assert_eq!(by_id.tool_result_text("call_1").as_deref(), Some("12:00"));
    assert_eq!(by_id.tool_result_text("clock_read"), None);
    assert_eq!(
        by_name.tool_result_text("clock_read").as_deref(),
        Some("{\"at\":12}")
    );
}
