//! What servers say while they work, and while they do not.

use serde_json::{Value, json};

use super::listening::Listening;
use super::stage::{Stage, log, server, until, with};

fn logged(stage: &Stage, level: &str) -> Vec<Value> {
    let outcome = stage.call("log", json!({ "steps": 3, "level": level }));
    assert_eq!(outcome.text(), "logged");
    outcome.events
}

fn three(level: &str) -> Vec<Value> {
    let event =
        |n: u64| json!({ "event": "log", "level": level, "logger": "work", "data": { "n": n } });
    (1..=3).map(event).collect()
}

#[test]
fn messages_of_a_call_are_its_events_whole_in_order_and_before_its_end() {
    let stage = Stage::new(json!({ "s": server(&["more"]) }));
    assert_eq!(logged(&stage, "error"), three("error"));
    // A word that the protocol does not have is passed on as it came.
    assert_eq!(logged(&stage, "loud"), three("loud"));
    let outcome = stage.call("progress", json!({ "steps": 3, "ms": 1 }));
    assert_eq!(outcome.events.len(), 3, "{:?}", outcome.events);
}

#[test]
fn messages_over_http_belong_to_the_call_on_whose_stream_they_come() {
    for traits in [&["more"][..], &["more", "modern"]] {
        let listening = Listening::new(traits);
        let stage = Stage::new(json!({ "s": listening.config() }));
        assert_eq!(logged(&stage, "info"), three("info"), "{traits:?}");
    }
}

#[test]
fn a_message_outside_of_calls_is_a_notice() {
    let stage = Stage::new(json!({ "s": server(&["talks"]) }));
    // The list that a session begins with is there before anybody watches.
    stage.text("change", json!({}));
    let text = "MCP server `s`: disk: nearly full";
    let notice = json!({ "event": "notice", "level": "warn", "text": text });
    assert!(stage.watched(|said| said.events.contains(&notice)));
}

#[test]
fn a_call_of_the_newer_era_asks_for_the_level_that_is_configured_or_info() {
    let level = |more: Value| {
        let modern = with(server(&["modern"]), json!({ "era": "modern" }));
        let stage = Stage::new(json!({ "s": with(modern, more) }));
        let meta = stage.call("meta", json!({})).result().unwrap().structured;
        meta.unwrap()["io.modelcontextprotocol/logLevel"].clone()
    };
    assert_eq!(level(json!({})), "info");
    assert_eq!(level(json!({ "log_level": "debug" })), "debug");
}

#[test]
fn a_server_of_the_older_era_is_told_the_level_when_one_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let config = server(&["--log", path.to_str().unwrap()]);
    let config = with(config, json!({ "log_level": "error" }));
    let _stage = Stage::new(json!({ "s": config }));
    until("it is told", || {
        let log = log(&path);
        let mut told = log
            .iter()
            .filter(|said| said["method"] == "logging/setLevel");
        told.any(|said| said["params"]["level"] == "error")
    });
}
