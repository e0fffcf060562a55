//! Decoding.

use proptest::prelude::*;

use super::*;
use crate::chat::{Content, Part, StopReason, StreamEvent, Usage};
use crate::wire::test_kit::calls;

fn delta(kind: &str, index: u64, text: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": text})
}

#[test]
fn a_reply_with_as_many_items_as_are_read_is_whole() {
    let items = |count: u64| -> Vec<Value> {
        let ids = (0..count).map(|at| format!("msg_{at}"));
        ids.map(|id| message(&id, "x")).collect()
    };
    for (count, is_whole) in [(4_096, true), (4_097, false)] {
        let items = items(count);
        let done = (0..).zip(&items).map(|(index, item): (u64, _)| {
            json!({"type": "response.output_item.done", "output_index": index, "item": item})
        });
        let events = std::iter::once(created()).chain(done);
        let events: Vec<Value> = events.chain([end("completed", &items)]).collect();
        let (decoded, _) = RIG.decode(&stream(&events));
        assert_eq!(
            decoded.error.is_none(),
            is_whole,
            "{count} {:?}",
            decoded.error
        );
        assert_eq!(decoded.response.complete, is_whole, "{count}");
    }
}

#[test]
fn a_reply_becomes_events_and_a_response() {
    let call = function_call("fc_1", "call_1", r#"{"path":"a"}"#);
    let begun = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": ""});
    let body = stream(&[
        created(),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "msg_1", "content": []}}),
        delta("output_text", 0, "Hel"),
        delta("output_text", 0, "lo"),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message("msg_1", "Hello")}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": begun}),
        delta("function_call_arguments", 1, "{\"path\":"),
        delta("function_call_arguments", 1, "\"a\"}"),
        json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
        end("completed", &[message("msg_1", "Hello"), call.clone()]),
    ]);
    let (decoded, events) = RIG.decode(&body);
    assert_eq!(decoded.error, None);
    let usage = Usage {
        input: 30,
        cache_read: 60,
        cache_write: 10,
        output: 50,
        reasoning: 20,
    };
    assert_eq!(
        events,
        [
            StreamEvent::Content {
                delta: "Hel".to_owned()
            },
            StreamEvent::Content {
                delta: "lo".to_owned()
            },
            StreamEvent::CallStarted {
                call_id: "call_1".to_owned(),
                name: "read".to_owned()
            },
            StreamEvent::Call {
                call_id: "call_1".to_owned()
            },
            StreamEvent::Usage(usage),
        ]
    );
    let response = decoded.response;
    assert!(response.complete);
    assert_eq!(response.id.as_deref(), Some("resp_1"));
    assert_eq!(response.usage, usage);
    let stop = response.stop.clone().unwrap();
    assert_eq!(
        (stop.reason, stop.raw.as_str()),
        (StopReason::ToolUse, "completed")
    );
    assert_eq!(
        response.parts,
        [
            Part {
                content: Content::Text {
                    text: "Hello".to_owned()
                },
                sidecar: RIG.sidecar(json!({"id": "msg_1", "status": "completed"})),
            },
            Part {
                sidecar: RIG.sidecar(json!({"id": "fc_1", "status": "completed"})),
                ..crate::wire::test_kit::call("call_1", "read", json!({"path": "a"}))
            },
        ]
    );
}

#[test]
fn w60_the_five_numbers_do_not_overlap() {
    let usage = RIG
        .complete_reply(&reply(&[message("m", "a")], "completed"))
        .usage;
    assert_eq!(
        usage,
        Usage {
            input: 30,
            cache_read: 60,
            cache_write: 10,
            output: 50,
            reasoning: 20
        }
    );
}

