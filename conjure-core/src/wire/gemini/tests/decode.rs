//! Decoding.

use proptest::prelude::*;

use super::*;
use crate::chat::{Content, Part, StopReason, StreamEvent, Usage};
use crate::wire::test_kit::calls;

#[test]
fn a_reply_becomes_events_and_a_response() {
    let body = stream(&[
        chunk(json!([{"text": "Hm.", "thought": true}])),
        chunk(json!([{"text": "Hel"}])),
        chunk(json!([{"text": "lo"}])),
        last(
            json!([{"functionCall": {"name": "read", "args": {"a": 1}}, "thoughtSignature": "s=="}]),
            "STOP",
        ),
    ]);
    let (decoded, events) = RIG.decode(&body);
    let usage = Usage {
        input: 67,
        cache_read: 40,
        cache_write: 0,
        output: 15,
        reasoning: 5,
    };
    assert_eq!(
        events,
        [
            StreamEvent::Thinking {
                delta: "Hm.".to_owned()
            },
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
    assert_eq!(decoded.error, None);
    let response = decoded.response;
    assert!(response.complete);
    assert_eq!(response.usage, usage);
    assert_eq!(
        response.parts,
        [
            Part {
                content: Content::Reasoning {
                    text: "Hm.".to_owned()
                },
                sidecar: RIG.sidecar(json!({"thought": true})),
            },
            Part::text("Hello"),
            Part {
                sidecar: RIG.sidecar(json!({"thoughtSignature": "s=="})),
                ..crate::wire::test_kit::call("call_1", "read", json!({"a": 1}))
            },
        ]
    );
}

#[test]
fn w46_an_id_that_is_missing_is_invented_and_a_real_one_is_kept() {
    let body = reply(
        json!([{"functionCall": {"name": "a"}}, {"functionCall": {"name": "b", "id": "real"}}, {"functionCall": {"name": "c"}}]),
        "STOP",
    );
    let found: Vec<_> = calls(&RIG.complete_reply(&body))
        .into_iter()
        .map(|call| (call.0, call.2))
        .collect();
    assert_eq!(
        found,
        [
            ("call_1".to_owned(), json!({})),
            ("real".to_owned(), json!({})),
            ("call_3".to_owned(), json!({})),
        ]
    );
}

#[test]
fn w48_the_parts_say_whether_the_model_waits_for_calls() {
    let stop = |parts| RIG.complete_reply(&reply(parts, "STOP")).stop.unwrap();
    let waits = stop(json!([{"functionCall": {"name": "a"}}]));
    assert_eq!(
        (waits.reason, waits.raw.as_str()),
        (StopReason::ToolUse, "STOP")
    );
    assert_eq!(stop(json!([{"text": "a"}])).reason, StopReason::EndTurn);
}

#[test]
fn w49_what_comes_behind_the_first_finish_is_read_too() {
    let body = stream(&[
        last(json!([{"text": "a"}]), "STOP"),
        last(json!([{"text": "b"}]), "STOP"),
    ]);
    assert_eq!(RIG.complete_reply(&body).parts, [Part::text("ab")]);
    let body = stream(&[
        last(json!([{"text": "a"}]), "MAX_TOKENS"),
        last(json!([]), "STOP"),
    ]);
    assert_eq!(
        RIG.complete_reply(&body).stop.unwrap().reason,
        StopReason::MaxTokens
    );
}

#[test]
fn w50_arguments_in_pieces_are_put_together_even_without_their_last_piece() {
    let piece =
        |text: &str| json!({"jsonPath": "$.place", "stringValue": text, "willContinue": true});
    let begin = chunk(
        json!([{"functionCall": {"name": "go", "willContinue": true}, "thoughtSignature": "s"}]),
    );
    let one =
        chunk(json!([{"functionCall": {"partialArgs": [piece("New ")], "willContinue": true}}]));
    let two =
        chunk(json!([{"functionCall": {"partialArgs": [piece("York")], "willContinue": true}}]));
    let end = chunk(json!([{"functionCall": {}}]));
    let stop = |reason: &str| last(json!([{"text": ""}]), reason);
    let whole = [begin.clone(), one.clone(), two.clone(), end, stop("STOP")];
    let without_end = [begin.clone(), one.clone(), two, stop("STOP")];
    for events in [whole.as_slice(), &without_end] {
        let (decoded, events) = RIG.decode(&stream(events));
        assert_eq!(calls(&decoded.response)[0].2, json!({"place": "New York"}));
        assert_eq!(calls(&decoded.response)[0].3, None);
        let ended = |event: &&StreamEvent| matches!(event, StreamEvent::Call { .. });
        assert_eq!(events.iter().filter(ended).count(), 1);
    }
    // Cut by a limit or by the network, it never runs.
    for events in [
        vec![begin.clone(), one.clone(), stop("MAX_TOKENS")],
        vec![begin, one],
    ] {
        let decoded = RIG.decode(&stream(&events)).0;
        let text = Some(r#"{"place":"New "}"#.to_owned());
        assert_eq!(calls(&decoded.response)[0].3, text);
    }
}

#[test]
fn arguments_with_a_number_that_would_be_another_one_stay_text() {
    let number = "123456789012345678901";
    let piece = json!({"jsonPath": "$.account", "numberValue": "NUMBER"});
    for (called, told) in [
        (
            json!({"name": "pay", "args": {"account": "NUMBER"}}),
            r#"{"account":NUMBER}"#,
        ),
        (
            json!({"name": "pay", "partialArgs": [piece]}),
            r#"[{"jsonPath":"$.account","numberValue":NUMBER}]"#,
        ),
    ] {
        let body = reply(json!([{"functionCall": called}]), "STOP");
        let body = body.replace("\"NUMBER\"", number);
        let found = calls(&RIG.complete_reply(&body));
        assert_eq!(found[0].2, json!({}));
        assert_eq!(found[0].3, Some(told.replace("NUMBER", number)));
    }
}

#[test]
fn an_object_in_the_place_of_arguments_is_no_call_without_arguments() {
    let asked = |call: Value| {
        let body = reply(json!([{"functionCall": call}]), "STOP");
        let found = calls(&RIG.complete_reply(&body));
        (found[0].2.clone(), found[0].3.clone())
    };
    for name in ["arguments", "parameters", "input"] {
        let call = json!({"name": "pay", name: {"euros": 7}});
        let text = r#"{"euros":7}"#.to_owned();
        assert_eq!(asked(call), (json!({}), Some(text)), "{name}");
    }
    for call in [
        json!({"name": "pay"}),
        json!({"name": "pay", "arguments": {}, "note": "x"}),
    ] {
        assert_eq!(asked(call), (json!({}), None));
    }
    let call = json!({"name": "pay", "args": {"a": 1}, "extra": {"b": 2}});
    assert_eq!(asked(call), (json!({"a": 1}), None));
}

#[test]
fn w51_no_parts_at_a_limit_are_no_failure_and_a_malformed_call_is_no_normal_stop() {
    let mut bare = last(json!([]), "MAX_TOKENS");
    bare["candidates"][0]
        .as_object_mut()
        .unwrap()
        .shift_remove("content");
    let response = RIG.complete_reply(&stream(&[bare]));
    assert_eq!(
        (response.parts.len(), response.stop.unwrap().reason),
        (0, StopReason::MaxTokens)
    );
    let mut malformed = last(json!([]), "MALFORMED_FUNCTION_CALL");
    malformed["candidates"][0]["finishMessage"] = "print(call)".into();
    let decoded = RIG.decode(&stream(&[malformed])).0;
    let error = decoded.error.unwrap();
    assert!(
        error.retryable && error.message.contains("MALFORMED_FUNCTION_CALL"),
        "{}",
        error.message
    );
    let stop = decoded.response.stop.unwrap();
    assert!(!stop.reason.calls_may_run());
    assert_eq!(stop.raw, "MALFORMED_FUNCTION_CALL");
}

#[test]
fn w52_a_stream_may_be_one_json_array() {
    let events = [
        chunk(json!([{"text": "Hel"}])),
        chunk(json!([{"text": "lo, [x]"}])),
        last(json!([]), "STOP"),
    ];
    let whole = RIG.decode(&stream(&events)).0;
    let array = serde_json::to_string_pretty(&events).unwrap();
    assert_eq!(RIG.decode(&array).0, whole);
    assert_eq!(
        RIG.wire.decode_body(&RIG.endpoint(), array.as_bytes()),
        whole
    );
    assert_eq!(whole.response.parts, [Part::text("Hello, [x]")]);
    // What came of a broken array is kept.
    let end = array.find("lo, [x]").unwrap();
    let cut = RIG.decode(&array[..end]).0;
    assert_eq!(cut.error.map(|error| error.kind).as_deref(), Some("cut"));
    assert_eq!(cut.response.parts, [Part::text("Hel")]);
}

#[test]
fn w53_thoughts_count_as_output_and_are_no_answer() {
    let body = reply(
        json!([{"text": "Hm.", "thought": true}, {"text": "a"}]),
        "STOP",
    );
    let response = RIG.complete_reply(&body);
    assert_eq!((response.usage.output, response.usage.reasoning), (15, 5));
    let text: String = response.parts.iter().filter_map(Part::as_text).collect();
    assert_eq!(text, "a");
}

#[test]
fn w56_grounding_may_come_before_the_end() {
    let mut grounded = chunk(json!([{"text": "a"}]));
    grounded["candidates"][0]["groundingMetadata"] = json!({"webSearchQueries": ["x"]});
    let response = RIG.complete_reply(&stream(&[grounded, last(json!([]), "STOP")]));
    assert_eq!(
        response.fields["groundingMetadata"],
        json!({"webSearchQueries": ["x"]})
    );
}

#[test]
fn w58_what_was_cut_short_is_told_apart() {
    for (word, reason) in [
        ("STOP", StopReason::EndTurn),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("SAFETY", StopReason::Refusal),
        ("RECITATION", StopReason::Refusal),
        ("NEW_WORD", StopReason::Other),
    ] {
        let stop = RIG
            .complete_reply(&reply(json!([{"text": "a"}]), word))
            .stop
            .unwrap();
        assert_eq!((stop.reason, stop.raw.as_str()), (reason, word));
    }
    let cut = RIG.decode(&stream(&[chunk(json!([{"text": "a"}]))])).0;
    assert_eq!(cut.error.map(|error| error.kind).as_deref(), Some("cut"));
    assert!(!cut.response.complete);
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}});
    let stop = RIG.complete_reply(&stream(&[blocked])).stop.unwrap();
    assert_eq!(stop.reason, StopReason::Refusal);
}

