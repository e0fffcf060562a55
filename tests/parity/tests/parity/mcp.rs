//! MCP servers in a session: real processes behind a real plugin, beside the other backends.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use conjure_core::routing::Prefix;
use conjure_host::session::BackendSpec;
use conjure_kit::{Model, Signal, build_bin};
use serde_json::{Value, json};

use crate::processes;
use crate::stage::{LOCAL, Seen, Stage, local, workspace};

/// The package of the MCP backend.
const MCP: &str = "conjure-backend-mcp";

/// A server that is difficult in these ways.
fn server(traits: &[&str]) -> Value {
    let program = build_bin("conjure-mock-mcp", "mock-mcp").unwrap();
    json!({ "command": program, "args": traits, "request_timeout_ms": 3_000 })
}

/// A backend with these servers.
fn mcp(servers: impl Into<Value>) -> BackendSpec {
    BackendSpec {
        kind: "mcp".to_owned(),
        prefix: Prefix::default(),
        config: Some(json!({ "servers": servers.into() })),
        ..BackendSpec::default()
    }
}

#[tokio::test]
async fn a_session_calls_the_tools_of_two_servers_and_of_the_shell() {
    let stage = Stage::new(&[MCP, LOCAL]).await;
    let servers = json!({ "notes": server(&[]), "modern": server(&["modern"]) });
    let session = stage.session([mcp(servers), local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                ("notes_count", json!({})),
                ("modern_echo", json!({ "text": "hello" })),
                ("notes_count", json!({})),
                ("local_bash_tool", crate::stage::bash("echo shell")),
                ("notes_fail", json!({})),
            ],
        )
        .await;
    assert_eq!(seen[0], Seen::ok("1"));
    assert_eq!(seen[1], Seen::ok("hello"));
    assert_eq!(seen[2], Seen::ok("2"), "in order, on one connection");
    assert!(
        !seen[3].is_error && seen[3].text.starts_with("shell"),
        "{:?}",
        seen[3]
    );
    assert!(
        seen[4].is_error
            && seen[4]
                .text
                .starts_with("no\n[The call of `notes_fail` on backend"),
        "{:?}",
        seen[4]
    );
    session.close().await;
}

#[tokio::test]
async fn servers_that_are_broken_cost_only_themselves() {
    let stage = Stage::new(&[MCP]).await;
    let servers = json!({
        "good": server(&[]),
        "noisy": server(&["noise", "bad-tools", "stderr-flood"]),
        "absent": { "command": "no-such-program-at-all" },
        "dying": server(&["no-start"]),
    });
    let session = stage.session([mcp(servers)]).await;
    let calls = [
        ("good_odd", json!({ "kind": "no_object" })),
        ("noisy_echo", json!({ "text": "through" })),
        ("good_crash", json!({})),
        ("noisy_echo", json!({ "text": "again" })),
        ("good_count", json!({})),
    ];
    let seen = stage.calls(&session, &calls).await;
    assert!(
        seen[0].is_error && seen[0].text.starts_with("BadAnswer: "),
        "{:?}",
        seen[0]
    );
    assert_eq!(seen[1], Seen::ok("through"));
    assert!(
        seen[2].is_error && seen[2].text.starts_with("SessionLost: "),
        "{:?}",
        seen[2]
    );
    assert!(seen[2].text.contains("out of cheese"), "{:?}", seen[2]);
    assert_eq!(seen[3], Seen::ok("again"));
    assert_eq!(seen[4], Seen::ok("1"), "it was started again");
    session.close().await;
}

#[tokio::test]
async fn a_server_that_grows_a_tool_offers_it_in_the_next_step() {
    let stage = Stage::new(&[MCP]).await;
    let session = stage.session([mcp(json!({ "s": server(&[]) }))]).await;
    let seen = stage.call(&session, "s_change", json!({})).await;
    assert_eq!(seen, Seen::ok("changed"));
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let seen = stage.call(&session, "s_newcomer", json!({})).await;
        if seen == Seen::ok("hello") {
            break;
        }
        assert!(Instant::now() < until, "{seen:?}");
    }
    let request = stage.model.last_request();
    assert!(request.tool_names().contains(&"s_newcomer"));
    session.close().await;
}

#[tokio::test]
async fn content_of_a_server_becomes_files_of_the_session() {
    let stage = Stage::new(&[MCP]).await;
    let session = stage.session([mcp(json!({ "s": server(&[]) }))]).await;
    let seen = stage.call(&session, "s_content", json!({})).await;
    assert!(!seen.is_error, "{seen:?}");
    for text in [
        "words",
        "[resource mock://e]",
        "audio.wav",
        "a.txt",
        "hologram",
    ] {
        assert!(seen.text.contains(text), "{text} is not in {seen:?}");
    }
    session.close().await;
}

#[test]
fn h15_a_killed_host_leaves_no_server_behind() {
    let workspace = workspace(&[MCP]);
    let program = build_bin("conjure-mock-mcp", "mock-mcp").unwrap();
    let log = workspace.root().join("log");
    // It ends neither with its input nor when it is told to.
    let file = format!(
        "[[backend]]\nkind = \"mcp\"\n[backend.config.servers.s]\ncommand = {program:?}\n\
         args = [\"ignore-eof\", \"ignore-term\", \"--log\", {log:?}]\n"
    );
    workspace.write("session.toml", file).unwrap();
    let model = Model::start().unwrap();
    model.calls("toolu_1", "s_spawn", json!({}));
    model.calls("toolu_2", "s_hang", json!({}));
    let running = conjure_kit::cli([
        "run",
        "--config",
        "session.toml",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--allow",
        "*",
        "Go on.",
    ])
    .workspace(&workspace)
    .model(&model)
    .start()
    .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !noted(&log).iter().any(|line| line.get("hanging").is_some()) {
        assert!(Instant::now() < until, "{:?}", noted(&log));
        std::thread::yield_now();
    }
    let spawned = model.last_request().tool_result_text("toolu_1").unwrap();
    let pids: Vec<u32> = spawned.split(' ').map(|pid| pid.parse().unwrap()).collect();
    running.signal(Signal::KILL);
    let killed = running.wait().unwrap();
    assert_eq!(killed.signal, Some(9));
    processes::gone(&pids);
}

fn noted(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
