//! The era that is spoken, and how it is found out.

use std::time::{Duration, Instant};

use conjure_skill_sdk::protocol::ToolMode;
use serde_json::{Value, json};

use super::stage::{Stage, log, server, with};

fn auto(traits: &[&str]) -> Value {
    with(
        server(traits),
        json!({ "era": "auto", "probe_timeout_ms": 700 }),
    )
}

fn spoken(stage: &Stage) -> (Value, Value) {
    let status = stage.status();
    (status["era"].clone(), status["protocol"].clone())
}

#[test]
fn the_newer_era_is_taken_when_the_server_speaks_it() {
    for traits in [&["modern"], &["dual"]] {
        let stage = Stage::new(json!({ "s": auto(traits) }));
        assert_eq!(spoken(&stage), (json!("modern"), json!("2026-07-28")));
        assert_eq!(stage.tool("echo").unwrap().mode, ToolMode::Stateless);
        let meta = stage
            .call("meta", json!({}))
            .result()
            .unwrap()
            .structured
            .unwrap();
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
    }
}

#[test]
fn a_server_that_answers_with_an_error_gets_the_handshake() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let stage = Stage::new(json!({ "s": auto(&["--log", path.to_str().unwrap()]) }));
    assert_eq!(spoken(&stage), (json!("legacy"), json!("2025-11-25")));
    let starts = log(&path)
        .iter()
        .filter(|line| line.get("start").is_some())
        .count();
    assert_eq!(starts, 1, "over the same connection");
}

#[test]
fn trap01_a_server_that_agrees_to_anything_is_not_taken_for_modern() {
    let stage = Stage::new(json!({ "s": auto(&["echo-version"]) }));
    assert_eq!(spoken(&stage), (json!("legacy"), json!("2025-11-25")));
    assert_eq!(stage.tool("echo").unwrap().mode, ToolMode::Stateful);
}

#[test]
fn trap02_a_server_that_exits_or_says_nothing_when_it_is_asked_is_started_again() {
    for traits in ["exit-on-unknown", "silent"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let args = [traits, "--log", path.to_str().unwrap()];
        let begun = Instant::now();
        let stage = Stage::new(json!({ "s": auto(&args) }));
        assert_eq!(
            spoken(&stage),
            (json!("legacy"), json!("2025-11-25")),
            "{traits}"
        );
        assert!(begun.elapsed() < Duration::from_secs(8), "{traits}");
        // It is asked once a configuration.
        stage.open("two");
        stage.catalog_of("two");
        let asked = log(&path)
            .iter()
            .filter(|line| line["method"] == "server/discover")
            .count();
        assert_eq!(asked, 1, "{traits}");
        assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
    }
}

#[test]
fn trap02_a_modern_server_that_is_slow_to_start_is_still_modern() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let slow = with(
        auto(&["dual", "slow-first", "--log", path.to_str().unwrap()]),
        json!({ "probe_timeout_ms": 100 }),
    );
    let stage = Stage::new(json!({ "s": slow }));
    assert_eq!(spoken(&stage), (json!("modern"), json!("2026-07-28")));
}

#[test]
fn trap14_a_change_before_the_subscription_stands_is_not_lost() {
    let stage = Stage::new(json!({ "s": auto(&["modern", "change-before-ack"]) }));
    super::stage::until("it is listed", || stage.tool("newcomer").is_some());
}

#[test]
fn a_change_is_told_by_the_subscription() {
    let stage = Stage::new(json!({ "s": auto(&["modern"]) }));
    assert!(stage.tool("newcomer").is_none());
    stage.text("change", json!({}));
    super::stage::until("it is listed", || stage.tool("newcomer").is_some());
    let event = json!({ "event": "catalog_changed", "sessions": ["one"] });
    assert!(stage.watched(|seen| seen.events.contains(&event)));
}

#[test]
fn a_handshake_that_never_ends_is_given_up() {
    let config = with(
        server(&["no-initialize"]),
        json!({ "initialize_timeout_ms": 300 }),
    );
    let stage = Stage::new(json!({ "s": config }));
    super::stage::until("it is given up", || {
        let why = stage.status()["why"].to_string();
        why.contains("did not finish the handshake within 300ms")
    });
}
