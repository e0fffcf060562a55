//! Replies that are far too much, and bytes that are no text: written without being in memory.

use conjure_mock_llm::{
    Bulk, Chunks, CutAt, CutHow, Faults, HttpReply, Message, Outcome, Reply, Wire,
};
use serde_json::{Value, json};

use crate::client::{Client, Response, answer, ask_of, exchange_of, mock};

const MILLION: u64 = 1_000_000;

fn bulky(bulk: Bulk) -> Message {
    Message::new()
        .text("Hello")
        .tool_use("call_1", "ring", json!({"times": 12}))
        .faults(Faults {
            bulk: Some(bulk),
            ..Faults::default()
        })
}

/// What the text of a stream's deltas adds up to.
fn streamed_text(wire: Wire, response: &Response) -> String {
    let pointer = match wire {
        Wire::Anthropic => "/delta/text",
        Wire::Responses => "/delta",
        Wire::Chat => "/choices/0/delta/content",
        Wire::Gemini => "/candidates/0/content/parts/0/text",
    };
    response
        .events()
        .iter()
        .filter(|event| wire != Wire::Responses || event["type"] == "response.output_text.delta")
        .filter_map(|event| event.pointer(pointer)?.as_str().map(str::to_owned))
        .collect()
}

/// The text of a reply that is no stream.
fn whole_text(wire: Wire, body: &Value) -> String {
    let pointer = match wire {
        Wire::Anthropic => "/content/0/text",
        Wire::Responses => "/output/0/content/0/text",
        Wire::Chat => "/choices/0/message/content",
        Wire::Gemini => "/candidates/0/content/parts/0/text",
    };
    body.pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

/// The arguments of the call of a reply that is no stream, as text.
fn whole_arguments(wire: Wire, body: &Value) -> String {
    let pointer = match wire {
        Wire::Anthropic => "/content/1/input",
        Wire::Responses => "/output/1/arguments",
        Wire::Chat => "/choices/0/message/tool_calls/0/function/arguments",
        Wire::Gemini => "/candidates/0/content/parts/1/functionCall/args",
    };
    let arguments = body.pointer(pointer).unwrap();
    arguments
        .as_str()
        .map_or_else(|| arguments.to_string(), str::to_owned)
}

#[test]
fn a_long_text_is_longer_and_nothing_else() {
    for wire in Wire::ALL {
        for bulk in [Bulk::Text(100_000), Bulk::Deltas(100_000)] {
            let text = format!("Hello{}", "x".repeat(100_000));
            if bulk == Bulk::Text(100_000) {
                let response = answer(wire, true, bulky(bulk));
                assert!(response.complete && response.events().iter().all(is_json));
                assert_eq!(streamed_text(wire, &response), text, "{wire}");
            }
            let body = answer(wire, false, bulky(bulk)).json();
            assert_eq!(whole_text(wire, &body), text, "{wire} {bulk:?}");
        }
    }
}

fn is_json(event: &Value) -> bool {
    !event.is_string() || event == "[DONE]"
}

#[test]
fn many_deltas_are_many_events() {
    for wire in Wire::ALL {
        let response = answer(wire, true, bulky(Bulk::Deltas(2_000)));
        assert_eq!(
            streamed_text(wire, &response),
            format!("Hello{}", "x".repeat(2_000)),
            "{wire}"
        );
        let few = answer(wire, true, bulky(Bulk::Deltas(1))).events().len();
        assert_eq!(response.events().len(), few + 1_999, "{wire}");
    }
    // The JSON list of Gemini's stream, too.
    let mut list = ask_of(Wire::Gemini, true);
    list.query.clear();
    let body = exchange_of(&mock(bulky(Bulk::Deltas(2_000))), &list).json();
    assert!(body.as_array().unwrap().len() > 2_000);
}

#[test]
fn lines_are_before_and_inside_events_and_change_nothing() {
    for wire in Wire::ALL {
        let plain = answer(wire, true, Message::new().text("Hello")).events();
        for (bulk, line) in [
            (Bulk::CommentLines(500), ": \n"),
            (Bulk::DataLines(500), "data:\n"),
        ] {
            let message = Message::new().text("Hello").faults(Faults {
                bulk: Some(bulk),
                ..Faults::default()
            });
            let response = answer(wire, true, message.clone());
            assert!(response.body().contains(&line.repeat(500)), "{wire}");
            assert_eq!(response.events().len(), plain.len(), "{wire}");
            let body = answer(wire, false, message).body();
            assert!(body.starts_with(&"\n".repeat(500)), "{wire}");
            assert!(serde_json::from_str::<Value>(&body).is_ok(), "{wire}");
        }
    }
}

#[test]
fn lists_are_nested_in_events_and_in_arguments() {
    for wire in Wire::ALL {
        let lists = format!("\"nested\":{}{}", "[".repeat(100), "]".repeat(100));
        let message = || {
            let bulk = Bulk::NestedEvent(100);
            Message::new().text("Hello").faults(Faults {
                bulk: Some(bulk),
                ..Faults::default()
            })
        };
        for stream in [true, false] {
            let response = answer(wire, stream, message());
            assert!(response.body().contains(&lists), "{wire}");
            let first = if stream {
                response.events()[0].clone()
            } else {
                response.json()
            };
            assert!(first["nested"].is_array(), "{wire}");
        }
        let whole = answer(wire, false, bulky(Bulk::NestedArguments(100))).json();
        assert_eq!(
            whole_arguments(wire, &whole),
            format!("{{\"times\":12,{lists}}}"),
            "{wire}"
        );
        let response = answer(wire, true, bulky(Bulk::NestedArguments(100)));
        assert!(response.events().iter().all(is_json), "{wire}");
        assert!(response.body().contains(&"[".repeat(100)), "{wire}");
        // Far deeper than any parser goes, still a few bytes here.
        let deep = answer(wire, true, bulky(Bulk::NestedArguments(100_000)));
        assert!(deep.body().contains(&"]".repeat(100_000)), "{wire}");
    }
}

#[test]
fn bytes_that_are_no_text_and_half_a_pair_stand_in_the_text() {
    for wire in Wire::ALL {
        for stream in [true, false] {
            let response = answer(wire, stream, bulky(Bulk::InvalidUtf8));
            assert!(response.body().contains("\u{fffd}\u{fffd}\""), "{wire}");
            let response = answer(wire, stream, bulky(Bulk::LoneSurrogate));
            assert!(response.body().contains("\\ud83d\""), "{wire}");
        }
    }
}

#[test]
fn a_cut_falls_into_the_middle_of_the_bulk() {
    for chunks in [Chunks::Events, Chunks::Bytes(1_000)] {
        let whole = answer(Wire::Chat, true, bulky(Bulk::Text(100_000))).body();
        let reply = Reply::from(bulky(Bulk::Text(100_000)))
            .chunks(chunks)
            .cut(CutAt::Bytes(50_001), CutHow::Eof);
        let response = answer(Wire::Chat, true, reply);
        assert_eq!(response.body(), whole[..50_001]);
        assert!(!response.complete);
    }
}

#[test]
fn a_hundred_megabytes_and_a_million_events_are_never_in_memory() {
    let wanted = [
        (bulky(Bulk::Text(100 * MILLION)).into(), 100 * MILLION, 0),
        (
            bulky(Bulk::Deltas(MILLION)).into(),
            100 * MILLION,
            2 * MILLION,
        ),
        (
            bulky(Bulk::CommentLines(MILLION)).into(),
            3 * MILLION,
            MILLION,
        ),
        (html(MILLION), 12 * MILLION, 0),
    ];
    for (reply, least_bytes, least_lines) in wanted {
        let before = peak_memory();
        let mock = mock(reply);
        let mut client = Client::connect(mock.address());
        client.send_request(&ask_of(Wire::Chat, true));
        let (bytes, lines) = client.count();
        assert!(bytes >= least_bytes, "{bytes} bytes");
        assert!(lines >= least_lines, "{lines} lines");
        assert_eq!(
            mock.wait_for_outcome_blocking(0).unwrap(),
            Outcome::Delivered
        );
        let grown = peak_memory() - before;
        assert!(grown < 16 * MILLION, "grew by {grown} bytes");
    }
}

fn html(times: u64) -> Reply {
    HttpReply {
        body: "<p>Busy.</p>".to_owned(),
        times,
        ..HttpReply::default()
    }
    .into()
}

/// The most memory that this process has had, in bytes; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[test]
fn deltas_without_end_go_on_until_the_client_leaves() {
    let mock = mock(bulky(Bulk::Deltas(u64::MAX)));
    let mut client = Client::connect(mock.address());
    client.send_request(&ask_of(Wire::Anthropic, true));
    client.read_until("\"text\":\"x\"}}\n\n");
    client.read_until("\"text\":\"x\"}}\n\n");
    drop(client);
    assert_eq!(
        mock.wait_for_outcome_blocking(0).unwrap(),
        Outcome::ClientGone
    );
}

#[test]
fn a_script_in_json_has_bulk_and_dialects_and_raw_parts_of_a_wire() {
    let script = conjure_mock_llm::Script::from_json(
        r#"{"models": ["m"], "steps": [{
            "when": {"wire": "chat"},
            "message": {
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "Hi"},
                    {"type": "raw", "wire": "gemini", "value": {"text": "not here"}}
                ],
                "dialect": {"chat": {"reasoning": "reasoning", "comment": "PROCESSING"}},
                "faults": {"bulk": {"text": 3}}
            }
        }]}"#,
    );
    let mock = conjure_mock_llm::MockLlm::start_blocking(script.unwrap()).unwrap();
    let body = exchange_of(&mock, &ask_of(Wire::Chat, false)).json();
    let message = &body["choices"][0]["message"];
    assert_eq!(
        [&message["content"], &message["reasoning"]],
        ["Hixxx", "hm"]
    );
}
