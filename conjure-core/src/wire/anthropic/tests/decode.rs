//! Decoding.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::decode_body;
use super::*;
use crate::chat::{Response, Stop, StopReason, Usage};

#[test]
fn a_reply_becomes_events_and_a_response() {
    let body = reply(
        vec![
            thinking(0, &["hm", "m"], "sig"),
            text(1, &["He", "llo"]),
            tool_use(2, "toolu_1", "log_execute", &["", "{\"a\"", ": 1}"]),
        ],
        "tool_use",
    );
    let (decoded, events) = decode(&body);
    let usage = |output| Usage {
        input: 10,
        cache_read: 3,
        cache_write: 4,
        output,
        reasoning: 0,
    };
    let delta = |text: &str| text.to_owned();
    assert_eq!(
        events,
        [
            StreamEvent::Usage(usage(1)),
            StreamEvent::Thinking { delta: delta("hm") },
            StreamEvent::Thinking { delta: delta("m") },
            StreamEvent::Content { delta: delta("He") },
            StreamEvent::Content {
                delta: delta("llo")
            },
            StreamEvent::CallStarted {
                call_id: "toolu_1".to_owned(),
                name: "log_execute".to_owned()
            },
            StreamEvent::Call {
                call_id: "toolu_1".to_owned()
            },
            StreamEvent::Usage(usage(20)),
        ]
    );
    assert_eq!(
        decoded,
        Decoded {
            response: Response {
                id: Some("msg_1".to_owned()),
                model: MODEL.to_owned(),
                parts: vec![
                    thought("hmm", json!({"type": "thinking", "signature": "sig"})),
                    Part::text("Hello"),
                    call("toolu_1", "log_execute", json!({"a": 1})),
                ],
                stop: Some(Stop {
                    reason: StopReason::ToolUse,
                    raw: "tool_use".to_owned(),
                    sequence: None
                }),
                usage: usage(20),
                fields: serde_json::Map::new(),
                complete: true,
            },
            error: None,
        }
    );
}

#[test]
fn w03_the_order_of_blocks_is_kept() {
    let body = reply(
        vec![
            text(0, &["first"]),
            thinking(1, &["then"], "s"),
            text(2, &["last"]),
        ],
        "end_turn",
    );
    let (decoded, _) = decode(&body);
    assert_eq!(
        decoded.response.parts,
        [
            Part::text("first"),
            thought("then", json!({"type": "thinking", "signature": "s"})),
            Part::text("last"),
        ]
    );
}

#[test]
fn w04_redacted_thinking_is_kept_as_it_is() {
    let redacted = json!({"type": "redacted_thinking", "data": "opaque=="});
    let (decoded, _) = decode(&reply(
        vec![vec![block(0, redacted.clone()), stop(0)]],
        "end_turn",
    ));
    assert_eq!(decoded.response.parts, [thought("", redacted)]);
}

#[test]
fn w05_zero_argument_tool_gives_an_empty_object() {
    for pieces in [&[""][..], &[]] {
        let (decoded, _) = decode(&reply(
            vec![tool_use(0, "toolu_1", "now", pieces)],
            "tool_use",
        ));
        assert_eq!(decoded.response.parts, [call("toolu_1", "now", json!({}))]);
    }
}

#[test]
fn w08_an_empty_final_turn_is_a_whole_reply_without_parts() {
    let (decoded, _) = decode(&reply(vec![], "end_turn"));
    assert_eq!(decoded.response.parts, []);
    assert!(decoded.response.complete);
    let whole = decode_body(
        json!({"id": "m", "model": MODEL, "content": [], "stop_reason": "end_turn",
               "usage": {"input_tokens": 1, "output_tokens": 2}})
        .to_string()
        .as_bytes(),
    );
    assert!(whole.response.complete && whole.response.parts.is_empty());
}

