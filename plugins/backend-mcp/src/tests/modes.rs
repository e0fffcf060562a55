//! Stateful and stateless calls: pins, order, replays, refusals, sharing.

use std::time::{Duration, Instant};

use conjure_skill_sdk::protocol::ToolMode;
use serde_json::{Value, json};

use super::stage::{Stage, failure, log, server, until, with};

fn stateless(server: Value) -> Value {
    with(server, json!({ "mode": "stateless" }))
}

#[test]
fn the_mode_is_set_for_a_tool_or_a_server_or_by_the_era() {
    let mixed = with(
        stateless(server(&[])),
        json!({ "tools": { "count": { "mode": "stateful" } } }),
    );
    let stage = Stage::new(json!({ "s": mixed }));
    assert_eq!(stage.tool("echo").unwrap().mode, ToolMode::Stateless);
    assert_eq!(stage.tool("count").unwrap().mode, ToolMode::Stateful);
}

#[test]
fn a_stateful_call_that_loses_its_connection_is_lost_and_never_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let stage = Stage::new(json!({ "s": server(&["--log", path.to_str().unwrap()]) }));
    assert_eq!(stage.text("count", json!({})), "1");
    let mark = dir.path().join("mark");
    // Idempotent, but stateful: still not repeated.
    let lost = stage.call("crash_once", json!({ "mark": mark }));
    assert_eq!(failure(&lost), "SessionLost");
    assert!(
        lost.text().contains("not known whether it took effect"),
        "{}",
        lost.text()
    );
    assert_eq!(stage.text("count", json!({})), "1", "the next begins anew");
    let calls = log(&path);
    let crashes = calls
        .iter()
        .filter(|line| line["params"]["name"] == "crash_once");
    assert_eq!(crashes.count(), 1);
}

#[test]
fn a_stateful_call_after_a_loss_that_nobody_saw_is_lost_unsent() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    assert_eq!(stage.text("count", json!({})), "1");
    let pid = stage.status()["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("it is connected anew", || stage.status()["generation"] == 2);
    let lost = stage.call("count", json!({}));
    assert_eq!(failure(&lost), "SessionLost");
    assert!(lost.text().contains("was not sent"), "{}", lost.text());
    assert_eq!(stage.text("count", json!({})), "1");
}

#[test]
fn a_stateless_call_is_repeated_only_when_that_does_no_harm() {
    let stage = Stage::new(json!({ "s": stateless(server(&[])) }));
    let mark = stage.dir.path().join("mark");
    assert_eq!(
        stage.text("crash_once", json!({ "mark": mark })),
        "survived"
    );
    let lost = stage.call("crash", json!({}));
    assert_eq!(failure(&lost), "ConnectionLost");
    assert!(lost.text().contains("out of cheese"), "{}", lost.text());
    let always = json!({ "s": with(
        stateless(server(&[])),
        json!({ "tools": { "crash": { "idempotent": true } } }),
    ) });
    let stage = Stage::new(always);
    assert_eq!(stage.failure("crash", json!({})), "ConnectionLost");
    until("once more, not for ever", || {
        stage.status()["generation"] == 3
    });
}

#[test]
fn stateless_calls_run_at_the_same_time_and_stateful_ones_in_order() {
    let ends = |config: Value| {
        let stage = Stage::new(json!({ "s": config }));
        let meet = || stage.begin("meet", json!({ "of": 2 }));
        [meet(), meet()].map(|call| call.wait().text())
    };
    assert_eq!(ends(stateless(server(&[]))), ["met"; 2]);
    let quick = with(server(&[]), json!({ "request_timeout_ms": 300 }));
    let ends = ends(quick);
    assert!(
        ends.iter().any(|end| end.starts_with("TimedOut")),
        "one has gone before the other comes: {ends:?}"
    );
}

#[test]
fn a_stateful_call_waits_for_a_connection_within_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let server = server(&["once", "--log", path.to_str().unwrap()]);
    let config = with(server, json!({ "request_timeout_ms": 800 }));
    let stage = Stage::new(json!({ "s": config }));
    assert_eq!(stage.failure("crash", json!({})), "SessionLost");
    let begun = Instant::now();
    let late = stage.call("count", json!({}));
    assert_eq!(failure(&late), "NotReady");
    // It is in the connection's first attempt, or between two: what it waited for is not there.
    let text = late.text();
    assert!(
        text.contains("no connection") && text.contains("Nothing was sent"),
        "{text}"
    );
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_peer_that_keeps_nothing_gets_no_stateful_call() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let args = ["stateless-only", "--log", path.to_str().unwrap()];
    let stage = Stage::new(json!({
        "s": server(&args),
        "set": with(server(&args), json!({ "stateless_only": true })),
    }));
    for server in ["s", "set"] {
        let refused = stage.call_in("one", server, "count", json!({}));
        assert_eq!(failure(&refused), "ModeMismatch");
    }
    let calls = log(&path);
    assert!(calls.iter().all(|line| line["method"] != "tools/call"));
}

