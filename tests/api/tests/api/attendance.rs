//! Calls that ask in a turn whose client cannot be asked: they wait for whoever follows that session
//! as a person who can be, at this server or another one on the same database, and for nobody else.

use std::time::{Duration, Instant};

use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::events::Client;
use crate::postgres::Database;
use crate::server::{PATIENCE, Server};
use crate::stage::{Stage, text};
use crate::two_servers::Two;

/// How long somebody who has left may still count, with room for a machine that is busy.
const GONE: Duration = Duration::from_secs(55);

/// Where a session's thread is followed.
fn events(session: &Value) -> String {
    format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]))
}

/// Events as a person follows them who can be asked.
fn attended(events: &str) -> String {
    format!("{events}?attended=true")
}

/// Begins a turn in which a call asks, said by a program.
fn light(stage: &Stage, session: &str, call: &str) -> Value {
    let said = json!({ "text": "Light the lamp", "unattended": true });
    lit(stage, session, call, &said)
}

fn lit(stage: &Stage, session: &str, call: &str, said: &Value) -> Value {
    let light = json!({ "command": "echo lit > lamp" });
    stage.model.calls(call, "local_bash_tool", light);
    stage.model.says(Message::new().text("Done."));
    let turns = format!("/api/v1/sessions/{session}/turns");
    stage.server.post(&turns, said).is(202).json()
}

/// Looks at what the model is told of the call.
fn is_denied(stage: &Stage, call: &str) {
    let asked = stage.model.last_request();
    let told = asked.tool_result_text(call).unwrap_or_default();
    assert!(told.contains("nobody is there to be asked"), "{told}");
    assert!(stage.server.workspace.read("lamp").is_err());
}

fn allow(server: &Server, session: &str, call: &str) {
    let path = format!("/api/v1/sessions/{session}/approvals/{call}");
    server.post(&path, &json!({ "decision": "allow" })).is(204);
}

/// Waits for a state without following, which would count.
fn becomes(stage: &Stage, session: &str, state: &str, within: Duration) {
    let until = Instant::now() + within;
    while stage.now(session)["state"] != state {
        assert!(Instant::now() < until, "it is not {state}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_follows_another_session_is_not_waited_for() {
    let stage = Stage::new();
    let (session, other) = (stage.session(&json!({})), stage.session(&json!({})));
    let _follower = Client::follow(&stage.server, &attended(&events(&other)), None);
    let begun = Instant::now();
    let turn = light(&stage, &text(&session["id"]), "call-1");
    assert_eq!(stage.over(&turn)["state"], "completed");
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited");
    is_denied(&stage, "call-1");
}

#[test]
fn a_program_that_follows_is_not_waited_for_and_can_answer() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let id = text(&session["id"]);
    let all = "/api/v1/events".to_owned();
    let says_so = format!("{}?attended=false", events(&session));
    let paths = [events(&session), all, says_so];
    let programs = paths.map(|path| Client::follow(&stage.server, &path, None));
    let turn = light(&stage, &id, "call-1");
    assert_eq!(stage.over(&turn)["state"], "completed");
    is_denied(&stage, "call-1");
    // It answers where something waits for another reason.
    let said = json!({ "text": "Light the lamp", "unattended": false });
    let turn = lit(&stage, &id, "call-2", &said);
    let [mut follower, ..] = programs;
    let asked = follower.until("approval");
    assert_eq!(asked.last().unwrap().data["call"]["id"], "call-2");
    allow(&stage.server, &id, "call-2");
    assert_eq!(stage.over(&turn)["state"], "completed");
    assert_eq!(stage.server.workspace.read("lamp").unwrap(), "lit\n");
}

#[test]
fn who_follows_the_session_or_all_is_waited_for() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let id = text(&session["id"]);
    let paths = [events(&session), "/api/v1/events".to_owned()];
    for (path, call) in paths.iter().zip(["call-1", "call-2"]) {
        let _follower = Client::follow(&stage.server, &attended(path), None);
        let turn = light(&stage, &id, call);
        becomes(&stage, &id, "waiting", PATIENCE);
        allow(&stage.server, &id, call);
        assert_eq!(stage.over(&turn)["state"], "completed");
        assert_eq!(stage.server.workspace.read("lamp").unwrap(), "lit\n");
    }
}

#[test]
fn a_wait_ends_soon_after_the_last_who_could_answer_has_left() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let path = attended(&events(&session));
    let mut first = Client::follow(&stage.server, &path, None);
    let turn = light(&stage, &text(&session["id"]), "call-1");
    first.until("approval");
    // A page that is loaded anew.
    drop(first);
    let second = Client::follow(&stage.server, &path, None);
    drop(second);
    let left = Instant::now();
    let over = stage.over_within(&turn, GONE);
    assert_eq!(over["state"], "completed");
    let took = left.elapsed();
    assert!(took > Duration::from_secs(10) && took < GONE, "{took:?}");
    is_denied(&stage, "call-1");
}

#[test]
fn a_client_that_says_nothing_of_itself_and_looks_at_nothing_is_not_waited_for_long() {
    let stage = Stage::new();
    let session = text(&stage.session(&json!({}))["id"]);
    lit(
        &stage,
        &session,
        "call-1",
        &json!({ "text": "Light the lamp" }),
    );
    // Who shows the session does not look at what waits in it.
    becomes(&stage, &session, "waiting", PATIENCE);
    becomes(&stage, &session, "idle", GONE);
    is_denied(&stage, "call-1");
}

/// A follower at the second server counts for a turn of the first, and no longer once it left.
fn is_seen_from_the_other_server(both: &Two) {
    let path = attended(&format!("/api/v1/threads/{}/events", both.thread));
    let mut follower = Client::follow(&both.two, &path, None);
    let turn = light(&both.one, &both.session, "call-1");
    follower.until("approval");
    allow(&both.two, &both.session, "call-1");
    assert_eq!(both.one.over(&turn)["state"], "completed");
    std::fs::remove_file(both.one.server.workspace.work().join("lamp")).unwrap();
    // Who has left is seen to have.
    let turn = light(&both.one, &both.session, "call-2");
    follower.until("approval");
    drop(follower);
    assert_eq!(both.one.over_within(&turn, GONE)["state"], "completed");
    is_denied(&both.one, "call-2");
    let begun = Instant::now();
    let turn = light(&both.one, &both.session, "call-3");
    assert_eq!(both.one.over(&turn)["state"], "completed");
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited");
    is_denied(&both.one, "call-3");
}

#[test]
fn a_follower_at_another_server_is_waited_for_until_it_leaves_on_one_file() {
    is_seen_from_the_other_server(&Two::on_sqlite());
}

#[test]
fn a_follower_at_another_server_is_waited_for_until_it_leaves_on_postgres() {
    let Some(database) = Database::begin() else {
        return;
    };
    is_seen_from_the_other_server(&Two::on_postgres(&database));
}
