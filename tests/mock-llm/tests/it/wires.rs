//! What a message looks like on the wires other than Anthropic's, whole and as a stream.

mod chat;
mod gemini;
mod hosted;
mod responses;

use std::time::Duration;

use conjure_mock_llm::{
    Chunks, CutAt, CutHow, ErrorReply, Faults, Message, Outcome, Pings, Position, Reply,
    SecondStart, StreamError, Wire,
};
use serde_json::{Value, json};

use crate::client::{Client, answer, ask_of, exchange_of, mock};

/// Reasoning, text and two calls.
fn everything() -> Message {
    Message::new()
        .reasoning("Let me see.")
        .text("I look.")
        .tool_use("call_1", "clock_read", json!({"zone": "UTC"}))
        .tool_use("call_2", "bell_ring", json!({}))
}

#[test]
fn a_stream_is_the_same_bytes_however_it_is_cut_up() {
    for wire in Wire::ALL {
        let whole = answer(wire, true, everything());
        assert!(whole.complete);
        for chunks in [Chunks::Whole, Chunks::Lines, Chunks::Bytes(1)] {
            let cut_up = answer(wire, true, Reply::from(everything()).chunks(chunks));
            assert_eq!(cut_up.body(), whole.body(), "{wire} {chunks:?}");
        }
        let slow = Reply::from(everything())
            .chunks(Chunks::Bytes(100))
            .delay(Duration::from_millis(1));
        assert_eq!(answer(wire, true, slow).body(), whole.body(), "{wire}");
    }
}

#[test]
fn a_message_is_written_without_a_server_as_with_one() {
    for wire in Wire::ALL {
        for stream in [true, false] {
            let mut request = ask_of(wire, stream);
            request.raw_body = request.body.to_string().into_bytes();
            let body = String::from_utf8(everything().body(&request)).unwrap();
            assert_eq!(answer(wire, stream, everything()).body(), body, "{wire}");
        }
    }
}

#[test]
fn a_stream_is_cut_held_and_hung_on_every_wire() {
    for wire in Wire::ALL {
        let whole = answer(wire, true, everything()).body();
        let cut = Reply::from(everything()).cut(CutAt::Bytes(100), CutHow::Eof);
        let response = answer(wire, true, cut);
        assert_eq!(response.body(), whole[..100], "{wire}");
        assert!(!response.complete, "{wire}");

        let mock = mock(Reply::from(everything()).hold(Position::Event(2), "gate"));
        let mut client = Client::connect(mock.address());
        client.send_request(&ask_of(wire, true));
        mock.wait_for_gate_blocking("gate").unwrap();
        drop(client);
        assert_eq!(
            mock.wait_for_outcome_blocking(0).unwrap(),
            Outcome::ClientGone
        );
    }
}

#[test]
fn an_error_has_its_providers_shape_and_retry_after_only_where_asked() {
    let bodies = [429, 529].map(|status| {
        [Wire::Responses, Wire::Chat, Wire::Gemini].map(|wire| {
            let error = ErrorReply::new(status).message("Busy.").retry_after("7");
            let response = answer(wire, true, error);
            assert_eq!(response.status, status, "{wire}");
            assert_eq!(response.header("retry-after"), Some("7"), "{wire}");
            let without = answer(wire, true, ErrorReply::new(status));
            assert_eq!(without.header("retry-after"), None, "{wire}");
            response.json()
        })
    });
    let openai = |kind: &str, code: &str| json!({"error": {"message": "Busy.", "type": kind, "param": null, "code": code}});
    let gemini = |code: u16, status: &str| {
        json!({"error": {"code": code, "message": "Busy.", "status": status, "details": [{
            "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s",
        }]}})
    };
    let limited = openai("requests", "rate_limit_exceeded");
    let busy = openai("server_error", "server_error");
    assert_eq!(
        bodies,
        [
            [limited.clone(), limited, gemini(429, "RESOURCE_EXHAUSTED")],
            [busy.clone(), busy, gemini(529, "UNAVAILABLE")],
        ]
    );
}