#[test]
fn w22_items_are_told_apart_by_their_place_whatever_their_ids_are() {
    // Ids change from event to event, and two calls come interleaved.
    let call = |id: &str, call_id: &str, arguments: &str| function_call(id, call_id, arguments);
    let body = stream(&[
        created(),
        json!({"type": "response.output_item.added", "output_index": 0, "item": call("fc_a", "call_1", "")}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": call("fc_b", "call_2", "")}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_x", "output_index": 1, "delta": "{\"b\":2}"}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_y", "output_index": 0, "delta": "{\"a\":1}"}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": call("fc_z", "call_2", "{\"b\":2}")}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": call("fc_w", "call_1", "{\"a\":1}")}),
        end(
            "completed",
            &[
                call("fc_q", "call_1", "{\"a\":1}"),
                call("fc_r", "call_2", "{\"b\":2}"),
            ],
        ),
    ]);
    let response = RIG.complete_reply(&body);
    let found: Vec<_> = calls(&response)
        .into_iter()
        .map(|call| (call.0, call.2))
        .collect();
    assert_eq!(
        found,
        [
            ("call_1".to_owned(), json!({"a": 1})),
            ("call_2".to_owned(), json!({"b": 2})),
        ]
    );
    // Results go to the call id, which is not the item's.
    let body = RIG.body(RIG.answered(&response));
    assert_eq!(body["input"][3]["call_id"], "call_1");
    assert_eq!(body["input"][1]["id"], "fc_w");
}

#[test]
fn w23_a_call_that_a_limit_cut_off_never_runs() {
    let mut cut = function_call("fc_1", "call_1", "{\"path\":\"a");
    cut["status"] = "incomplete".into();
    let (decoded, events) = RIG.decode(&reply(&[cut], "incomplete"));
    assert_eq!(decoded.error, None);
    let response = decoded.response;
    assert!(response.complete);
    let stop = response.stop.clone().unwrap();
    assert_eq!(
        (stop.reason, stop.raw.as_str()),
        (StopReason::MaxTokens, "max_output_tokens")
    );
    let text = Some("{\"path\":\"a".to_owned());
    assert_eq!(
        calls(&response),
        [("call_1".to_owned(), "read".to_owned(), json!({}), text)]
    );
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, StreamEvent::Call { .. }))
    );
    // Even where the arguments could be read.
    let mut cut = function_call("fc_1", "call_1", "{}");
    cut["status"] = "incomplete".into();
    let response = RIG.complete_reply(&reply(&[cut], "incomplete"));
    assert_eq!(calls(&response)[0].3.as_deref(), Some("{}"));
}

#[test]
fn w24_a_reply_that_only_reasoned_is_whole_and_says_that_it_was_cut_short() {
    let response = RIG.complete_reply(&reply(&[reasoning("rs_1")], "incomplete"));
    assert_eq!(response.stop.unwrap().reason, StopReason::MaxTokens);
    assert!(matches!(&response.parts[..], [part] if part.as_text().is_none()));
}

#[test]
fn w25_failures_are_told_and_retried_only_before_output() {
    let error = json!({"type": "error", "code": "server_error", "message": "Oops"});
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "status": "failed",
        "error": {"code": "server_error", "message": "Oops"}, "output": []}});
    for events in [
        vec![error.clone(), failed.clone()],
        vec![created(), failed.clone()],
    ] {
        let decoded = RIG.decode(&stream(&events)).0;
        let error = decoded.error.unwrap();
        assert_eq!(
            (error.kind.as_str(), error.retryable),
            ("api", true),
            "{}",
            error.message
        );
        assert!(!decoded.response.complete);
    }
    let late = [created(), delta("output_text", 0, "Half"), failed];
    let decoded = RIG.decode(&stream(&late)).0;
    assert!(!decoded.error.unwrap().retryable);
    assert_eq!(decoded.response.parts, [Part::text("Half")]);
    // A status of 200 without any output.
    let (decoded, _) = RIG.decode("");
    assert_eq!(
        decoded.error.map(|error| error.kind).as_deref(),
        Some("cut")
    );
}

#[test]
fn w26_the_phase_of_a_message_is_kept() {
    let mut commentary = message("msg_1", "Looking.");
    commentary["phase"] = "commentary".into();
    let response = RIG.complete_reply(&reply(&[commentary], "completed"));
    let body = RIG.body(RIG.answered(&response));
    assert_eq!(body["input"][1]["phase"], "commentary");
}

