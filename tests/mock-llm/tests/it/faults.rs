//! Faults among the events of a stream.

use conjure_mock_llm::{ErrorReply, Faults, Message, Pings, Reply, SecondStart, StreamError};
use serde_json::{Value, json};

use crate::client::{Response, ask, exchange, mock, stream};

fn faulty(faults: Faults) -> Response {
    stream(Message::new().text("Hello there").faults(faults))
}

#[test]
fn pings_come_between_all_events() {
    let response = faulty(Faults {
        pings: Pings::Every,
        ..Faults::default()
    });
    assert_eq!(
        response.kinds(),
        [
            "message_start",
            "ping",
            "content_block_start",
            "ping",
            "content_block_delta",
            "ping",
            "content_block_stop",
            "ping",
            "message_delta",
            "ping",
            "message_stop",
            "ping",
        ]
    );
}

#[test]
fn wire_13_an_error_comes_after_two_events_and_ends_the_stream() {
    let response = faulty(Faults {
        error: Some(StreamError {
            after: 2,
            kind: "overloaded_error".to_owned(),
            message: "Overloaded".to_owned(),
        }),
        ..Faults::default()
    });
    assert_eq!(response.status, 200);
    assert!(response.complete);
    assert_eq!(
        response.kinds(),
        ["message_start", "content_block_start", "error"]
    );
    assert_eq!(
        response.events()[2],
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    );
}

#[test]
fn one_event_is_no_json_and_the_others_are() {
    let response = faulty(Faults {
        bad_json_at: Some(1),
        ..Faults::default()
    });
    let bad: Vec<bool> = response.events().iter().map(Value::is_string).collect();
    assert_eq!(bad, [false, true, false, false, false, false, false]);
}

#[test]
fn wire_16_the_first_event_comes_twice_or_of_another_message() {
    let ids = |id: Option<&str>| -> Vec<Value> {
        let response = faulty(Faults {
            second_start: Some(SecondStart {
                at: 2,
                id: id.map(str::to_owned),
            }),
            pings: Pings::None,
            ..Faults::default()
        });
        let events = response.events();
        [0, 2]
            .into_iter()
            .map(|at: usize| events[at]["message"]["id"].clone())
            .collect()
    };
    assert_eq!(ids(None), ["msg_mock_0", "msg_mock_0"]);
    assert_eq!(ids(Some("msg_other")), ["msg_mock_0", "msg_other"]);
}

#[test]
fn events_can_be_left_out() {
    let response = faulty(Faults {
        leave_out: vec!["content_block_stop".to_owned(), "message_stop".to_owned()],
        pings: Pings::None,
        ..Faults::default()
    });
    assert_eq!(
        response.kinds(),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "message_delta"
        ]
    );
}

#[test]
fn a_tool_input_is_cut_short_by_max_tokens() {
    let message = Message::new()
        .tool_use_text("toolu_1", "create_file", "{\"path\": \"/etc/pas")
        .stop_reason("max_tokens")
        .deltas(100);
    let events = stream(message).events();
    assert_eq!(events[4]["delta"]["partial_json"], "{\"path\": \"/etc/pas");
    assert_eq!(events[6]["delta"]["stop_reason"], "max_tokens");
}

#[test]
fn every_status_has_its_own_error_type() {
    let kinds = [400, 401, 403, 404, 413, 429, 500, 529].map(|status| {
        let response = exchange(&mock(Reply::error(status)), &ask(true));
        assert_eq!(response.status, status);
        let body = response.json();
        assert_eq!(body["type"], "error");
        body["error"]["type"].as_str().unwrap().to_owned()
    });
    assert_eq!(
        kinds,
        [
            "invalid_request_error",
            "authentication_error",
            "permission_error",
            "not_found_error",
            "request_too_large",
            "rate_limit_error",
            "api_error",
            "overloaded_error",
        ]
    );
}

#[test]
fn retry_after_is_sent_only_where_it_was_asked_for() {
    let with = exchange(&mock(ErrorReply::new(429).retry_after("7")), &ask(true));
    let without = exchange(&mock(ErrorReply::new(429)), &ask(true));
    assert_eq!(with.header("retry-after"), Some("7"));
    assert_eq!(without.header("retry-after"), None);
}

#[test]
fn pages_redirects_and_bytes_are_served_as_written() {
    let html = exchange(&mock(Reply::html(502, "<h1>Bad gateway</h1>")), &ask(true));
    assert_eq!(
        (html.status, html.header("content-type")),
        (502, Some("text/html"))
    );
    assert_eq!(html.body(), "<h1>Bad gateway</h1>");

    let redirect = exchange(
        &mock(Reply::redirect(307, "http://127.0.0.1:9/")),
        &ask(true),
    );
    assert_eq!(
        (redirect.status, redirect.header("location")),
        (307, Some("http://127.0.0.1:9/"))
    );

    let raw = exchange(&mock(Reply::raw("NOT HTTP\r\n")), &ask(true));
    assert_eq!((raw.head.as_str(), raw.error), ("NOT HTTP\r\n", None));
}