#[test]
fn w09_usage_of_message_delta_replaces_that_of_message_start() {
    let mut events = vec![start()];
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {
        "input_tokens": 500, "cache_read_input_tokens": 0, "output_tokens": 30}}),
    );
    events.push(json!({"type": "message_stop"}));
    let (decoded, _) = decode(&stream(&events));
    assert_eq!(
        decoded.response.usage,
        Usage {
            input: 500,
            cache_read: 3,
            cache_write: 4,
            output: 30,
            reasoning: 0
        }
    );
}

#[test]
fn a_tool_of_the_providers_own_counts_as_run_only_when_its_call_is_written() {
    for kind in ["server_tool_use", "mcp_tool_use"] {
        let used = json!({"type": kind, "id": "srvtoolu_1", "name": "look", "input": {}});
        let begun = [start(), block(0, used)];
        let whole = [&begun[..], &[stop(0)]].concat();
        for (events, passes) in [(&begun[..], true), (&whole[..], false)] {
            let error = decode(&stream(events)).0.error.unwrap();
            assert_eq!(
                (error.kind.as_str(), error.retryable),
                ("cut", passes),
                "{kind}"
            );
        }
    }
}

#[test]
fn w10_a_paused_reply_keeps_its_server_items_and_says_so() {
    let used = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution",
                      "input": {}});
    let body = reply(
        vec![vec![
            block(0, used.clone()),
            delta(
                0,
                json!({"type": "input_json_delta", "partial_json": "{\"code\":"}),
            ),
            delta(
                0,
                json!({"type": "input_json_delta", "partial_json": "\"1\"}"}),
            ),
            stop(0),
        ]],
        "pause_turn",
    );
    let (decoded, events) = decode(&body);
    let mut whole = used;
    whole["input"] = json!({"code": "1"});
    assert_eq!(decoded.response.parts, [item(whole.clone())]);
    assert!(events.contains(&StreamEvent::ServerItem { item: whole }));
    assert_eq!(decoded.response.stop.unwrap().reason, StopReason::Pause);
}

#[test]
fn w10_the_next_reply_may_start_with_the_result_of_the_last() {
    let result = json!({"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1",
        "content": {"type": "bash_code_execution_result", "stdout": "1", "stderr": "",
                    "return_code": 0, "content": []}});
    let body = reply(
        vec![vec![block(0, result.clone()), stop(0)], text(1, &["done"])],
        "end_turn",
    );
    let (decoded, events) = decode(&body);
    assert_eq!(
        decoded.response.parts,
        [item(result.clone()), Part::text("done")]
    );
    assert_eq!(events[1], StreamEvent::ServerItem { item: result });
}

#[test]
fn w11_a_reply_inside_message_start_is_seen() {
    let mut begin = start();
    begin["message"]["content"] = json!([
        {"type": "text", "text": "calling"},
        {"type": "tool_use", "id": "toolu_1", "name": "log_read", "input": {"path": "x"},
         "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}
    ]);
    begin["message"]["stop_reason"] = json!("tool_use");
    begin["message"]["container"] = json!({"id": "c1"});
    for tail in [vec![], vec![json!({"type": "message_stop"})]] {
        let events: Vec<Value> = [begin.clone()].into_iter().chain(tail).collect();
        let (decoded, events) = decode(&stream(&events));
        let mut programmatic = call("toolu_1", "log_read", json!({"path": "x"}));
        programmatic.sidecar = sidecar(json!({"caller": {
            "type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}));
        assert_eq!(decoded.error, None);
        assert!(decoded.response.complete);
        assert_eq!(
            decoded.response.parts,
            [Part::text("calling"), programmatic]
        );
        assert_eq!(decoded.response.fields["container"], json!({"id": "c1"}));
        assert!(events.contains(&StreamEvent::Content {
            delta: "calling".to_owned()
        }));
        assert!(events.contains(&StreamEvent::Call {
            call_id: "toolu_1".to_owned()
        }));
    }
}

#[test]
fn w12_the_container_is_kept_when_later_events_leave_it_out() {
    let mut begin = start();
    begin["message"]["container"] = json!({"id": "c1", "expires_at": "t"});
    let events = [
        begin,
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": null},
               "usage": {}, "context_management": {"applied_edits": []}}),
        json!({"type": "message_stop"}),
    ];
    let (decoded, _) = decode(&stream(&events));
    assert_eq!(
        Value::Object(decoded.response.fields),
        json!({"container": {"id": "c1", "expires_at": "t"},
               "context_management": {"applied_edits": []}})
    );
}

#[test]
fn w13_an_error_in_the_stream_keeps_what_came_and_is_retried_only_before_output() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error",
                       "message": "Overloaded"}});
    let (early, _) = decode(&stream(&[start(), error.clone()]));
    let early = early.error.unwrap();
    assert_eq!((early.kind.as_str(), early.retryable), ("overloaded", true));

    let mut events = vec![start()];
    events.extend(text(0, &["Hal"]));
    events.push(error);
    events.extend(text(1, &["not seen"]));
    let (late, _) = decode(&stream(&events));
    assert_eq!(late.response.parts, [Part::text("Hal")]);
    assert!(!late.response.complete);
    let error = late.error.unwrap();
    assert_eq!(
        (error.kind.as_str(), error.retryable),
        ("overloaded", false)
    );
}

