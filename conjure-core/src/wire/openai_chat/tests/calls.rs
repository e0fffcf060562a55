//! Calls out of fragments.

use super::*;
use crate::chat::{StopReason, StreamEvent};
use crate::wire::test_kit::calls;

fn fragment(index: Value, id: Value, name: Value, arguments: Value) -> Value {
    let mut call = json!({"function": {}});
    for (place, value) in [("index", index), ("id", id)] {
        if value != "-" {
            call[place] = value;
        }
    }
    for (place, value) in [("name", name), ("arguments", arguments)] {
        if value != "-" {
            call["function"][place] = value;
        }
    }
    call
}

/// Two calls, `read` with `{"a":1}` and `list` with `{"b":2}`, in fragments.
fn two(fragments: &[[Value; 4]]) -> Vec<(String, serde_json::Value)> {
    let deltas = fragments.iter().cloned().map(|[index, id, name, arguments]| {
        json!({"tool_calls": [fragment(index, id, name, arguments)]})
    });
    let response = RIG.complete_reply(&reply(deltas.collect(), "tool_calls"));
    assert_eq!(response.stop.as_ref().unwrap().reason, StopReason::ToolUse);
    let calls = calls(&response);
    assert!(calls.iter().all(|call| call.3.is_none()), "{calls:?}");
    calls.into_iter().map(|call| (call.1, call.2)).collect()
}

#[test]
fn w30_fragments_are_joined_by_index_however_servers_count() {
    let j = |text: &str| Value::from(text);
    let n = |number: u64| Value::from(number);
    let no = || Value::from("-");
    let expected = [
        ("read".to_owned(), json!({"a": 1})),
        ("list".to_owned(), json!({"b": 2})),
    ];
    let ways: Vec<Vec<[Value; 4]>> = vec![
        // As OpenAI does, one behind the other and interleaved.
        vec![
            [n(0), j("c1"), j("read"), j("")],
            [n(0), no(), no(), j("{\"a\":")],
            [n(0), no(), no(), j("1}")],
            [n(1), j("c2"), j("list"), j("{\"b\":2}")],
        ],
        vec![
            [n(0), j("c1"), j("read"), j("")],
            [n(1), j("c2"), j("list"), j("{\"b\":")],
            [n(0), no(), no(), j("{\"a\":1}")],
            [n(1), no(), no(), j("2}")],
        ],
        // Counted from 1.
        vec![
            [n(1), j("c1"), j("read"), j("{\"a\":1}")],
            [n(2), j("c2"), j("list"), j("{\"b\":2}")],
        ],
        // No index, whole calls or fragments, with ids and without.
        vec![
            [no(), j("c1"), j("read"), j("{\"a\":1}")],
            [no(), j("c2"), j("list"), j("{\"b\":2}")],
        ],
        vec![
            [no(), j("c1"), j("read"), j("{\"a\"")],
            [no(), no(), no(), j(":1}")],
            [no(), j("c2"), j("list"), j("{\"b\":2}")],
        ],
        vec![
            [no(), no(), j("read"), j("{\"a\":1}")],
            [Value::Null, j(""), j("list"), j("{\"b\":2}")],
        ],
        // Always index 0.
        vec![
            [n(0), j("c1"), j("read"), j("{\"a\":1}")],
            [n(0), j("c2"), j("list"), j("{\"b\":2}")],
        ],
        // Id and name in every fragment.
        vec![
            [n(0), j("c1"), j("read"), j("{\"a\"")],
            [n(0), j("c1"), j("read"), j(":1}")],
            [n(1), j("c2"), j("list"), j("{\"b\"")],
            [n(1), j("c2"), j("list"), j(":2}")],
        ],
        // The name comes late.
        vec![
            [n(0), j("c1"), no(), j("{\"a\"")],
            [n(0), no(), j("read"), j(":1}")],
            [n(1), j("c2"), j("list"), j("{\"b\":2}")],
        ],
        // An object instead of its text.
        vec![
            [n(0), j("c1"), j("read"), json!({"a": 1})],
            [n(1), j("c2"), j("list"), json!({"b": 2})],
        ],
    ];
    for way in ways {
        assert_eq!(two(&way), expected, "{way:?}");
    }
}