#[test]
fn w13_w25_an_error_in_the_middle_of_a_stream_has_its_wires_form() {
    let faulty = |wire| {
        let message = Message::new().text("Hello there").faults(Faults {
            error: Some(StreamError {
                after: 1,
                kind: "overloaded_error".to_owned(),
                message: "Busy.".to_owned(),
            }),
            ..Faults::default()
        });
        let events = answer(wire, true, message).events();
        events[1..].to_vec()
    };
    let error = json!({"code": "server_error", "message": "Busy.", "param": null});
    let responses = faulty(Wire::Responses);
    assert_eq!(responses.len(), 2);
    assert_eq!(responses[0]["type"], "error");
    assert_eq!(responses[0]["code"], error["code"]);
    assert_eq!(responses[1]["type"], "response.failed");
    assert_eq!(responses[1]["response"]["status"], "failed");
    assert_eq!(
        responses[1]["response"]["error"],
        json!({"code": "server_error", "message": "Busy."})
    );
    assert_eq!(
        faulty(Wire::Chat),
        [
            json!({"error": {"message": "Busy.", "type": "server_error", "param": null, "code": "server_error"}})
        ]
    );
    assert_eq!(
        faulty(Wire::Gemini),
        [json!({"error": {"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}})]
    );
}

#[test]
fn one_event_is_no_json_and_pings_are_comments() {
    for wire in [Wire::Responses, Wire::Chat, Wire::Gemini] {
        // The ping after the first event is number 1, so the second event is number 2.
        let faults = Faults {
            bad_json_at: Some(2),
            pings: Pings::Every,
            ..Faults::default()
        };
        let response = answer(
            wire,
            true,
            Message::new().text("Hello there").deltas(4).faults(faults),
        );
        let bad: Vec<bool> = response
            .events()
            .iter()
            .map(|event| event.is_string() && event != "[DONE]")
            .collect();
        assert_eq!(bad.iter().filter(|bad| **bad).count(), 1, "{wire}");
        assert!(bad[1], "{wire}");
        assert!(response.body().contains("\n\n: keep-alive\n\n"), "{wire}");
    }
}

#[test]
fn w16_a_stream_begins_twice_or_another_begins_in_it() {
    let ids = |wire, id: Option<&str>| -> Vec<Value> {
        let faults = Faults {
            second_start: Some(SecondStart {
                at: 1,
                id: id.map(str::to_owned),
            }),
            ..Faults::default()
        };
        let message = Message::new().text("Hello there").deltas(4).faults(faults);
        let pointer = match wire {
            Wire::Anthropic => "/message/id",
            Wire::Responses => "/response/id",
            Wire::Chat => "/id",
            Wire::Gemini => "/responseId",
        };
        let events = answer(wire, true, message).events();
        let id = |at: usize| events[at].pointer(pointer).unwrap().clone();
        vec![id(0), id(1)]
    };
    for wire in Wire::ALL {
        let same = ids(wire, None);
        assert_eq!(same[0], same[1], "{wire}");
        let other = ids(wire, Some("other"));
        assert_eq!(other, [same[0].clone(), json!("other")], "{wire}");
    }
}

#[test]
fn events_are_left_out_by_their_names() {
    let ends = |wire, names: &[&str]| -> (usize, Value) {
        let faults = Faults {
            leave_out: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Faults::default()
        };
        let message = Message::new().text("Hello there").deltas(4).faults(faults);
        let events = answer(wire, true, message).events();
        (events.len(), events[events.len() - 1].clone())
    };
    let (all, _) = ends(Wire::Responses, &[]);
    let (fewer, last) = ends(Wire::Responses, &["response.completed"]);
    assert_eq!(
        (fewer, &last["type"]),
        (all - 1, &json!("response.output_item.done"))
    );
    let (all, _) = ends(Wire::Chat, &[]);
    let (fewer, last) = ends(Wire::Chat, &["finish", "usage", "done"]);
    assert_eq!(
        (fewer, &last["choices"][0]["delta"]),
        (all - 3, &json!({"content": "ere"}))
    );
    let (all, _) = ends(Wire::Gemini, &[]);
    let (fewer, last) = ends(Wire::Gemini, &["finish"]);
    assert_eq!(
        (fewer, last["candidates"][0].get("finishReason")),
        (all - 1, None)
    );
}

#[test]
fn w58_a_turn_that_was_cut_short_says_so_on_every_wire() {
    let cut = || {
        Message::new()
            .tool_use_text("call_1", "create_file", "{\"path\": \"/etc/pas")
            .stop_reason("max_tokens")
    };
    let told = |wire, pointer: &str| -> Value {
        let whole = answer(wire, false, cut()).json();
        whole.pointer(pointer).unwrap().clone()
    };
    assert_eq!(told(Wire::Anthropic, "/stop_reason"), "max_tokens");
    assert_eq!(
        told(Wire::Responses, "/incomplete_details/reason"),
        "max_output_tokens"
    );
    assert_eq!(told(Wire::Chat, "/choices/0/finish_reason"), "length");
    assert_eq!(
        told(Wire::Gemini, "/candidates/0/finishReason"),
        "MAX_TOKENS"
    );
}

#[test]
fn a_request_without_credentials_is_unauthorised_on_every_wire() {
    for wire in Wire::ALL {
        let mock = mock(Message::new().text("Hello"));
        let mut request = ask_of(wire, false);
        request
            .headers
            .retain(|(name, _)| name == "anthropic-version");
        assert_eq!(exchange_of(&mock, &request).status, 401, "{wire}");
        assert_eq!(
            exchange_of(&mock, &ask_of(wire, false)).status,
            200,
            "{wire}"
        );
    }
}
