//! Ends: of servers, of sessions, of the host; nothing is left running.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stage::{Stage, runs, server, until, with};

fn pids(stage: &Stage) -> Vec<u64> {
    let text = stage.text("spawn", json!({}));
    text.split(' ').map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn trap10_nothing_that_a_server_started_outlives_its_session() {
    for traits in [&[][..], &["ignore-eof"], &["ignore-eof", "ignore-term"]] {
        let stage = Stage::new(json!({ "s": server(traits) }));
        let pids = pids(&stage);
        assert!(pids.iter().all(|pid| runs(*pid)), "{pids:?}");
        stage.close("one");
        // One of them left the group and its session.
        assert!(!pids.iter().any(|pid| runs(*pid)), "{traits:?}: {pids:?}");
    }
}

#[test]
fn trap11_servers_end_at_the_same_time() {
    let stubborn = || server(&["ignore-eof", "ignore-term"]);
    let stage = Stage::new(json!({ "s": stubborn(), "t": stubborn(), "u": stubborn() }));
    let pids: Vec<u64> = ["s", "t", "u"]
        .iter()
        .map(|name| stage.status_of("one", name)["pid"].as_u64().unwrap())
        .collect();
    let begun = Instant::now();
    stage.close("one");
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert!(!pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn a_server_that_dies_is_started_again_and_its_last_words_are_told() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let lost = stage.call("crash", json!({}));
    assert!(lost.text().contains("out of cheese"), "{}", lost.text());
    until("it is back", || stage.status()["generation"] == 2);
    assert_eq!(stage.text("echo", json!({ "text": "back" })), "back");
    assert!(stage.watched(|seen| {
        let notice = |event: &Value| {
            event["event"] == "notice" && event["text"].to_string().contains("exit status: 1")
        };
        seen.events.iter().any(notice)
    }));
}

#[test]
fn a_server_that_died_is_noticed_while_its_child_holds_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let config = with(
        server(&["--log", path.to_str().unwrap()]),
        json!({ "request_timeout_ms": 60_000, "total_timeout_ms": 60_000 }),
    );
    let stage = Stage::new(json!({ "s": config }));
    assert_eq!(stage.failure("abandon", json!({})), "SessionLost");
    until("it is back", || stage.status()["generation"] == 2);
    let log = super::stage::log(&path);
    let child = log.iter().find_map(|line| line.get("abandoned")?.as_u64());
    until("what it left is gone", || !runs(child.unwrap()));
}

#[test]
fn a_server_whose_supervisor_was_killed_does_not_run_beside_the_next() {
    let stage = Stage::new(json!({ "s": server(&["ignore-eof", "ignore-term"]) }));
    let first = stage.status()["pid"].as_u64().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let supervisor = rest.split(' ').nth(1).unwrap().parse().unwrap();
    let supervisor = rustix::process::Pid::from_raw(supervisor).unwrap();
    rustix::process::kill_process(supervisor, rustix::process::Signal::KILL).unwrap();
    until("it is back", || stage.status()["generation"] == 2);
    until("the first is gone", || !runs(first));
    assert_eq!(stage.text("echo", json!({ "text": "back" })), "back");
}

#[test]
fn a_server_that_does_not_start_says_why_and_is_tried_again_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let stage = Stage::new(json!({ "s": server(&["no-start", "--log", path.to_str().unwrap()]) }));
    until("it is tried again", || super::stage::log(&path).len() >= 2);
    until("it is told", || {
        stage.status()["why"]
            .to_string()
            .contains("the licence has expired")
    });
    assert!(stage.watched(|seen| {
        let notice = |event: &Value| {
            event["event"] == "notice" && event["text"].to_string().contains("did not start")
        };
        seen.events.iter().any(notice)
    }));
}

#[test]
fn servers_start_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    // None of them says a word before all are there.
    let together = || server(&["together", "--log", path.to_str().unwrap()]);
    let all = json!({ "s": together(), "t": together(), "u": together(), "v": together() });
    let stage = Stage::new(all);
    for name in ["s", "t", "u", "v"] {
        assert_eq!(stage.status_of("one", name)["state"], "ready");
    }
}
