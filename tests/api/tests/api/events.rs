//! Streams of events: every client gets each event once and in order, whatever happens to it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use conjure_kit::{Signal, Workspace};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::{Value, json};

use crate::postgres::Database;
use crate::server::{PATIENCE, Server, authorization, connect};
use crate::stage::{Stage, text};

/// A client that follows.
pub(crate) struct Client {
    lines: BufReader<TcpStream>,
    head: String,
}

/// An event, as it comes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Came {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Client {
    pub(crate) fn follow(server: &Server, path: &str, last: Option<&str>) -> Self {
        Self::at(server.address, path, last)
    }

    fn at(address: SocketAddr, path: &str, last: Option<&str>) -> Self {
        let mut stream = connect(address);
        let last = last.map(|last| format!("last-event-id: {last}\r\n"));
        let last = last.unwrap_or_default();
        // Of an HTTP/1.0 request the answer comes without chunks.
        let token = authorization();
        let head = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n{token}{last}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut client = Self {
            lines: BufReader::new(stream),
            head: String::new(),
        };
        while !client.head.ends_with("\r\n\r\n") {
            assert_ne!(
                client.lines.read_line(&mut client.head).unwrap(),
                0,
                "{}",
                client.head
            );
        }
        assert!(
            client.head.contains("content-type: text/event-stream"),
            "{}",
            client.head
        );
        assert!(
            client.head.contains("cache-control: no-"),
            "{}",
            client.head
        );
        client
    }

    /// The next event; nothing at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<Came> {
        let mut came = Came {
            id: String::new(),
            kind: String::new(),
            data: Value::Null,
        };
        let until = Instant::now() + PATIENCE;
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // Signs of life alone are no event.
            assert!(Instant::now() < until, "no event comes");
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => came.id = id.to_owned(),
                Some(("event", kind)) => came.kind = kind.to_owned(),
                Some(("data", data)) => came.data = serde_json::from_str(data).unwrap(),
                None if line.trim().is_empty() && !came.kind.is_empty() => return Some(came),
                _ => {}
            }
        }
    }

    /// The events up to one of this kind.
    pub(crate) fn until(&mut self, kind: &str) -> Vec<Came> {
        let mut all = Vec::new();
        loop {
            let came = self
                .next()
                .unwrap_or_else(|| panic!("it ended after {all:#?}"));
            let is_last = came.kind == kind;
            all.push(came);
            if is_last {
                return all;
            }
        }
    }
}

fn held(words: &str, gate: &str) -> Reply {
    Reply::from(Message::new().text(words).deltas(2)).hold(Position::Event(8), gate)
}

#[test]
fn who_comes_back_gets_exactly_what_was_missed() {
    comes_back(&Stage::new());
}

fn comes_back(stage: &Stage) {
    let session = stage.session(&json!({}));
    let path = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
    let mut early = Client::follow(&stage.server, &path, None);
    stage
        .model
        .says(held("Now then, a reply in many small pieces.", "middle"));
    stage.say(&text(&session["id"]), "Go");
    let mut first = early.until("content");
    stage.model.mock().wait_for_gate_blocking("middle").unwrap();
    // One goes in the middle, one comes in the middle.
    drop(early);
    let mut late = Client::follow(&stage.server, &path, None);
    let begin = late.until("content");
    stage.model.mock().release("middle");
    let last = first.last().unwrap().id.clone();
    let mut back = Client::follow(&stage.server, &path, Some(&last));
    first.extend(back.until("done"));
    let mut all = begin;
    all.extend(late.until("done"));
    assert_eq!(first, all);
    let numbers: Vec<(u64, u64)> = all
        .iter()
        .map(|came| {
            let (epoch, seq) = came.id.split_once('.').unwrap();
            (epoch.parse().unwrap(), seq.parse().unwrap())
        })
        .collect();
    assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
    assert!(
        all.iter()
            .all(|came| came.data["type"] == came.kind.as_str()),
        "{all:#?}"
    );
    let said: String = all
        .iter()
        .filter(|came| came.kind == "content")
        .map(|came| text(&came.data["delta"]))
        .collect();
    assert_eq!(said, "Now then, a reply in many small pieces.");
    // By the query too, and the header wins.
    let third = &all[2].id;
    let by_query = format!("{path}?after={third}");
    let mut rest = Client::follow(&stage.server, &by_query, None);
    assert_eq!(rest.until("done"), all[3..]);
    let mut rest = Client::follow(&stage.server, &by_query, Some(&all[4].id));
    assert_eq!(rest.until("done"), all[5..]);
    let figures = stage.server.get("/metrics").is(200).body;
    let figures = String::from_utf8(figures).unwrap();
    assert!(figures.contains("\nconjure_event_streams "), "{figures}");
}

