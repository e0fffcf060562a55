//! Programs in a sandbox, which is the one of a session's commands.

use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use super::stage::{Stage, mock, until};

/// What a server does before it serves, each followed by whether it could.
const TRIES: &str = r#"
try() { if eval "$2" 2>/dev/null; then echo "$1 yes"; else echo "$1 no"; fi >>tries; }
try here 'echo x >made'
try temporary 'echo x >"$(mktemp)"'
try elsewhere "echo x >$ELSEWHERE/made"
try network "bash -c ': </dev/tcp/127.0.0.1/$PORT'"
exec "$0"
"#;

/// What the server could do with this setting.
fn tried(sandbox: &Value, elsewhere: &Path) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let stage = Stage::new(json!({ "s": {
        "command": "/bin/sh",
        "args": ["-c", TRIES, mock()],
        "env": { "ELSEWHERE": elsewhere, "PORT": port.to_string() },
        "era": "legacy",
        "sandbox": sandbox,
    } }));
    assert_eq!(stage.text("echo", json!({ "text": "served" })), "served");
    let tries = std::fs::read_to_string(stage.dir.path().join("tries")).unwrap();
    tries.lines().map(str::to_owned).collect()
}

#[test]
fn a_server_in_a_sandbox_writes_where_it_works_and_has_no_network() {
    let scratch = tempfile::tempdir().unwrap();
    let elsewhere = scratch.path().canonicalize().unwrap();
    let open = ["here yes", "temporary yes", "elsewhere yes", "network yes"];
    let shut = ["here yes", "temporary yes", "elsewhere no", "network no"];
    for (sandbox, expected) in [
        (json!("none"), open),
        (json!("working-dir"), shut),
        (json!({}), shut),
        (json!({ "network": true, "write": [elsewhere] }), open),
    ] {
        assert_eq!(tried(&sandbox, &elsewhere), expected, "{sandbox}");
    }
}

#[test]
fn its_temporary_files_are_gone_when_it_is() {
    let stage = Stage::new(json!({ "s": {
        "command": "/bin/sh",
        "args": ["-c", "echo \"$TMPDIR\" >where; exec \"$0\"", mock()],
        "era": "legacy",
        "sandbox": "working-dir",
    } }));
    let place = std::fs::read_to_string(stage.dir.path().join("where")).unwrap();
    let place = Path::new(place.trim());
    assert!(place.is_dir() && place != std::env::temp_dir());
    stage.close("one");
    drop(stage);
    until("its directory is removed", || !place.exists());
}

#[test]
fn a_sandbox_that_cannot_be_is_told() {
    for (server, expected) in [
        (
            json!({ "command": "true", "sandbox": { "write": ["here"] } }),
            "must be an absolute path",
        ),
        (
            json!({ "command": "true", "sandbox": { "write": ["/no/such/place"] } }),
            "make it, or leave it out",
        ),
        (
            json!({ "command": "true", "sandbox": "working-dir", "confine": false }),
            "leave one out",
        ),
        (
            json!({ "url": "http://127.0.0.1:1/mcp", "sandbox": "working-dir" }),
            "for servers with a `command`",
        ),
    ] {
        let stage = Stage::new(json!({ "s": server }));
        let status = stage.status_of("one", "s").to_string();
        assert!(status.contains(expected), "{server}: {status}");
    }
}
