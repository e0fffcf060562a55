//! What servers ask of the host, in both eras.

use conjure_skill_sdk::abi::code;
use serde_json::{Value, json};

use super::stage::{Stage, log, server, until, with};

fn open(traits: &[&str], era: &str) -> Value {
    with(server(traits), json!({ "era": era, "sampling": true }))
}

fn answers(stage: &Stage) {
    let asked: Value = serde_json::from_str(&stage.text("ask", json!({}))).unwrap();
    let content = json!({ "asked": "[s] Go on?", "note": "none" });
    assert_eq!(asked, json!({ "action": "accept", "content": content }));
    let sampled: Value = serde_json::from_str(&stage.text("sample", json!({}))).unwrap();
    assert_eq!(sampled["content"]["text"], "answer to Who?");
    assert_eq!(sampled["stopReason"], "endTurn");
    let roots: Value = serde_json::from_str(&stage.text("roots", json!({}))).unwrap();
    assert_eq!(roots["roots"][0]["uri"], "file:///work");
}

#[test]
fn questions_are_answered_by_the_host() {
    answers(&Stage::new(json!({ "s": open(&[], "legacy") })));
}

#[test]
fn questions_of_the_newer_era_come_with_the_result() {
    answers(&Stage::new(json!({ "s": open(&["modern"], "modern") })));
}

#[test]
fn a_prompt_of_the_newer_era_may_ask_too() {
    let stage = Stage::new(json!({ "s": open(&["modern"], "modern") }));
    let prompt = stage
        .plugin
        .call("prompt.get", json!({ "name": "p" }))
        .reply;
    assert_eq!(prompt.unwrap()["messages"][0]["role"], "user");
}

#[test]
fn sampling_is_off_unless_it_is_allowed() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let text = stage.text("sample", json!({}));
    assert!(text.contains("-32601"), "{text}");
}

#[test]
fn the_clock_of_a_call_stands_still_while_the_person_thinks() {
    let quick = with(server(&[]), json!({ "request_timeout_ms": 1_000 }));
    let stage = Stage::with(json!({ "s": quick }), |host| {
        host.operation("elicit", |_question| async {
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
            Ok(json!({ "action": "decline" }))
        })
    });
    let text = stage.text("ask", json!({}));
    assert_eq!(text, json!({ "action": "decline" }).to_string());
}

#[test]
fn a_cancelled_call_is_cancelled_at_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let stage = Stage::new(json!({ "s": server(&["--log", path.to_str().unwrap()]) }));
    let call = stage.begin("hang", json!({}));
    until("it hangs", || {
        log(&path).iter().any(|line| line.get("hanging").is_some())
    });
    call.cancel();
    assert_eq!(call.wait().code(), Some(code::CANCELLED));
    until("the server is told", || {
        let log = log(&path);
        log.iter()
            .any(|line| line["method"] == "notifications/cancelled")
    });
    assert_eq!(stage.text("echo", json!({ "text": "still" })), "still");
    assert_eq!(stage.status()["generation"], 1, "the server lives");
}

#[test]
fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let stage = Stage::new(json!({ "s": server(&["--log", path.to_str().unwrap()]) }));
    let call = stage.begin("hang", json!({}));
    until("it hangs", || {
        log(&path).iter().any(|line| line.get("hanging").is_some())
    });
    call.release();
    until("the server is told", || {
        let log = log(&path);
        log.iter()
            .any(|line| line["method"] == "notifications/cancelled")
    });
}
