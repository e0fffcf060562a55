//! Two servers on one database: what is asked of a session at one of them is done by the one that
//! runs its turn, with a real answer.

use std::time::{Duration, Instant};

use conjure_kit::{Signal, Workspace};
use conjure_mock_llm::{Message, Position, Reply as Says};
use serde_json::{Value, json};

use crate::events::Client;
use crate::postgres::Database;
use crate::server::{PATIENCE, Reply, Server};
use crate::stage::{Stage, text};

/// How quickly another process answers, with room for a machine that is busy.
const SOON: Duration = Duration::from_secs(5);

/// A server with a model, and another one beside it.
pub(crate) struct Two {
    pub(crate) one: Stage,
    pub(crate) two: Server,
    pub(crate) session: String,
    pub(crate) thread: String,
}

impl Two {
    pub(crate) fn on_sqlite() -> Self {
        let one = Stage::new();
        let two = Server::with(&one.server.workspace, "", &[]);
        Self::on(one, two)
    }

    pub(crate) fn on_postgres(database: &Database) -> Self {
        let one = database.stage();
        let env = [("CONJURE_DATABASE", database.0.url())];
        // Another machine: it has a directory of data of its own.
        let two = Workspace::new().unwrap();
        two.add_plugin("conjure-backend-local").unwrap();
        Self::on(one, Server::with(&two, "", &env))
    }

