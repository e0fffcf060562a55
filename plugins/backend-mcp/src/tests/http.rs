//! Streamable HTTP, both eras.

use serde_json::{Value, json};

use super::listening::Listening;
use super::stage::{Stage, failure, log, until, with};

#[test]
fn both_eras_work_with_events_and_without() {
    for (traits, era) in [
        (&[][..], "legacy"),
        (&["json"], "legacy"),
        (&["dual"], "modern"),
        (&["modern", "json"], "modern"),
    ] {
        let server = Listening::new(traits);
        let stage = Stage::new(json!({ "s": server.config() }));
        assert_eq!(stage.status()["era"], era, "{traits:?}");
        assert_eq!(stage.text("echo", json!({ "text": "over" })), "over");
    }
}

#[test]
fn a_session_id_that_was_issued_is_sent_back_and_there_is_none_in_the_newer_era() {
    for (traits, expected) in [(&[][..], true), (&["modern"], false)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let traits = [traits, &["--log", path.to_str().unwrap()]].concat();
        let server = Listening::new(&traits);
        let stage =
            Stage::new(json!({ "s": with(server.config(), json!({ "mode": "stateless" })) }));
        assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
        assert_eq!(stage.status()["session_mode"], "optional");
        let log = log(&path);
        let call = log
            .iter()
            .find(|line| line["message"]["method"] == "tools/call");
        let headers = &call.unwrap()["headers"];
        assert_eq!(
            headers.get("mcp-session-id").is_some(),
            expected,
            "{headers}"
        );
        let named = headers.get("mcp-method").is_some();
        assert_eq!(named, !expected, "{headers}");
    }
}

#[test]
fn trap03_connections_are_kept() {
    let server = Listening::new(&["modern"]);
    let stage = Stage::new(json!({ "s": server.config() }));
    for _ in 0..50 {
        assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
    }
    let connections: u32 = server.ask("GET /connections").parse().unwrap();
    assert!(connections < 15, "{connections} connections");
}

#[test]
fn trap05_a_malformed_tool_costs_only_itself_over_http() {
    let server = Listening::new(&["bad-tools"]);
    let stage = Stage::new(json!({ "s": server.config() }));
    assert!(stage.tool("echo").is_some());
    assert_eq!(stage.status()["quarantined"].as_array().unwrap().len(), 6);
}

#[test]
fn trap07_odd_answers_end_a_call_over_http() {
    let server = Listening::new(&[]);
    let stage = Stage::new(json!({ "s": server.config() }));
    for kind in ["error_null", "batch", "glued"] {
        assert_eq!(stage.text("odd", json!({ "kind": kind })), "odd", "{kind}");
    }
    let refused = stage.text("odd", json!({ "kind": "error_string" }));
    assert!(refused.contains("just text"), "{refused}");
}

#[test]
fn trap18_a_session_that_was_forgotten_is_lost_and_made_again() {
    let server = Listening::new(&[]);
    let stage = Stage::new(json!({ "s": server.config() }));
    assert_eq!(stage.text("count", json!({})), "1");
    server.ask("POST /forget");
    let lost = stage.call("count", json!({}));
    assert_eq!(failure(&lost), "SessionLost");
    assert_eq!(
        stage.text("count", json!({})),
        "2",
        "the same server, a new session"
    );
    assert!(stage.status()["generation"].as_u64() > Some(1));
    // The stream for what belongs to no request is open again.
    stage.text("change", json!({}));
    until("it is listed", || stage.tool("newcomer").is_some());
}

#[test]
fn trap18_a_subscription_that_was_cut_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let server = Listening::new(&["modern", "--log", path.to_str().unwrap()]);
    let stage = Stage::new(json!({ "s": server.config() }));
    let subscribed = |times: usize| {
        let log = log(&path);
        let listening = log
            .iter()
            .filter(|line| line["message"]["method"] == "subscriptions/listen");
        listening.count() == times
    };
    until("it is subscribed", || subscribed(1));
    server.ask("POST /cut");
    until("it is subscribed again", || subscribed(2));
    stage.text("change", json!({}));
    until("it is listed", || stage.tool("newcomer").is_some());
}

#[test]
fn a_server_that_went_away_is_a_lost_connection() {
    let server = Listening::new(&["modern"]);
    let config = with(server.config(), json!({ "request_timeout_ms": 500 }));
    let stage = Stage::new(json!({ "s": config }));
    assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
    drop(server);
    // One that may be repeated waits for the next connection, and there is none.
    assert_eq!(stage.failure("echo", json!({})), "NotReady");
    assert!(stage.tool("echo").is_some());
}

#[test]
fn a_stateful_call_over_http_of_the_newer_era_is_refused_unsent() {
    let server = Listening::new(&["modern"]);
    let stateful = json!({ "tools": { "count": { "mode": "stateful" } } });
    let stage = Stage::new(json!({ "s": with(server.config(), stateful) }));
    assert_eq!(stage.failure("count", json!({})), "ModeMismatch");
    assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
}

