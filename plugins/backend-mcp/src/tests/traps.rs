//! The traps, each a test with its number. What has to do with eras, ends and HTTP is beside.

use serde_json::{Value, json};

use super::stage::{Stage, log, server, until, with};

#[test]
fn trap05_a_malformed_tool_costs_only_itself() {
    let stage = Stage::new(json!({ "s": server(&["bad-tools"]) }));
    assert!(stage.tool("echo").is_some());
    assert!(stage.tool("odd_annotation").is_some());
    let status = stage.status();
    let quarantined = status["quarantined"].as_array().unwrap();
    let names: Vec<&str> = quarantined
        .iter()
        .filter_map(|q| q["name"].as_str())
        .collect();
    assert_eq!(names.len(), 6, "{names:?}");
    for name in ["`no_schema`", "`null_schema`", "`bool_schema`", "`echo`"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
}

#[test]
fn trap06_a_list_without_an_end_ends() {
    let same = Stage::new(json!({ "s": server(&["same-cursor"]) }));
    assert!(same.tool("echo").is_some());
    let endless = Stage::new(json!({ "s": server(&["endless-cursor"]) }));
    assert_eq!(endless.catalog().tools.len(), 100);
    let empty = Stage::new(json!({ "s": server(&["empty-cursor"]) }));
    assert!(empty.tool("echo").is_some(), "an empty cursor is a cursor");
}

#[test]
fn trap07_odd_answers_end_a_call() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    for kind in [
        "error_null",
        "batch",
        "glued",
        "twice",
        "other_id",
        "string_id",
        "crlf",
    ] {
        let outcome = stage.call("odd", json!({ "kind": kind }));
        assert_eq!(outcome.text(), "odd", "{kind}");
    }
    let refused = stage.call("odd", json!({ "kind": "error_string" }));
    assert!(refused.text().contains("just text"), "{}", refused.text());
    let unreadable = stage.call("odd", json!({ "kind": "no_json" })).text();
    assert!(unreadable.contains("its answer is no JSON"), "{unreadable}");
    let cut = stage.call("odd", json!({ "kind": "half_surrogate" }));
    assert_eq!(cut.text(), "odd\u{fffd}");
    for kind in ["no_object", "result_type"] {
        assert_eq!(stage.failure("odd", json!({ "kind": kind })), "BadAnswer");
    }
    assert_eq!(stage.text("echo", json!({ "text": "still" })), "still");
    assert_eq!(stage.status()["generation"], 1);
}

#[test]
fn trap07_a_call_without_an_answer_times_out_and_the_server_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let quick = with(
        server(&["--log", path.to_str().unwrap()]),
        json!({ "tools": { "hang": { "request_timeout_ms": 200 } } }),
    );
    let stage = Stage::new(json!({ "s": quick }));
    assert_eq!(stage.failure("hang", json!({})), "TimedOut");
    until("the cancellation arrives", || {
        let log = log(&path);
        let hanging = log.iter().find_map(|line| line.get("hanging"));
        let cancelled = log
            .iter()
            .find(|line| line["method"] == "notifications/cancelled");
        hanging.is_some() && hanging == cancelled.map(|line| &line["params"]["requestId"])
    });
    assert_eq!(stage.text("echo", json!({ "text": "still" })), "still");
}

#[test]
fn trap07_progress_extends_the_idle_time_up_to_the_total() {
    let limits = json!({ "request_timeout_ms": 400, "total_timeout_ms": 1_500 });
    let config = with(server(&[]), json!({ "tools": { "progress": limits } }));
    let stage = Stage::new(json!({ "s": config }));
    let steps = |steps: u64| stage.call("progress", json!({ "steps": steps, "ms": 150 }));
    assert_eq!(steps(6).text(), "arrived");
    let endless = steps(40);
    assert!(
        endless.text().contains("was not done within 1.5s"),
        "{}",
        endless.text()
    );
}

#[test]
fn trap08_noise_on_standard_output_is_answered_by_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let stage = Stage::new(json!({ "s": server(&["noise", "--log", path.to_str().unwrap()]) }));
    assert_eq!(stage.text("echo", json!({ "text": "heard" })), "heard");
    let status = stage.status();
    assert!(status["skipped"].as_u64().unwrap() > 5, "{status}");
    assert!(
        status["stderr"].to_string().contains("starting up"),
        "{status}"
    );
    for line in log(&path) {
        assert!(
            line.get("error").is_none() && line.get("garbage").is_none(),
            "{line}"
        );
    }
}