#[test]
fn w30_a_call_is_announced_once_its_name_is_known() {
    let body = reply(
        vec![
            json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"name": "read"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"name": "read", "arguments": "{}"}}]}),
        ],
        "tool_calls",
    );
    let id = || "c1".to_owned();
    assert_eq!(
        RIG.decode(&body).1,
        [
            StreamEvent::CallStarted {
                call_id: id(),
                name: "read".to_owned()
            },
            StreamEvent::Call { call_id: id() },
        ]
    );
}

#[test]
fn w31_a_call_is_whole_only_at_the_end_of_the_stream() {
    let deltas = [
        json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "read", "arguments": "{}"}}]}),
    ];
    let (decoded, events) = RIG.decode(&stream(&[delta(deltas[0].clone())]));
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, StreamEvent::Call { .. }))
    );
    assert!(!decoded.response.complete);
    assert_eq!(calls(&decoded.response)[0].3.as_deref(), Some("{}"));
    // `{}` was a prefix.
    let more = json!({"tool_calls": [{"index": 0, "function": {"arguments": " garbage"}}]});
    let response = RIG.complete_reply(&reply(vec![deltas[0].clone(), more], "tool_calls"));
    assert_eq!(calls(&response)[0].3.as_deref(), Some("{} garbage"));
}

#[test]
fn w32_arguments_that_a_limit_cut_off_stay_text_and_the_reply_stays() {
    let call = |index: u64, arguments: &str| json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "function": {"name": "read", "arguments": arguments}}]});
    let deltas = vec![
        json!({"content": "Hm."}),
        call(0, "{\"a\":1}"),
        call(1, "{\"a\":"),
    ];
    let response = RIG.complete_reply(&reply(deltas, "length"));
    let stop = response.stop.clone().unwrap();
    assert_eq!(
        (stop.reason, stop.raw.as_str()),
        (StopReason::MaxTokens, "length")
    );
    assert!(!stop.reason.calls_may_run());
    assert_eq!(response.parts[0].as_text(), Some("Hm."));
    let calls: Vec<_> = calls(&response)
        .into_iter()
        .map(|call| (call.2, call.3))
        .collect();
    assert_eq!(
        calls,
        [
            (json!({"a": 1}), None),
            (json!({}), Some("{\"a\":".to_owned())),
        ]
    );
    // The model reads what it wrote, inside an object.
    let body = RIG.body(RIG.answered(&response));
    assert_eq!(
        body["messages"][1]["tool_calls"][1]["function"]["arguments"],
        r#"{"arguments_text":"{\"a\":"}"#
    );
}

#[test]
fn w37_ids_that_are_empty_are_invented_and_results_find_their_calls() {
    let message = json!({"content": null, "tool_calls": [
        {"id": "", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        {"type": "function", "function": {"name": "list", "arguments": "{}"}},
    ]});
    let response = RIG.complete_reply(&body(message, "tool_calls"));
    let ids: Vec<String> = calls(&response).into_iter().map(|call| call.0).collect();
    assert_eq!(ids, ["call_1", "call_2"]);
    let sent = RIG.body(RIG.answered(&response));
    let messages = sent["messages"].as_array().unwrap();
    assert_eq!(
        messages[1]["tool_calls"][1]["id"],
        messages[3]["tool_call_id"]
    );
}

#[test]
fn w38_arguments_that_are_missing_or_null_are_an_empty_object() {
    for function in [
        json!({"name": "read"}),
        json!({"name": "read", "arguments": null}),
        json!({"name": "read", "arguments": ""}),
        json!({"name": "read", "arguments": "null"}),
    ] {
        let message = json!({"tool_calls": [{"id": "c1", "function": function}]});
        let response = RIG.complete_reply(&body(message.clone(), "tool_calls"));
        assert_eq!(calls(&response)[0].2, json!({}));
        assert_eq!(calls(&response)[0].3, None);
        let streamed = RIG.complete_reply(&reply(vec![message], "tool_calls"));
        assert_eq!(calls(&streamed), calls(&response));
    }
}