#[test]
fn w15_input_that_is_no_object_is_kept_as_text() {
    for raw in ["{\"a\": ", "[1]", "nonsense", "\"text\""] {
        let (decoded, _) = decode(&reply(
            vec![tool_use(0, "toolu_1", "t", &[raw])],
            "tool_use",
        ));
        let Content::FunctionCall(call) = &decoded.response.parts[0].content else {
            panic!("no call");
        };
        assert_eq!(call.arguments, json!({}));
        assert_eq!(call.arguments_text.as_deref(), Some(raw));
    }
}

#[test]
fn w16_a_second_start_of_the_same_message_is_ignored_and_of_another_is_an_error() {
    let mut events = vec![start()];
    events.extend(text(0, &["one"]));
    events.push(start());
    events.extend(text(1, &["two"]));
    events.extend(end("end_turn"));
    let (same, _) = decode(&stream(&events));
    assert_eq!(same.error, None);
    assert_eq!(same.response.parts, [Part::text("one"), Part::text("two")]);

    let mut other = start();
    other["message"]["id"] = json!("msg_2");
    let at = events.iter().rposition(|event| *event == start()).unwrap();
    events[at] = other;
    let (splice, _) = decode(&stream(&events));
    assert_eq!(splice.response.parts, [Part::text("one")]);
    assert!(!splice.response.complete);
    assert_eq!(splice.error.unwrap().kind, "protocol");
}

#[test]
fn w19_the_stop_sequence_and_the_stop_details_are_kept() {
    let events = [
        start(),
        json!({"type": "message_delta", "delta": {"stop_reason": "stop_sequence",
               "stop_sequence": "END", "stop_details": {"category": "x"}},
               "usage": {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 7}}}),
        json!({"type": "message_stop"}),
    ];
    let (decoded, _) = decode(&stream(&events));
    assert_eq!(
        decoded.response.stop,
        Some(Stop {
            reason: StopReason::StopSequence,
            raw: "stop_sequence".to_owned(),
            sequence: Some("END".to_owned())
        })
    );
    assert_eq!(
        decoded.response.fields["stop_details"],
        json!({"category": "x"})
    );
    assert_eq!(decoded.response.usage.reasoning, 7);
}

#[test]
fn w58_what_was_cut_short_is_told_apart_and_its_calls_may_not_run() {
    let expected = [
        ("end_turn", StopReason::EndTurn, true),
        ("tool_use", StopReason::ToolUse, true),
        ("stop_sequence", StopReason::StopSequence, true),
        ("pause_turn", StopReason::Pause, true),
        ("compaction", StopReason::Pause, true),
        ("max_tokens", StopReason::MaxTokens, false),
        (
            "model_context_window_exceeded",
            StopReason::ContextWindow,
            false,
        ),
        ("refusal", StopReason::Refusal, false),
        ("something_new", StopReason::Other, true),
    ];
    for (raw, reason, may_run) in expected {
        let (decoded, _) = decode(&reply(vec![], raw));
        let stop = decoded.response.stop.unwrap();
        assert_eq!((stop.reason, stop.raw.as_str()), (reason, raw));
        assert_eq!(stop.reason.calls_may_run(), may_run, "{raw}");
    }
}

