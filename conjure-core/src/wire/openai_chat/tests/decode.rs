//! Decoding.

use proptest::prelude::*;

use super::*;
use crate::chat::{Content, Part, StopReason, StreamEvent, Usage};
use crate::wire::test_kit::calls;

#[test]
fn a_reply_becomes_events_and_a_response() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}});
    let body = stream(&[
        delta(json!({"role": "assistant", "content": "", "refusal": null})),
        delta(json!({"content": "Hel"})),
        delta(json!({"content": "lo"})),
        finish("stop"),
        usage,
    ]) + "data: [DONE]\n\n";
    let (decoded, events) = RIG.decode(&body);
    let usage = Usage {
        input: 6,
        cache_read: 4,
        cache_write: 0,
        output: 5,
        reasoning: 2,
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
            StreamEvent::Usage(usage),
        ]
    );
    assert_eq!(decoded.error, None);
    assert_eq!(decoded.response.id.as_deref(), Some("c_1"));
    assert_eq!(decoded.response.parts, [Part::text("Hello")]);
    assert_eq!(decoded.response.stop.unwrap().reason, StopReason::EndTurn);
}

#[test]
fn w33_the_usage_comes_in_a_chunk_without_choices() {
    let azure = json!({"choices": [], "prompt_filter_results": []});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    let body = stream(&[azure, delta(json!({"content": "a"})), finish("stop"), usage]);
    let response = RIG.complete_reply(&(body + "data: [DONE]\n\n"));
    assert_eq!((response.usage.input, response.usage.output), (3, 1));
}

#[test]
fn w34_a_limit_that_the_reasoning_used_up_is_told_and_no_failure() {
    let response = RIG.complete_reply(&body(json!({"content": ""}), "length"));
    assert_eq!(response.parts, []);
    assert_eq!(response.stop.unwrap().reason, StopReason::MaxTokens);
    let thinking = json!({"content": "", "reasoning_content": "Hm"});
    let response = of("deepseek").complete_reply(&body(thinking, "length"));
    assert!(matches!(&response.parts[..], [part] if part.as_text().is_none()));
}

#[test]
fn w39_a_stream_without_its_end_was_cut_unless_the_dialect_has_none() {
    let text = delta(json!({"content": "a"}));
    let open = stream(std::slice::from_ref(&text));
    let done = "data: [DONE]\n\n";
    let finished = stream(&[text, finish("stop")]);
    let complete = |rig: &Rig, body: &str| {
        let decoded = rig.decode(body).0;
        let kind = decoded.error.as_ref().map(|error| error.kind.clone());
        assert_eq!(kind.is_none(), decoded.response.complete);
        assert!(kind.is_none_or(|kind| kind == "cut"));
        assert_eq!(decoded.response.parts, [Part::text("a")]);
        decoded.response.complete
    };
    let cases = [
        (RIG, [false, false, false, true]),
        (of("deepseek"), [false, false, false, true]),
        // Never says why it stopped.
        (of("ollama"), [false, true, false, true]),
        (of("my-own-server"), [false, true, true, true]),
    ];
    for (rig, expected) in cases {
        let bodies = [
            open.clone(),
            open.clone() + done,
            finished.clone(),
            finished.clone() + done,
        ];
        let found = bodies.map(|body| complete(&rig, &body));
        assert_eq!(found, expected, "{}", rig.provider);
    }
}

#[test]
fn w40_comment_lines_are_passed_over() {
    let body = format!(
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n{}",
        reply(vec![json!({"content": "a"})], "stop")
    );
    assert_eq!(
        of("openrouter").complete_reply(&body).parts,
        [Part::text("a")]
    );
}

