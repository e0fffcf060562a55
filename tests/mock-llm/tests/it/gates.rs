//! Gates: a test stops an answer where it wants and lets it go on, without sleeping.

use conjure_mock_llm::{Message, MockLlm, Outcome, Position, Reply, Script};

use crate::client::{Client, ask, mock};

#[test]
fn an_answer_waits_at_its_gates_in_order() {
    let reply = Reply::text("Hello")
        .hold(Position::Headers, "headers")
        .hold(Position::Event(1), "second event")
        .hold(Position::Event(99), "end");
    let mock = mock(reply);
    let mut client = Client::connect(mock.address());
    client.post("/v1/messages", &ask(true), "connection: close\r\n");
    mock.wait_for_gate_blocking("headers").unwrap();
    mock.release("headers");
    let before = client.read_until("\n\n\r\n");
    assert!(before.contains("message_start"));
    mock.wait_for_gate_blocking("second event").unwrap();
    mock.release("second event");
    client.read_until("\"message_stop\"}\n\n\r\n");
    mock.wait_for_gate_blocking("end").unwrap();
    mock.release("end");
    assert_eq!(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
    assert_eq!(
        mock.wait_for_outcome_blocking(0).unwrap(),
        Outcome::Delivered
    );
}

#[test]
fn a_gate_released_early_stays_open() {
    let mock = mock(Reply::text("Hello").hold(Position::Event(0), "gate"));
    mock.release("gate");
    assert_eq!(crate::client::exchange(&mock, &ask(false)).status, 200);
}

#[test]
fn a_client_that_leaves_at_a_gate_is_noticed() {
    let mock = mock(Reply::text("Hello").hold(Position::Event(1), "gate"));
    let mut client = Client::connect(mock.address());
    client.post("/v1/messages", &ask(true), "");
    mock.wait_for_gate_blocking("gate").unwrap();
    drop(client);
    assert_eq!(
        mock.wait_for_outcome_blocking(0).unwrap(),
        Outcome::ClientGone
    );
}

#[test]
fn answers_wait_independently_of_each_other() {
    let script = Script::new()
        .reply(Reply::text("first").hold(Position::Event(0), "gate"))
        .reply(Reply::text("second"));
    let mock = MockLlm::start_blocking(script).unwrap();
    let mut held = Client::connect(mock.address());
    held.post("/v1/messages", &ask(false), "connection: close\r\n");
    mock.wait_for_gate_blocking("gate").unwrap();
    let second = crate::client::exchange(&mock, &ask(false)).json();
    mock.release("gate");
    let first = held.read_all().json();
    assert_eq!(
        [&first["content"][0]["text"], &second["content"][0]["text"]],
        ["first", "second"]
    );
}

#[tokio::test]
async fn async_tests_wait_too_and_shutdown_ends_what_hangs() {
    let reply = Reply::from(Message::new()).hang(Position::Event(0));
    let mock = MockLlm::start(Script::new().reply(reply.hold(Position::Headers, "gate")))
        .await
        .unwrap();
    mock.release("gate");
    let mut client = Client::connect(mock.address());
    client.post("/v1/messages", &ask(true), "");
    mock.wait_for_requests(1).await.unwrap();
    mock.wait_for_gate("gate").await.unwrap();
    client.read_until("\r\n\r\n");
    let address = mock.address();
    mock.shutdown().await;
    assert_eq!(client.read_all().body(), "");
    assert!(std::net::TcpStream::connect(address).is_err());
}