#[test]
fn w27_a_call_named_parallel_becomes_the_calls_inside_it() {
    let mut call = function_call("fc_1", "call_1", "");
    call["name"] = "parallel".into();
    call["arguments"] = json!({"tool_uses": [
        {"recipient_name": "functions.a", "parameters": {"x": 1}},
        {"recipient_name": "functions.b", "parameters": {}},
    ]})
    .to_string()
    .into();
    let response = RIG.complete_reply(&reply(&[call], "completed"));
    let names: Vec<_> = calls(&response)
        .into_iter()
        .map(|call| (call.0, call.1))
        .collect();
    assert_eq!(
        names,
        [
            ("call_1_1".to_owned(), "a".to_owned()),
            ("call_1_2".to_owned(), "b".to_owned()),
        ]
    );
}

#[test]
fn w28_a_refusal_is_content_of_a_completed_reply() {
    let refusal = json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "refusal", "refusal": "I cannot."}]});
    let body = stream(&[
        created(),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}}),
        delta("refusal", 0, "I can"),
        delta("refusal", 0, "not."),
        json!({"type": "response.output_item.done", "output_index": 0, "item": refusal}),
        end("completed", &[]),
    ]);
    let response = RIG.complete_reply(&body);
    let stop = response.stop.clone().unwrap();
    assert_eq!(
        (stop.reason, stop.raw.as_str()),
        (StopReason::Refusal, "completed")
    );
    assert_eq!(response.parts[0].as_text(), Some("I cannot."));
    let body = RIG.body(RIG.answered(&response));
    let content = &body["input"][1]["content"][0];
    assert_eq!(*content, json!({"type": "refusal", "refusal": "I cannot."}));
}

#[test]
fn w29_the_input_of_a_custom_tool_is_free_text() {
    let item = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "sql",
                      "input": "{not json", "status": "completed"});
    let response = RIG.complete_reply(&reply(std::slice::from_ref(&item), "completed"));
    assert_eq!(
        calls(&response),
        [(
            "call_1".to_owned(),
            "sql".to_owned(),
            json!({"input": "{not json"}),
            None
        )]
    );
    let body = RIG.body(RIG.answered(&response));
    let mut back = body["input"][1].clone();
    back.sort_all_objects();
    let mut item = item;
    item.sort_all_objects();
    assert_eq!(back, item);
    assert_eq!(
        body["input"][2],
        json!({"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"})
    );
}

#[test]
fn w58_a_stream_that_just_stops_is_not_complete_and_its_call_cannot_run() {
    let call = function_call("fc_1", "call_1", "");
    let events = [
        created(),
        json!({"type": "response.output_item.added", "output_index": 0, "item": call}),
        delta("function_call_arguments", 0, "{}"),
    ];
    let decoded = RIG.decode(&stream(&events)).0;
    assert_eq!(
        decoded.error.map(|error| error.kind).as_deref(),
        Some("cut")
    );
    assert!(!decoded.response.complete);
    assert_eq!(calls(&decoded.response)[0].3.as_deref(), Some("{}"));
    assert_eq!(decoded.response.parts[0].sidecar, None);
}

#[test]
fn a_tool_of_the_providers_own_that_only_reads_counts_as_run_only_when_it_is_done() {
    let error = |events: &[Value]| RIG.decode(&stream(events)).0.error.unwrap();
    for (kind, passes) in [
        ("web_search_call", true),
        ("file_search_call", true),
        ("mcp_list_tools", true),
        ("code_interpreter_call", false),
        ("mcp_call", false),
    ] {
        let item = json!({"type": kind, "id": "i_1"});
        let of = |event: &str| json!({"type": format!("response.output_item.{event}"), "output_index": 0, "item": item});
        let begun = [created(), of("added")];
        assert_eq!(error(&begun).retryable, passes, "{kind}");
        let done = [&begun[..], &[of("done")]].concat();
        assert!(!error(&done).retryable, "{kind}");
    }
}