#[test]
fn streams_are_the_same_over_postgres() {
    let Some(database) = Database::begin() else {
        return;
    };
    let stage = database.stage();
    comes_back(&stage);
    come_and_go(&stage);
}

#[test]
fn clients_that_come_and_go_all_see_the_same() {
    come_and_go(&Stage::new());
}

fn come_and_go(stage: &Stage) {
    const SESSIONS: usize = 4;
    const CLIENTS: usize = 3;
    let words = "Some words that come one after the other, in many pieces. ".repeat(5);
    for _ in 0..SESSIONS {
        stage
            .model
            .says(Message::new().text(words.as_str()).deltas(3));
    }
    let ids: Vec<Value> = (0..SESSIONS).map(|_| stage.session(&json!({}))).collect();
    let (address, words) = (stage.server.address, words.as_str());
    std::thread::scope(|scope| {
        for session in &ids {
            let path = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
            let follow = move |leaves_after: usize| {
                let mut all: Vec<Came> = Vec::new();
                loop {
                    let last = all.last().map(|came| came.id.clone());
                    let mut client = Client::at(address, &path, last.as_deref());
                    for _ in 0..leaves_after {
                        all.push(client.next().unwrap());
                        if all.last().unwrap().kind == "done" {
                            return all;
                        }
                    }
                }
            };
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let follow = follow.clone();
                    scope.spawn(move || follow(number * 7 + 2))
                })
                .collect();
            stage.say(&text(&session["id"]), "Go");
            scope.spawn(move || {
                let seen: Vec<_> = clients.into_iter().map(|one| one.join().unwrap()).collect();
                assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:#?}");
                let deltas = seen[0].iter().filter(|came| came.kind == "content");
                let said: String = deltas.map(|came| text(&came.data["delta"])).collect();
                assert_eq!(said, words);
            });
        }
    });
}

#[test]
fn what_happened_before_the_server_is_followed_too() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let id = text(&session["id"]);
    let path = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
    stage.model.says(Message::new().text("Before."));
    stage.talk(&id, "One");
    let workspace = stage.server.workspace.clone();
    let before = Client::follow(&stage.server, &path, None).until("done");
    stage.server.end(Signal::TERM);
    let server = Server::with(&workspace, "", &[]);
    let mut client = Client::follow(&server, &path, None);
    assert_eq!(client.until("done"), before);
    stage.model.says(Message::new().text("After."));
    let turns = format!("/api/v1/sessions/{id}/turns");
    server.post(&turns, &json!({ "text": "Two" })).is(202);
    let after = client.until("done");
    assert!(
        after.iter().any(|came| came.data["delta"] == "After."),
        "{after:#?}"
    );
}

#[test]
fn a_number_that_is_none_is_refused() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let path = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
    for bad in ["x", "1", "1.", "-1.2", "1.2.3", "99999999999999999999.1"] {
        let reply = stage
            .server
            .ask("GET", &path, &[("last-event-id", bad)], "")
            .is(400);
        assert_eq!(reply.kind(), "event-id");
        stage.server.get(&format!("{path}?after={bad}")).is(400);
    }
    stage.server.get("/api/v1/threads/nothing/events").is(404);
}

