//! The bytes on the socket: chunks, cuts, endings, keep-alive.

use std::io::ErrorKind;
use std::time::Duration;

use conjure_mock_llm::{
    Chunks, CutAt, CutHow, Ending, Faults, Framing, Message, MockLlm, Outcome, Pings, Position,
    Reply, Script,
};
use serde_json::{Value, json};

use crate::client::{Client, Response, ask, exchange, mock, stream};

fn hello() -> Reply {
    let message = Message {
        id: Some("msg_1".to_owned()),
        faults: Faults {
            pings: Pings::None,
            ..Faults::default()
        },
        ..Message::default()
    };
    message.text("Hello there").into()
}

/// The stream that everything else is compared with.
fn whole() -> String {
    stream(hello().chunks(Chunks::Whole)).body()
}

#[test]
fn a_chunk_is_an_event_a_line_some_bytes_or_everything() {
    let whole = whole();
    let chunked = |chunks| {
        let response = stream(hello().chunks(chunks));
        assert!(response.complete);
        response.chunks
    };
    let events: Vec<String> = whole.split_inclusive("\n\n").map(str::to_owned).collect();
    let lines: Vec<String> = whole.split_inclusive('\n').map(str::to_owned).collect();
    let sevens: Vec<String> = whole
        .as_bytes()
        .chunks(7)
        .map(|part| String::from_utf8(part.to_vec()).unwrap())
        .collect();
    let ones: Vec<String> = whole.chars().map(String::from).collect();
    assert_eq!(chunked(Chunks::Whole), [whole.as_str()]);
    assert_eq!(chunked(Chunks::Events), events);
    assert_eq!(chunked(Chunks::Lines), lines);
    assert_eq!(chunked(Chunks::Bytes(7)), sevens);
    assert_eq!(chunked(Chunks::Bytes(1)), ones);
}

#[test]
fn one_byte_a_write_and_a_delay_change_nothing_in_the_bytes() {
    let plain = stream(hello());
    assert_eq!(stream(hello().writes(1)), plain);
    assert_eq!(stream(hello().delay(Duration::from_millis(1))), plain);
}

#[test]
fn a_body_ends_by_length_or_with_the_connection() {
    let by_length = stream(hello().framing(Framing::Length));
    assert_eq!(
        by_length.header("content-length"),
        Some(whole().len().to_string().as_str())
    );
    assert!(by_length.complete);
    let by_close = stream(hello().framing(Framing::Close));
    assert_eq!(
        (
            by_close.header("connection"),
            by_close.header("transfer-encoding")
        ),
        (Some("close"), None)
    );
    assert_eq!([by_length.body(), by_close.body()], [whole(), whole()]);
}

#[test]
fn a_cut_after_bytes_falls_into_the_middle_of_a_chunk() {
    for (how, error) in [
        (CutHow::Eof, None),
        (CutHow::Reset, Some(ErrorKind::ConnectionReset)),
    ] {
        let mock = mock(hello().chunks(Chunks::Whole).cut(CutAt::Bytes(50), how));
        let response = exchange(&mock, &ask(true));
        assert_eq!(response.chunks, [&whole()[..50]]);
        assert_eq!((response.complete, response.error), (false, error));
        assert_eq!(mock.wait_for_outcome_blocking(0).unwrap(), Outcome::Cut);
    }
}

#[test]
fn a_cut_after_events_leaves_whole_events() {
    let response = stream(hello().cut(CutAt::Events(2), CutHow::Eof));
    assert_eq!(response.kinds(), ["message_start", "content_block_start"]);
    assert!(!response.complete);
}

#[test]
fn half_a_stream_can_be_correct_http() {
    let events = stream(hello().cut(CutAt::Events(3), CutHow::End));
    assert_eq!((events.kinds().len(), events.complete), (3, true));
    let bytes = stream(hello().cut(CutAt::Bytes(33), CutHow::End));
    assert_eq!(
        (bytes.body().as_str(), bytes.complete),
        (&whole()[..33], true)
    );
}