#[test]
fn w59_items_of_the_providers_own_tools_are_kept_opaque() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
                        "action": {"type": "search", "query": "x"}});
    let (decoded, events) = RIG.decode(&reply(&[search.clone(), message("m", "a")], "completed"));
    assert!(events.contains(&StreamEvent::ServerItem {
        item: search.clone()
    }));
    let body = RIG.body(RIG.answered(&decoded.response));
    assert_eq!(body["input"][1], search);
}

#[test]
fn thoughts_are_told_as_they_are_kept() {
    let mut thought = reasoning("rs_1");
    thought["summary"] =
        json!([{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]);
    let piece = |index: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": index, "delta": text});
    let body = stream(&[
        created(),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1", "summary": []}}),
        piece(0, "On"),
        piece(0, "e."),
        piece(1, "Two."),
        json!({"type": "response.output_item.done", "output_index": 0, "item": thought}),
        end("completed", &[]),
    ]);
    let (decoded, events) = RIG.decode(&body);
    let told: String = events
        .iter()
        .filter_map(|event| match event {
            StreamEvent::Thinking { delta } => Some(delta.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(told, "One.\n\nTwo.");
    assert_eq!(
        decoded.response.parts[0].content,
        Content::Reasoning { text: told }
    );
}

#[test]
fn what_is_no_reply_is_an_error_that_shows_what_came() {
    for (body, shown) in [
        ("<html><title>Gateway</title></html>", "Gateway"),
        ("data: {oops\n\n", "{oops"),
        (r#"{"hello": 1}"#, "hello"),
    ] {
        let error = RIG.decode(body).0.error.unwrap();
        assert_eq!(error.kind, "protocol");
        assert!(error.message.contains(shown), "{}", error.message);
    }
    let error = RIG.decode(r#"{"error": {"code": "rate_limit_exceeded", "message": "Slow"}}"#);
    assert_eq!(error.0.error.unwrap().kind, "rate_limited");
}

#[test]
fn what_is_nested_too_deeply_is_an_error_and_nothing_is_lost_in_silence() {
    let mut deep = json!(1);
    for _ in 0..300 {
        deep = json!([deep]);
    }
    let item = json!({"type": "web_search_call", "id": "ws_1", "action": deep});
    let bodies = [
        reply(std::slice::from_ref(&item), "completed"),
        stream(&[created(), end("completed", std::slice::from_ref(&item))]),
        end("completed", &[item])["response"].to_string(),
    ];
    for body in bodies {
        let decoded = RIG.decode(&body).0;
        assert_eq!(
            decoded.error.map(|error| error.kind).as_deref(),
            Some("protocol")
        );
        assert!(!decoded.response.complete);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        RIG.pieces(&[&bytes]);
        let _ = RIG.wire.decode_body(&RIG.endpoint(), &bytes);
    }
}

proptest! {
    // Each case is cut at each of its bytes.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_json_makes_the_decoder_fail(
        kinds in prop::collection::vec(prop_oneof![
            Just("response.output_item.added"), Just("response.output_item.done"),
            Just("response.output_text.delta"), Just("response.function_call_arguments.delta"),
            Just("response.reasoning_summary_text.delta"), Just("response.completed"), Just("error"),
        ], 0..8),
        index in 0u64..3,
        item in prop_oneof![Just(json!(null)), Just(json!(3)), Just(reasoning("r")), Just(message("m", "x")), Just(function_call("f", "c", "[")), Just(json!({"type": 4}))],
    ) {
        let events: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"type": kind, "output_index": index, "delta": "x", "item": item, "response": {"output": [item]}}))
            .collect();
        let body = stream(&events);
        let whole = RIG.decode(&body);
        for at in (0..body.len()).filter(|at| body.is_char_boundary(*at)) {
            let (first, second) = body.as_bytes().split_at(at);
            prop_assert_eq!(&RIG.pieces(&[first, second]), &whole);
        }
    }
}