#[test]
fn a_stream_tells_of_the_end_of_the_turn_and_ends_with_the_server() {
    let workspace = Workspace::new().unwrap();
    let stage = Stage::on(Server::with(&workspace, "--grace 20", &[]));
    let session = stage.session(&json!({}));
    let path = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
    let mut client = Client::follow(&stage.server, &path, None);
    let mut sessions = Client::follow(&stage.server, "/api/v1/events", None);
    stage
        .model
        .says(held("A reply that is still to come.", "middle"));
    stage.say(&text(&session["id"]), "Go");
    stage.model.mock().wait_for_gate_blocking("middle").unwrap();
    stage.server.running.signal(Signal::TERM);
    // The server takes no connection any more; what is open stays.
    for _ in 0..200 {
        if TcpStream::connect(stage.server.address).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    stage.model.mock().release("middle");
    let all = client.until("done");
    assert_eq!(all.last().unwrap().data["outcome"], "completed", "{all:#?}");
    assert_eq!(client.next(), None);
    while sessions.next().is_some() {}
    let output = stage.server.running.wait().unwrap();
    assert_eq!((output.code, output.stderr.as_str()), (Some(143), ""));
}

#[test]
fn a_turn_that_takes_too_long_is_ended_with_the_server_and_what_came_is_kept() {
    let workspace = Workspace::new().unwrap();
    let stage = Stage::on(Server::with(&workspace, "--grace 1", &[]));
    let session = stage.session(&json!({}));
    let path = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
    let mut client = Client::follow(&stage.server, &path, None);
    stage
        .model
        .says(held("A reply that never comes whole.", "middle"));
    let turn = stage.say(&text(&session["id"]), "Go");
    stage.model.mock().wait_for_gate_blocking("middle").unwrap();
    client.until("content");
    let workspace = stage.server.workspace.clone();
    let output = stage.server.end(Signal::TERM);
    assert_eq!(output.code, Some(143), "{output:?}");
    while client.next().is_some() {}
    let server = Server::with(&workspace, "", &[]);
    let turn = server
        .get(&format!("/api/v1/turns/{}", text(&turn["turn"])))
        .is(200)
        .json();
    assert!(
        turn["ended_at_ms"].is_number() && turn["state"] != "completed",
        "{turn}"
    );
    let thread = text(&session["thread"]["id"]);
    let entries = server
        .get(&format!("/api/v1/threads/{thread}/entries"))
        .is(200)
        .json();
    assert!(entries.to_string().contains("A r"), "{entries}");
}

#[test]
fn the_sessions_are_followed() {
    let stage = Stage::new();
    let mut client = Client::follow(&stage.server, "/api/v1/events", None);
    assert_eq!(client.next().unwrap().kind, "missed");
    let session = stage.session(&json!({}));
    let id = text(&session["id"]);
    let saved = client.until("saved").pop().unwrap();
    assert_eq!(saved.data["session"], json!(id));
    stage.model.says(Message::new().text("Hello."));
    let turn = stage.say(&id, "Hello");
    loop {
        let state = client.until("state").pop().unwrap().data;
        if state["state"] == "running" {
            assert_eq!(
                (&state["session"], &state["turn"]),
                (&json!(id), &turn["turn"])
            );
            break;
        }
    }
    stage.over(&turn);
    while client.until("state").pop().unwrap().data["state"] != "idle" {}
    let thread = text(&session["thread"]["id"]);
    let path = format!("/api/v1/threads/{thread}");
    stage
        .server
        .send("PATCH", &path, &json!({ "label": "A name" }))
        .is(200);
    loop {
        let named = client.until("thread").pop().unwrap().data;
        assert_eq!(named["thread"], json!(thread));
        if named["label"] == "A name" {
            assert_eq!(named["removed"], false, "{named}");
            break;
        }
    }
    stage.server.delete(&format!("{path}/entries")).is(200);
    let cleared = client.until("thread").pop().unwrap().data;
    assert!(cleared["cleared_upto"].as_u64() > Some(0), "{cleared}");
    stage
        .server
        .delete(&format!("/api/v1/sessions/{id}"))
        .is(204);
    assert_eq!(
        client.until("deleted").pop().unwrap().data["session"],
        json!(id)
    );
}