#[test]
fn w58_a_stream_that_just_stops_is_not_complete_at_any_byte() {
    let body = reply(
        vec![
            thinking(0, &["hm"], "sig"),
            text(1, &["Hé"]),
            tool_use(2, "toolu_1", "t", &["{\"a\":", "{}}"]),
        ],
        "tool_use",
    );
    let whole = decode(&body).0;
    let needed = body.trim_end().len();
    for cut in 0..needed {
        let (decoded, events) = decode_pieces(&[&body.as_bytes()[..cut]]);
        assert!(!decoded.response.complete, "complete at {cut}");
        let error = decoded.error.unwrap();
        assert_eq!(error.kind, "cut", "at {cut}: {error}");
        let is_shown = |event: &StreamEvent| {
            matches!(
                event,
                StreamEvent::Content { .. } | StreamEvent::Thinking { .. }
            )
        };
        assert_eq!(error.retryable, !events.iter().any(is_shown), "at {cut}");
        for part in &decoded.response.parts {
            match &part.content {
                // Before its end, a thought has no signature to go back with.
                Content::Reasoning { .. } => {
                    assert!(part.sidecar.is_none() || *part == whole.response.parts[0]);
                }
                Content::FunctionCall(call) => {
                    assert!(
                        call.arguments_text.is_some() || *part == whole.response.parts[2],
                        "{call:?}"
                    );
                }
                _ => {}
            }
        }
    }
    assert_eq!(decode_pieces(&[&body.as_bytes()[..needed]]).0, whole);
}

#[test]
fn w59_blocks_of_unknown_kinds_are_kept_opaque() {
    let unknown = json!({"type": "fallback", "from": {"model": "a"}, "note": ""});
    let body = reply(
        vec![vec![
            block(0, unknown),
            delta(
                0,
                json!({"type": "fallback_delta", "note": "x", "more": [1]}),
            ),
            delta(0, json!({"type": "fallback_delta", "note": "y"})),
            stop(0),
        ]],
        "end_turn",
    );
    assert_eq!(
        decode(&body).0.response.parts,
        [item(
            json!({"type": "fallback", "from": {"model": "a"}, "note": "xy", "more": [1]})
        )]
    );
}

#[test]
fn w60_the_five_numbers_do_not_overlap() {
    let usage = decode(&reply(vec![], "end_turn")).0.response.usage;
    assert_eq!(usage.prompt_tokens(), 17);
    assert_eq!(usage.total(), 37);
    let by_age = decode_body(
        br#"{"content":[],"usage":{"input_tokens":1,"output_tokens":2,
            "cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4}}}"#,
    );
    assert_eq!(by_age.response.usage.cache_write, 7);
}

#[test]
fn citations_go_to_the_sidecar() {
    let citation = json!({"type": "char_location", "cited_text": "a", "document_index": 0});
    let body = reply(
        vec![vec![
            block(0, json!({"type": "text", "text": "", "citations": null})),
            delta(0, json!({"type": "citations_delta", "citation": citation})),
            delta(0, json!({"type": "text_delta", "text": "A."})),
            stop(0),
        ]],
        "end_turn",
    );
    let mut cited = Part::text("A.");
    cited.sidecar = sidecar(json!({"citations": [citation]}));
    assert_eq!(decode(&body).0.response.parts, [cited]);
}