#[test]
fn w60_the_five_numbers_do_not_overlap() {
    assert_eq!(
        RIG.complete_reply(&reply(json!([{"text": "a"}]), "STOP"))
            .usage,
        Usage {
            input: 67,
            cache_read: 40,
            cache_write: 0,
            output: 15,
            reasoning: 5
        }
    );
}

#[test]
fn an_error_inside_a_stream_keeps_what_came() {
    let error = json!({"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}});
    let decoded = RIG
        .decode(&stream(&[chunk(json!([{"text": "a"}])), error.clone()]))
        .0;
    let failed = decoded.error.unwrap();
    assert_eq!(
        (failed.kind.as_str(), failed.retryable),
        ("overloaded", false)
    );
    assert_eq!(decoded.response.parts, [Part::text("a")]);
    assert!(RIG.decode(&stream(&[error])).0.error.unwrap().retryable);
}

#[test]
fn what_is_no_reply_is_an_error_that_shows_what_came() {
    for (body, shown) in [
        ("<html><title>Gateway</title></html>", "Gateway"),
        ("data: {oops\n\n", "{oops"),
        (r#"{"hello": 1}"#, "hello"),
        ("[1]", "[1]"),
    ] {
        let error = RIG.decode(body).0.error.unwrap();
        assert_eq!(error.kind, "protocol", "{body}");
        assert!(error.message.contains(shown), "{}", error.message);
    }
}

#[test]
fn what_is_nested_too_deeply_is_an_error_and_nothing_is_lost_in_silence() {
    let mut deep = json!(1);
    for _ in 0..300 {
        deep = json!([deep]);
    }
    let call = json!({"functionCall": {"name": "read", "args": {"a": deep}}});
    let bodies = [
        reply(json!([call]), "STOP"),
        reply(json!([{"executableCode": deep}]), "STOP"),
        format!("[{}]", last(json!([call]), "STOP")),
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

fn any_part() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"text": "x"})),
        Just(json!({"text": "t", "thought": true})),
        Just(json!({"text": "", "thoughtSignature": "s"})),
        Just(json!({"functionCall": {"name": "n", "args": [1]}})),
        Just(json!({"functionCall": {"name": "n", "willContinue": true}})),
        Just(
            json!({"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "v"}], "willContinue": true}})
        ),
        Just(json!({"functionCall": 3})),
        Just(json!({"executableCode": {"code": "1"}})),
        Just(json!({})),
    ]
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
    fn cutting_a_stream_anywhere_changes_nothing(
        parts in prop::collection::vec(any_part(), 0..6),
        reason in prop_oneof![Just("STOP"), Just("MAX_TOKENS")],
    ) {
        let mut events: Vec<Value> = parts.into_iter().map(|part| chunk(json!([part]))).collect();
        events.push(last(json!([]), reason));
        let body = stream(&events);
        let whole = RIG.decode(&body);
        prop_assert!(calls(&whole.0.response).iter().all(|call| call.2.is_object()));
        for at in 0..body.len() {
            let (first, second) = body.as_bytes().split_at(at);
            prop_assert_eq!(&RIG.pieces(&[first, second]), &whole);
        }
    }
}