#[test]
fn trap09_an_answer_that_is_too_long_is_an_error_at_once() {
    let stage = Stage::new(json!({
        "s": with(server(&[]), json!({ "max_message_bytes": 100_000 })),
    }));
    let begun = std::time::Instant::now();
    let outcome = stage.call("big", json!({ "bytes": 3_000_000 }));
    assert!(
        outcome.text().contains("longer than 100000 bytes"),
        "{}",
        outcome.text()
    );
    assert!(begun.elapsed() < std::time::Duration::from_millis(1_900));
    let fits = stage.call("big", json!({ "bytes": 90_000 }));
    assert!(!fits.result().unwrap().is_error);
}

#[test]
fn trap09_the_id_of_what_is_too_long_may_come_last() {
    let limited = with(server(&[]), json!({ "max_message_bytes": 100_000 }));
    let stage = Stage::new(json!({ "s": limited }));
    let long = stage.text("big", json!({ "bytes": 300_000, "id_last": true }));
    assert!(long.contains("longer than 100000 bytes"), "{long}");
    assert_eq!(stage.text("echo", json!({ "text": "still" })), "still");
}

#[test]
fn trap12_a_flood_on_standard_error_blocks_nothing() {
    let stage = Stage::new(json!({ "s": server(&["stderr-flood"]) }));
    assert_eq!(stage.text("echo", json!({ "text": "through" })), "through");
}

#[test]
fn trap13_the_environment_is_an_allowlist() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let names = stage.text("environment", json!({}));
    let allowed = |name: &&str| {
        name.starts_with("LC_")
            || [
                "PATH", "HOME", "LOGNAME", "USER", "SHELL", "LANG", "TERM", "TMPDIR", "TZ",
            ]
            .contains(name)
    };
    let more: Vec<&str> = names.split(' ').filter(|name| !allowed(name)).collect();
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(more, [""; 0], "{names}");
}

#[test]
fn trap15_what_is_not_declared_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let off = json!({ "elicitation": false, "roots": false });
    let stage = Stage::new(json!({
        "s": with(server(&["--log", path.to_str().unwrap()]), off),
    }));
    for tool in ["ask", "sample", "roots"] {
        let text = stage.text(tool, json!({}));
        assert!(text.contains("-32601"), "{tool}: {text}");
    }
    let log = log(&path);
    let hello = log
        .iter()
        .find(|line| line["method"] == "initialize")
        .unwrap();
    assert_eq!(hello["params"]["capabilities"], json!({}));
}

#[test]
fn trap17_what_was_listed_stays_when_it_cannot_be_listed_again() {
    let stage = Stage::new(json!({ "s": server(&["once"]) }));
    assert!(stage.tool("echo").is_some());
    assert_eq!(stage.failure("crash", json!({})), "SessionLost");
    until("it is not ready", || stage.status()["state"] == "backoff");
    assert!(stage.tool("echo").is_some());
}

#[test]
fn trap19_unknown_members_of_a_tool_are_kept() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let meta = stage.tool("echo").unwrap().meta.unwrap();
    assert_eq!(meta["mcp"]["vendor"], json!({ "kept": true }));
}

#[test]
fn a_flood_of_notifications_ends_with_the_answer() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    assert_eq!(stage.text("flood", json!({ "times": 20_000 })), "dry again");
}

#[test]
fn a_server_that_never_lists_lets_the_others_live() {
    let stuck = with(server(&["hang-list"]), json!({ "request_timeout_ms": 300 }));
    let stage = Stage::new(json!({ "s": server(&[]), "stuck": stuck }));
    assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
    until("it is told", || {
        let status = stage.status_of("one", "stuck");
        status["list_error"].to_string().contains("TimedOut")
    });
    let call = stage.call_in("one", "stuck", "echo", Value::Null);
    assert!(
        call.text().contains("has no tool `echo`"),
        "{}",
        call.text()
    );
}
