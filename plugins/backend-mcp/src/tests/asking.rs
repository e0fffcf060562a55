//! What servers ask of the host, in both eras.

use std::sync::{Arc, Mutex};

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

/// What came of a call that asks twice in one round, what the host was asked, and the requests.
fn rounds(elicit: Result<Value, (u32, &'static str)>) -> (Value, Vec<Value>, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let server = open(
        &["modern", "more", "--log", path.to_str().unwrap()],
        "modern",
    );
    let asked = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&asked);
    let stage = Stage::with(json!({ "s": server }), move |host| {
        host.operation("ask", move |questions: Value| {
            to.lock().unwrap().push(questions);
            let who = match &elicit {
                Ok(answer) => answer.clone(),
                Err((code, message)) => {
                    json!({ "answer": "refused", "code": code, "message": message })
                }
            };
            let word = json!({ "answer": "sampled", "model": "m", "text": "spam" });
            async move { Ok(json!({ "answers": { "who": who, "word": word } })) }
        })
    });
    let result = serde_json::from_str(&stage.text("ask_all", json!({}))).unwrap();
    let requests = log(&path).into_iter();
    let requests = requests
        .filter(|line| line["method"] == "tools/call")
        .collect();
    let asked = asked.lock().unwrap().clone();
    (result, asked, requests)
}

#[test]
fn questions_of_one_round_stay_one_round_under_the_servers_keys() {
    let accepted = json!({ "answer": "elicited", "action": "accept", "content": { "a": 1 } });
    let (result, asked, requests) = rounds(Ok(accepted));
    let [questions] = asked.as_slice() else {
        panic!("asked {} times", asked.len())
    };
    let questions = &questions["questions"];
    assert_eq!(questions["who"]["ask"], "elicit");
    assert_eq!(questions["word"]["ask"], "sample");
    assert_eq!(questions["word"]["meta"], json!({ "temperature": 0.5 }));
    assert_eq!(requests.len(), 2);
    assert_eq!(
        result["who"],
        json!({ "action": "accept", "content": { "a": 1 } })
    );
    assert_eq!(
        result["word"]["content"],
        json!({ "type": "text", "text": "spam" })
    );
}

#[test]
fn what_nobody_can_answer_is_left_out_and_no_longer_declared() {
    let (result, asked, requests) = rounds(Err((code::DENIED, "nobody is there")));
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (result.get("who"), result["word"]["model"].as_str()),
        (None, Some("m"))
    );
    let can = |request: &Value| {
        request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
    };
    assert!(can(&requests[0])["elicitation"]["form"].is_object());
    assert_eq!(can(&requests[1])["elicitation"], json!({ "url": {} }));
    assert_eq!(requests[1]["params"]["requestState"], "opaque");
}

#[test]
fn a_round_without_any_answer_fails_with_the_reason() {
    let server = open(&["modern", "more"], "modern");
    let stage = Stage::with(json!({ "s": server }), |host| {
        host.operation("ask", |_: Value| async {
            let refused = json!({ "answer": "refused", "code": 3, "message": "nobody is there" });
            Ok(json!({ "answers": { "who": refused, "word": refused } }))
        })
    });
    let outcome = stage.call("ask_all", json!({}));
    assert!(outcome.result().unwrap().is_error);
    assert!(
        outcome.text().contains("nobody is there"),
        "{}",
        outcome.text()
    );
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