#[test]
fn cutting_at_every_byte_keeps_exactly_what_came_before() {
    let whole = whole();
    let script = Script::new().step(
        conjure_mock_llm::Step::answer(|request| {
            let at = request.query.parse().unwrap();
            hello()
                .chunks(Chunks::Bytes(64))
                .cut(CutAt::Bytes(at), CutHow::Eof)
        })
        .always(),
    );
    let mock = MockLlm::start_blocking(script).unwrap();
    for at in 0..=whole.len() {
        let mut client = Client::connect(mock.address());
        client.post(&format!("/v1/messages?{at}"), &ask(true), "");
        let response = client.read_all();
        assert_eq!(
            (response.body().as_str(), response.complete),
            (&whole[..at], false)
        );
    }
}

#[test]
fn an_endless_body_goes_on_until_the_client_leaves() {
    let mock = mock(hello().ending(Ending::Endless));
    let mut client = Client::connect(mock.address());
    client.post("/v1/messages", &ask(true), "");
    client.read_until(": more\n\n\r\n8\r\n: more\n\n");
    drop(client);
    assert_eq!(
        mock.wait_for_outcome_blocking(0).unwrap(),
        Outcome::ClientGone
    );
}

#[test]
fn a_silent_answer_lasts_until_the_client_leaves() {
    let silences = [
        (hello().hang(Position::Headers), None),
        (hello().hang(Position::Event(0)), Some("\r\n\r\n")),
        (hello().hang(Position::Event(1)), Some("\n\n\r\n")),
        (
            hello().ending(Ending::Silence),
            Some("\"message_stop\"}\n\n\r\n"),
        ),
    ];
    for (reply, last) in silences {
        let mock = mock(reply);
        let mut client = Client::connect(mock.address());
        client.post("/v1/messages", &ask(true), "");
        if let Some(last) = last {
            client.read_until(last);
        }
        drop(client);
        assert_eq!(
            mock.wait_for_outcome_blocking(0).unwrap(),
            Outcome::ClientGone
        );
    }
}

#[test]
fn one_connection_serves_several_requests_and_a_chunked_one() {
    let mock = MockLlm::start_blocking(
        Script::new()
            .reply(Reply::text("one"))
            .reply(Reply::text("two")),
    )
    .unwrap();
    let mut client = Client::connect(mock.address());
    client.post("/v1/messages", &ask(true), "");
    client.read_until("0\r\n\r\n");
    let body = ask(false).to_string();
    let (first, second) = body.split_at(10);
    let chunks = format!(
        "{:x}\r\n{first}\r\n{:x};x=y\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    client.send(
        "POST /v1/messages HTTP/1.1\r\nAuthorization: Bearer t\r\nAnthropic-Version: 2023-06-01\r\n\
             Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
            .as_bytes(),
    );
    assert_eq!(
        client.read_until("\r\n\r\n"),
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    client.send(chunks.as_bytes());
    assert_eq!(client.read_all().json()["content"][0]["text"], "two");
    let bodies: Vec<Value> = mock
        .requests()
        .iter()
        .map(|request| request.body.clone())
        .collect();
    assert_eq!(bodies, [ask(true), ask(false)]);
}

#[test]
fn what_is_no_http_is_refused() {
    let mock = mock(hello());
    let mut client = Client::connect(mock.address());
    client.send(b"\x16\x03\x01 not HTTP\r\n\r\n");
    let response: Response = client.read_all();
    assert_eq!(response.status, 400);
    assert_eq!(mock.requests(), []);
}

#[test]
fn an_answer_that_is_no_stream_can_be_cut_too() {
    let reply = Reply::from(Message::new().text("Hello")).cut(CutAt::Bytes(9), CutHow::Eof);
    let response = exchange(&mock(reply), &ask(false));
    assert_eq!((response.body().len(), response.complete), (9, false));
    assert!(serde_json::from_str::<Value>(&response.body()).is_err());
    assert_eq!(json!(response.status), 200);
}