    fn on(one: Stage, two: Server) -> Self {
        let session = one.session(&json!({}));
        Self {
            session: text(&session["id"]),
            thread: text(&session["thread"]["id"]),
            one,
            two,
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/sessions/{}{rest}", self.session)
    }

    /// Begins a turn at the first server whose answer is held in its middle.
    fn begin(&self, token: &str) -> Value {
        let answer = Message::new().text("A long story of the sea").deltas(3);
        let answer = Says::from(answer).hold(Position::Event(4), token);
        self.one.model.says(answer);
        let turn = self.one.say(&self.session, "Tell");
        self.one.model.mock().wait_for_gate_blocking(token).unwrap();
        turn
    }

    /// Asks the second one, which answers soon.
    fn at_two(&self, method: &str, rest: &str, body: &Value) -> Reply {
        let begun = Instant::now();
        let reply = self.two.send(method, &self.path(rest), body);
        let took = begun.elapsed();
        assert!(took < SOON, "{method} {rest} took {took:?}");
        reply
    }
}

/// All of it, as both databases have to do it.
fn is_steered_from_another_server(both: &Two) {
    // What the first one shows is shown by the second as it comes.
    let events = format!("/api/v1/threads/{}/events", both.thread);
    let mut follower = Client::follow(&both.two, &events, None);
    let turn = both.begin("cancelled");
    let shown = follower.until("content").pop().unwrap();
    assert!(shown.data.to_string().contains('A'), "{shown:?}");
    both.at_two("POST", "/cancel", &json!({})).is(204);
    assert_eq!(both.one.over(&turn)["state"], "cancelled");
    follower.until("done");
    // Other settings, at once: the stream is stopped and the new model asked.
    let turn = both.begin("changed");
    both.one.model.says(Message::new().text("The other one."));
    let patch = json!({ "model": "another-model" });
    both.at_two("PATCH", "?apply=now", &patch).is(200);
    both.one.over(&turn);
    follower.until("done");
    let asked = both.one.model.last_request();
    assert_eq!(asked.body["model"], "another-model");
    // What is said there waits behind what runs here, and runs here.
    let turn = both.begin("first");
    both.one.model.says(Message::new().text("Second."));
    let behind = both
        .at_two("POST", "/turns", &json!({ "text": "Go on" }))
        .is(202);
    assert_eq!(behind.json()["before"], 1);
    both.one.model.mock().release("first");
    assert_eq!(both.one.over(&turn)["state"], "completed");
    assert_eq!(both.one.over(&behind.json())["state"], "completed");
    // A call that asks is listed there, and decided about.
    let write = json!({ "command": "echo lit > lamp" });
    both.one.model.calls("call-1", "local_bash_tool", write);
    both.one.model.says(Message::new().text("Done."));
    let turn = both.one.say(&both.session, "Light the lamp");
    follower.until("approval");
    let waiting = both
        .at_two("GET", "/approvals", &Value::Null)
        .is(200)
        .json();
    assert_eq!(waiting["items"][0]["call"]["id"], "call-1", "{waiting}");
    let state = || both.at_two("GET", "", &Value::Null).is(200).json()["state"].take();
    let until = Instant::now() + PATIENCE;
    while state() != "waiting" {
        assert!(Instant::now() < until, "it is {} elsewhere", state());
        std::thread::sleep(Duration::from_millis(20));
    }
    let allow = json!({ "decision": "allow" });
    both.at_two("POST", "/approvals/call-1", &allow).is(204);
    assert_eq!(both.one.over(&turn)["state"], "completed");
    assert_eq!(both.one.server.workspace.read("lamp").unwrap(), "lit\n");
    both.at_two("POST", "/approvals/call-1", &allow).is(404);
    // Where nothing runs, the thread goes to whoever speaks next.
    both.one.model.says(Message::new().text("Here too."));
    let said = both
        .at_two("POST", "/turns", &json!({ "text": "And you?" }))
        .is(202);
    let turn = format!("/api/v1/turns/{}?wait=20", text(&said.json()["turn"]));
    let over = both.two.get(&turn).is(200).json();
    assert_eq!(over["state"], "completed", "{over}");
}

#[test]
fn a_session_is_steered_from_another_server_on_one_file() {
    is_steered_from_another_server(&Two::on_sqlite());
}

#[test]
fn a_session_is_steered_from_another_server_on_postgres() {
    let Some(database) = Database::begin() else {
        return;
    };
    is_steered_from_another_server(&Two::on_postgres(&database));
}

/// What happens in the sessions of one server, as those see it who follow all sessions at the other.
fn sessions_are_told_of_elsewhere(both: &Two) {
    let mut follower = Client::follow(&both.two, "/api/v1/events", None);
    let until = |follower: &mut Client, kind: &str, state: Option<&str>| loop {
        let came = follower.until(kind).pop().unwrap();
        let is_in_it = state.is_none_or(|state| came.data["state"] == state);
        if came.data["session"] == both.session && is_in_it {
            return came.data;
        }
    };
    let turn = both.begin("held");
    let running = until(&mut follower, "state", Some("running"));
    assert_eq!(running["turn"], turn["turn"]);
    assert_eq!(running["thread"], both.thread);
    both.one.model.mock().release("held");
    let idle = until(&mut follower, "state", Some("idle"));
    assert_eq!(idle["turn"], Value::Null);
    let write = json!({ "command": "echo lit > lamp" });
    both.one.model.calls("call-1", "local_bash_tool", write);
    both.one.model.says(Message::new().text("Done."));
    both.one.say(&both.session, "Light the lamp");
    until(&mut follower, "state", Some("waiting"));
    let allow = json!({ "decision": "allow" });
    let approve = both.path("/approvals/call-1");
    both.one.server.post(&approve, &allow).is(204);
    until(&mut follower, "state", Some("idle"));
    let patch = json!({ "model": "another-model" });
    let session = both.path("");
    both.one.server.send("PATCH", &session, &patch).is(200);
    until(&mut follower, "saved", None);
    both.one.server.delete(&session).is(204);
    until(&mut follower, "deleted", None);
}

#[test]
fn who_follows_all_sessions_is_told_of_those_of_another_server_on_one_file() {
    sessions_are_told_of_elsewhere(&Two::on_sqlite());
}

#[test]
fn who_follows_all_sessions_is_told_of_those_of_another_server_on_postgres() {
    let Some(database) = Database::begin() else {
        return;
    };
    sessions_are_told_of_elsewhere(&Two::on_postgres(&database));
}

/// Attaches a file at the second server to a turn that the first one is to run.
fn attached_at_the_other(both: &Two) -> Reply {
    both.begin("held");
    let headers = [("content-type", "text/plain")];
    let path = "/api/v1/uploads?name=lamp.txt";
    let kept = both.two.ask("POST", path, &headers, b"a lamp").is(201);
    let body = json!({ "attachments": [kept.json()["id"]], "text": "Look." });
    both.at_two("POST", "/turns", &body)
}

#[test]
fn a_file_of_a_shared_directory_goes_to_the_server_that_runs_the_turn() {
    let both = Two::on_sqlite();
    let taken = attached_at_the_other(&both).is(202);
    both.one.model.says(Message::new().text("I see a lamp."));
    both.one.model.mock().release("held");
    assert_eq!(both.one.over(&taken.json())["state"], "completed");
    let asked = both.one.model.last_request().body.to_string();
    assert!(asked.contains("a lamp"), "{asked}");
}

#[test]
fn a_file_that_the_server_which_runs_the_turn_does_not_have_is_refused() {
    let Some(database) = Database::begin() else {
        return;
    };
    let both = Two::on_postgres(&database);
    let refused = attached_at_the_other(&both).is(409);
    assert_eq!(refused.kind(), "elsewhere");
    let owner = format!("http://{}", both.one.server.address);
    assert_eq!(refused.json()["owner"], owner);
    both.one.model.mock().release("held");
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let both = Two::on_sqlite();
    let _turn = both.begin("held");
    both.one.server.running.signal(Signal::STOP);
    let refused = both.at_two("POST", "/cancel", &json!({})).is(409);
    both.one.server.running.signal(Signal::CONT);
    let problem = refused.json();
    assert_eq!(refused.kind(), "elsewhere");
    let owner = format!("http://{}", both.one.server.address);
    assert_eq!(problem["owner"], owner, "{problem}");
    both.at_two("POST", "/cancel", &json!({})).is(204);
}

#[test]
fn what_waited_at_a_server_that_was_killed_is_said_before_what_is_said_later() {
    let both = Two::on_sqlite();
    let _turn = both.begin("never");
    let waiting = ["Second", "Third"].map(|said| both.one.say(&both.session, said));
    both.one.server.running.signal(Signal::KILL);
    for answer in ["To the second.", "To the third.", "To the newest."] {
        both.one.model.says(Message::new().text(answer));
    }
    let newest = both
        .at_two("POST", "/turns", &json!({ "text": "Newest" }))
        .is(202)
        .json();
    for turn in waiting.iter().chain([&newest]) {
        let turn = format!("/api/v1/turns/{}?wait=20", text(&turn["turn"]));
        let over = both.two.get(&turn).is(200).json();
        assert_eq!(over["state"], "completed", "{over}");
    }
    let entries = format!("/api/v1/threads/{}/entries?limit=200", both.thread);
    let entries = both.two.get(&entries).is(200).json();
    let said: Vec<&str> = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["message"]["content"][0]["text"].as_str())
        .filter(|text| !text.starts_with("A l"))
        .collect();
    let expected = [
        "Tell",
        "Second",
        "To the second.",
        "Third",
        "To the third.",
        "Newest",
        "To the newest.",
    ];
    assert_eq!(said, expected);
}