#[test]
fn what_is_no_reply_is_an_error_that_shows_what_came() {
    let kinds = |body: &str| {
        let error = decode(body).0.error.unwrap();
        (error.kind, error.retryable)
    };
    let html = "<html><title>Sign in</title></html>";
    assert_eq!(kinds(html), ("protocol".to_owned(), false));
    assert!(decode(html).0.error.unwrap().message.contains("Sign in"));
    assert_eq!(kinds(""), ("cut".to_owned(), true));
    assert_eq!(
        kinds("data: {nonsense}\n\n"),
        ("protocol".to_owned(), false)
    );
    assert_eq!(kinds("{\"a\": 1}"), ("protocol".to_owned(), false));
    assert_eq!(
        kinds(&stream(&[
            start(),
            delta(3, json!({"type": "text_delta", "text": "x"}))
        ])),
        ("protocol".to_owned(), false)
    );
    assert_eq!(
        kinds(r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#),
        ("rate_limited".to_owned(), true)
    );
    assert_eq!(decode_body(b"{\"content\": [").error.unwrap().kind, "cut");
    assert_eq!(decode_body(b"<html>").error.unwrap().kind, "protocol");
}

#[test]
fn a_whole_json_body_is_understood_where_a_stream_was_asked_for() {
    let body = json!({"id": "m", "model": MODEL, "stop_reason": "tool_use", "content": [
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {"a": 1}}
    ], "usage": {"input_tokens": 1, "output_tokens": 2}})
    .to_string();
    let (streamed, events) = decode(&body);
    assert_eq!(streamed, decode_body(body.as_bytes()));
    assert_eq!(streamed.error, None);
    assert_eq!(
        streamed.response.parts,
        [Part::text("hi"), call("toolu_1", "t", json!({"a": 1}))]
    );
    assert_eq!(events.len(), 4);
}

#[test]
fn gateways_may_leave_out_the_end_of_a_block_and_add_a_done_line() {
    let mut events = vec![start()];
    events.extend(text(0, &["a"]));
    events.retain(|event| event["type"] != "content_block_stop");
    events.extend(end("end_turn"));
    let body = format!("{}data: [DONE]\n\n", stream(&events));
    let (decoded, _) = decode(&body);
    assert_eq!(decoded.error, None);
    assert!(decoded.response.complete);
    assert_eq!(decoded.response.parts, [Part::text("a")]);
}

/// Events of a stream in any order, most of them sensible.
fn any_events() -> impl Strategy<Value = Vec<Value>> {
    let piece = prop_oneof![
        Just("".to_owned()),
        Just("{\"a\":".to_owned()),
        Just("1}".to_owned()),
        "[a-zé ]{0,3}",
    ];
    let kind = prop_oneof![
        Just("text"),
        Just("thinking"),
        Just("tool_use"),
        Just("server_tool_use"),
        Just("new_kind"),
    ];
    let event = prop_oneof![
        1 => Just(start()),
        4 => (0u64..3, kind).prop_map(|(index, kind)| {
            block(index, json!({"type": kind, "id": "i", "name": "n", "text": "", "thinking": ""}))
        }),
        6 => (0u64..3, 0usize..4, piece).prop_map(|(index, kind, piece)| {
            delta(index, match kind {
                0 => json!({"type": "text_delta", "text": piece}),
                1 => json!({"type": "thinking_delta", "thinking": piece}),
                2 => json!({"type": "input_json_delta", "partial_json": piece}),
                _ => json!({"type": "signature_delta", "signature": piece}),
            })
        }),
        4 => (0u64..3).prop_map(stop),
        1 => Just(json!({"type": "ping"})),
        1 => Just(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})),
        1 => Just(json!({"type": "message_stop"})),
        1 => Just(json!({"type": "error", "error": {"type": "api_error"}})),
        1 => Just(json!({"type": "future", "index": "x"})),
    ];
    prop::collection::vec(event, 0..14)
}

proptest! {
    #[test]
    fn cutting_a_stream_anywhere_changes_nothing(
        events in any_events(),
        cuts in prop::collection::vec(0usize..4000, 0..5),
    ) {
        let body = stream(&events);
        let bytes = body.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(decode_pieces(&pieces), decode(&body));
    }

    #[test]
    fn no_bytes_make_the_decoder_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (decoded, _) = decode_pieces(&[&bytes]);
        prop_assert!(!decoded.response.complete);
        prop_assert!(decoded.error.is_some());
    }
}