#[test]
fn w41_of_several_choices_the_first_is_read() {
    let choice = |index: u64, text: &str| json!({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": null}]});
    let end = |index: u64, reason: &str| json!({"choices": [{"index": index, "delta": {}, "finish_reason": reason}]});
    let body = stream(&[
        choice(1, "x"),
        choice(0, "a"),
        choice(1, "y"),
        choice(0, "b"),
        end(1, "length"),
        end(0, "stop"),
    ]);
    let response = RIG.complete_reply(&(body + "data: [DONE]\n\n"));
    assert_eq!(response.parts, [Part::text("ab")]);
    assert_eq!(response.stop.unwrap().raw, "stop");
}

#[test]
fn w58_what_was_cut_short_is_told_apart() {
    let reasons = [
        "stop",
        "tool_calls",
        "length",
        "model_length",
        "content_filter",
        "odd",
    ];
    let found = reasons.map(|reason| {
        let stop = RIG
            .complete_reply(&body(json!({"content": "a"}), reason))
            .stop
            .unwrap();
        assert_eq!(stop.raw, reason);
        stop.reason
    });
    assert_eq!(
        found,
        [
            StopReason::EndTurn,
            StopReason::ToolUse,
            StopReason::MaxTokens,
            StopReason::ContextWindow,
            StopReason::Refusal,
            StopReason::Other,
        ]
    );
}

#[test]
fn a_refusal_is_text_and_a_reason() {
    let response = RIG.complete_reply(&reply(
        vec![json!({"refusal": "I'm"}), json!({"refusal": " sorry"})],
        "stop",
    ));
    assert_eq!(response.parts[0].as_text(), Some("I'm sorry"));
    let stop = response.stop.clone().unwrap();
    assert_eq!(
        (stop.reason, stop.raw.as_str()),
        (StopReason::Refusal, "stop")
    );
    let body = RIG.body(RIG.answered(&response));
    assert_eq!(
        body["messages"][1]["content"],
        json!([{"type": "refusal", "refusal": "I'm sorry"}])
    );
}

#[test]
fn thoughts_are_read_in_every_field_that_servers_use() {
    for thought in [
        json!({"reasoning_content": "Hm."}),
        json!({"reasoning": "Hm."}),
        json!({"reasoning": "Hm.", "reasoning_content": "Hm."}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}),
        json!({"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
    ] {
        let (decoded, events) = RIG.decode(&reply(
            vec![thought.clone(), json!({"content": "a"})],
            "stop",
        ));
        assert_eq!(
            events,
            [
                StreamEvent::Thinking {
                    delta: "Hm.".to_owned()
                },
                StreamEvent::Content {
                    delta: "a".to_owned()
                },
            ],
            "{thought}"
        );
        let parts = decoded.response.parts;
        assert_eq!(
            parts[0].content,
            Content::Reasoning {
                text: "Hm.".to_owned()
            }
        );
        assert_eq!(parts[1], Part::text("a"));
    }
}

#[test]
fn an_error_inside_a_stream_keeps_what_came() {
    let error = json!({"error": {"code": 502, "message": "Upstream died"}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
    let decoded = of("openrouter")
        .decode(&stream(&[delta(json!({"content": "a"})), error.clone()]))
        .0;
    let failed = decoded.error.unwrap();
    assert_eq!((failed.kind.as_str(), failed.retryable), ("api", false));
    assert!(
        failed.message.starts_with("OpenRouter broke its reply off"),
        "{}",
        failed.message
    );
    assert_eq!(decoded.response.parts, [Part::text("a")]);
    assert!(
        of("openrouter")
            .decode(&stream(&[error]))
            .0
            .error
            .unwrap()
            .retryable
    );
}

#[test]
fn w60_every_way_of_telling_the_cache_gives_numbers_that_do_not_overlap() {
    let usage = |counts: Value| {
        let body = json!({"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}], "usage": counts});
        RIG.complete_reply(&body.to_string()).usage
    };
    let expected = Usage {
        input: 6,
        cache_read: 4,
        cache_write: 0,
        output: 5,
        reasoning: 0,
    };
    assert_eq!(
        usage(
            json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}})
        ),
        expected
    );
    assert_eq!(
        usage(
            json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6})
        ),
        expected
    );
    assert_eq!(
        usage(
            json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1}})
        ),
        Usage {
            input: 3,
            cache_write: 3,
            reasoning: 1,
            ..expected
        }
    );
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
    let call = json!({"index": 0, "id": "c", "function": {"name": "read", "arguments": deep}});
    let bodies = [
        reply(vec![json!({"tool_calls": [call]})], "tool_calls"),
        reply(vec![json!({"content": deep})], "stop"),
        body(json!({"tool_calls": [call]}), "tool_calls"),
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

fn any_delta() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"content": "x"})),
        Just(json!({"content": [{"type": "text", "text": "y"}, 3]})),
        Just(json!({"reasoning": 4, "reasoning_details": {"a": 1}})),
        Just(
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "n", "arguments": "{"}}]})
        ),
        Just(json!({"tool_calls": [{"function": {"arguments": "}"}}]})),
        Just(json!({"tool_calls": [{"index": -1, "id": 5, "function": {"name": null}}]})),
        Just(json!({"function_call": {"name": "old", "arguments": "{}"}})),
        Just(json!(null)),
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
        deltas in prop::collection::vec(any_delta(), 0..6),
        reason in prop_oneof![Just("stop"), Just("length"), Just("tool_calls")],
    ) {
        let body = reply(deltas, reason);
        let whole = RIG.decode(&body);
        prop_assert!(calls(&whole.0.response).iter().all(|call| call.2.is_object()));
        for at in 0..body.len() {
            let (first, second) = body.as_bytes().split_at(at);
            prop_assert_eq!(&RIG.pieces(&[first, second]), &whole);
        }
    }
}