#[test]
fn questions_and_progress_come_over_http() {
    let server = Listening::new(&[]);
    let stage = Stage::new(json!({ "s": server.config() }));
    let asked: Value = serde_json::from_str(&stage.text("ask", json!({}))).unwrap();
    assert_eq!(asked["action"], "accept");
    let outcome = stage.call("progress", json!({ "steps": 2, "ms": 20 }));
    assert!(outcome.text() == "arrived" && !outcome.events.is_empty());
}

#[test]
fn a_server_that_wants_a_login_says_so_and_a_secret_gives_it() {
    let server = Listening::new(&["auth"]);
    let stage = Stage::new(json!({ "s": server.config() }));
    until("it is known", || stage.status()["state"] == "needs_auth");
    let bearer = json!({ "secret": "MCP_TOKEN", "prefix": "Bearer " });
    let headers = json!({ "headers": { "Authorization": bearer } });
    let stage = Stage::with(json!({ "s": with(server.config(), headers) }), |host| {
        host.secret("MCP_TOKEN", "t")
    });
    assert_eq!(stage.text("echo", json!({ "text": "in" })), "in");
}

#[test]
fn the_session_is_ended_at_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let server = Listening::new(&["--log", path.to_str().unwrap()]);
    let stage = Stage::new(json!({ "s": server.config() }));
    stage.close("one");
    until("it is deleted", || {
        log(&path).iter().any(|line| line.get("deleted").is_some())
    });
}

#[test]
fn one_request_that_fails_costs_no_other() {
    let server = Listening::new(&[]);
    let stateless = with(server.config(), json!({ "mode": "stateless" }));
    let stage = Stage::new(json!({ "s": stateless }));
    let slow = stage.begin("progress", json!({ "steps": 8, "ms": 100 }));
    until("it runs", || slow.until(|seen| !seen.events.is_empty()));
    assert_eq!(stage.failure("cut", json!({})), "ConnectionLost");
    assert_eq!(slow.wait().text(), "arrived");
    let status = stage.status();
    assert_eq!(
        (&status["state"], &status["generation"]),
        (&json!("ready"), &json!(1))
    );
}

#[test]
fn a_stateful_call_that_fails_alone_loses_no_session() {
    let server = Listening::new(&[]);
    let stage = Stage::new(json!({ "s": server.config() }));
    assert_eq!(stage.text("count", json!({})), "1");
    assert_eq!(stage.failure("cut", json!({})), "ConnectionLost");
    assert_eq!(stage.text("count", json!({})), "2");
}

#[test]
fn trap19_unknown_members_are_kept_over_http() {
    for traits in [&["modern"][..], &["modern", "json"], &["json"], &[]] {
        let server = Listening::new(traits);
        let stage = Stage::new(json!({ "s": server.config() }));
        let meta = stage.tool("echo").unwrap().meta.unwrap();
        assert_eq!(meta["mcp"]["vendor"], json!({ "kept": true }), "{traits:?}");
        let result = stage.call("content", json!({})).result().unwrap();
        let shown = json!(result.content).to_string();
        assert!(shown.contains("hologram"), "{traits:?}: {shown}");
    }
}

#[test]
fn trap07_bodies_that_are_no_stream_are_cleaned_too() {
    let server = Listening::new(&["json"]);
    let stage = Stage::new(json!({ "s": server.config() }));
    for kind in ["error_null", "batch", "glued"] {
        assert_eq!(stage.text("odd", json!({ "kind": kind })), "odd", "{kind}");
    }
    let refused = stage.text("odd", json!({ "kind": "error_string" }));
    assert!(refused.contains("just text"), "{refused}");
}

#[test]
fn trap09_an_answer_over_http_that_is_too_long_is_an_error_at_once() {
    for traits in [&["json"][..], &[]] {
        let server = Listening::new(traits);
        let config = with(server.config(), json!({ "max_message_bytes": 100_000 }));
        let stage = Stage::new(json!({ "s": config }));
        let long = stage.text("big", json!({ "bytes": 3_000_000 }));
        assert!(
            long.contains("longer than 100000 bytes"),
            "{traits:?}: {long}"
        );
        let fits = stage.call("big", json!({ "bytes": 90_000 }));
        assert!(!fits.result().unwrap().is_error, "{traits:?}");
        assert_eq!(stage.status()["generation"], 1, "{traits:?}");
    }
}

#[test]
fn what_is_secret_in_an_address_is_not_told() {
    let url = "http://127.0.0.1:1/mcp?api_key=hunter2-hunter2";
    let stage = Stage::new(json!({ "s": { "url": url } }));
    until("it is tried", || stage.status()["state"] == "backoff");
    let status = stage.status().to_string();
    assert!(
        status.contains("127.0.0.1") || status.contains("onnect"),
        "{status}"
    );
    assert!(!status.contains("hunter2"), "{status}");
}