#[test]
fn the_session_mode_follows_the_tools() {
    let only = Stage::new(json!({ "s": stateless(server(&[])) }));
    only.text("echo", json!({}));
    let status = only.status();
    assert_eq!(status["session_mode"], "optional");
    assert!(status.get("session_id").is_none());
    let stateful = Stage::new(json!({ "s": server(&[]) }));
    let status = stateful.status();
    assert_eq!(status["session_mode"], "required");
    assert_eq!(status["session_id"], "s#1");
    let mixed = with(
        stateless(server(&[])),
        json!({ "tools": { "count": { "mode": "stateful" } } }),
    );
    let mixed = Stage::new(json!({ "s": mixed }));
    assert_eq!(mixed.status()["session_mode"], "required");
    let trace = || {
        let meta = mixed.call("meta", json!({})).result().unwrap().structured;
        meta.unwrap()["traceparent"].clone()
    };
    let first = trace();
    assert!(first.is_string());
    assert_eq!(mixed.text("count", json!({})), "1");
    assert_eq!(
        trace(),
        first,
        "stateless calls of a session share the trace"
    );
    let meta = mixed.call("meta", json!({})).result().unwrap().structured;
    let names: Vec<_> = meta.unwrap().as_object().unwrap().keys().cloned().collect();
    assert!(
        names.iter().all(|name| !name.contains("session")),
        "{names:?}"
    );
}

#[test]
fn sessions_of_the_older_era_have_connections_of_their_own() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    stage.open("two");
    stage.catalog_of("two");
    assert_eq!(stage.text("count", json!({})), "1");
    assert_eq!(stage.text("count", json!({})), "2");
    assert_eq!(stage.call_in("two", "s", "count", json!({})).text(), "1");
    let pids = ["one", "two"].map(|session| stage.status_of(session, "s")["pid"].clone());
    assert_ne!(pids[0], pids[1]);
    stage.close("two");
    assert_eq!(stage.text("count", json!({})), "3");
}

#[test]
fn a_stateless_server_of_the_newer_era_is_shared_by_sessions() {
    let place = tempfile::tempdir().unwrap();
    let modern = with(
        server(&["modern"]),
        json!({ "era": "modern", "cwd": place.path() }),
    );
    let stage = Stage::new(json!({ "s": modern }));
    stage.open("two");
    stage.catalog_of("two");
    let statuses = ["one", "two"].map(|session| stage.status_of(session, "s"));
    assert_eq!(statuses[0]["pid"], statuses[1]["pid"]);
    assert_eq!(statuses[0]["shared"], true);
    // One that has it no more takes it from no other.
    let nothing = json!({ "options": { "servers": {}, "max_starting": 4 } });
    let reopened = stage.plugin.session("two").call("backend.reopen", nothing);
    reopened.reply.unwrap();
    assert_eq!(stage.catalog_of("two").tools, []);
    assert_eq!(stage.status()["pid"], statuses[0]["pid"]);
    assert_eq!(stage.text("echo", json!({ "text": "still" })), "still");
    assert_eq!(stage.status()["pid"], statuses[0]["pid"]);
    stage.close("two");
    assert_eq!(stage.text("echo", json!({ "text": "here" })), "here");
    let stateful = with(
        modern,
        json!({ "tools": { "count": { "mode": "stateful" } } }),
    );
    let stage = Stage::new(json!({ "s": stateful }));
    assert_eq!(stage.status()["shared"], false);
    assert_eq!(stage.text("count", json!({})), "1");
}

#[test]
fn a_shared_server_that_gets_a_stateful_tool_is_shared_no_more() {
    let place = tempfile::tempdir().unwrap();
    let modern = with(
        server(&["modern", "stateful-newcomer"]),
        json!({ "era": "modern", "cwd": place.path() }),
    );
    let stage = Stage::new(json!({ "s": modern }));
    stage.open("two");
    stage.catalog_of("two");
    let pid_of = |session: &str| stage.status_of(session, "s")["pid"].clone();
    assert_eq!(pid_of("one"), pid_of("two"));
    let shared = pid_of("one").as_u64().unwrap();
    let slow = stage.begin("progress", json!({ "steps": 10, "ms": 100 }));
    until("it runs", || slow.until(|seen| !seen.events.is_empty()));
    assert_eq!(stage.text("change", json!({})), "changed");
    until("each has its own", || {
        let (one, two) = (pid_of("one"), pid_of("two"));
        assert!(stage.tool("echo").is_some(), "its tools stay");
        one.is_u64() && two.is_u64() && one != two && one != shared && two != shared
    });
    assert_eq!(slow.wait().text(), "arrived", "calls that run go on");
    until("the shared one is gone", || !super::stage::runs(shared));
    let generation = &stage.status()["generation"];
    assert!(
        generation.as_u64() > Some(1),
        "it goes on counting: {generation}"
    );
    assert_eq!(stage.text("count", json!({})), "1");
}