/// A turn whose server is killed while a call waits for a person, as those see it who follow the
/// thread elsewhere.
fn the_end_of_a_turn_is_told_elsewhere(both: &Two) {
    let events = format!("/api/v1/threads/{}/events", both.thread);
    let mut follower = Client::follow(&both.two, &events, None);
    let write = json!({ "command": "echo lit > lamp" });
    both.one.model.calls("call-1", "local_bash_tool", write);
    let turn = both.one.say(&both.session, "Light the lamp");
    let mut shown = follower.until("approval");
    both.one.server.running.signal(Signal::KILL);
    let told = follower.until("done");
    let kinds: Vec<&str> = told.iter().map(|came| came.kind.as_str()).collect();
    assert_eq!(
        kinds,
        ["approval_over", "function_call_output", "error", "done"]
    );
    let output = told[1].data.to_string();
    assert!(
        output.contains("The host ended before this call"),
        "{output}"
    );
    assert_eq!(told[3].data["outcome"], "interrupted", "{told:?}");
    let path = format!("/api/v1/turns/{}?wait=20", text(&turn["turn"]));
    let over = both.two.get(&path).is(200).json();
    assert_eq!(over["state"], "interrupted", "{over}");
    assert!(text(&over["error"]).contains("is gone"), "{over}");
    assert!(over["usage"]["total"].as_u64() > Some(0), "{over}");
    // Who comes later reads the same.
    shown.extend(told);
    let mut later = Client::follow(&both.two, &events, None);
    assert_eq!(later.until("done"), shown);
    both.one.model.says(Message::new().text("It is not lit."));
    let said = both
        .at_two("POST", "/turns", &json!({ "text": "And now?" }))
        .is(202);
    let next = later.until("done");
    assert_eq!(next[0].kind, "turn_started", "{next:?}");
    let turn = format!("/api/v1/turns/{}?wait=20", text(&said.json()["turn"]));
    assert_eq!(both.two.get(&turn).is(200).json()["state"], "completed");
}

#[test]
fn who_follows_elsewhere_is_told_of_the_end_of_a_turn_whose_server_was_killed() {
    the_end_of_a_turn_is_told_elsewhere(&Two::on_sqlite());
}

#[test]
fn who_follows_elsewhere_is_told_of_the_end_of_a_turn_whose_server_was_killed_on_postgres() {
    let Some(database) = Database::begin() else {
        return;
    };
    the_end_of_a_turn_is_told_elsewhere(&Two::on_postgres(&database));
}

#[test]
fn a_server_is_announced_in_place_of_one_that_was_killed() {
    let one = Server::start();
    let two = Server::with(&one.workspace, "", &[]);
    let place = one.workspace.home().join(".local/share/conjure/serve.json");
    let announced = || -> Value {
        let text = std::fs::read_to_string(&place).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let url = |server: &Server| format!("http://{}", server.address);
    assert_eq!(announced()["url"], url(&one));
    one.running.signal(Signal::KILL);
    let until = Instant::now() + PATIENCE;
    while announced()["url"] != url(&two) {
        assert!(Instant::now() < until, "the second one is not announced");
        std::thread::sleep(Duration::from_millis(100));
    }
}
