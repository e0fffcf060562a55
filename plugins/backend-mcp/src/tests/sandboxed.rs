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

/// A server that puts a link in the place of its directory when it is started first, and tries to write
/// where that leads whenever it is started.
const EXCHANGES: &str = r#"
if [ ! -e "$OUTER/old" ]; then mv "$OUTER/job" "$OUTER/old"; ln -s "$KEYS" "$OUTER/job"; fi
echo x >"$KEYS/made"
echo x >>"$OUTER/starts"
exec "$0"
"#;

#[test]
fn a_server_that_is_started_again_gets_nothing_by_a_link_in_the_place_of_its_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    let (outer, keys) = (root.join("outer"), root.join("keys"));
    for dir in [&outer.join("job"), &keys] {
        std::fs::create_dir_all(dir).unwrap();
    }
    let stage = Stage::new(json!({ "s": {
        "command": "/bin/sh",
        "args": ["-c", EXCHANGES, mock()],
        "cwd": outer.join("job"),
        "env": { "OUTER": outer, "KEYS": keys },
        "era": "legacy",
        "sandbox": { "write": [outer] },
    } }));
    let lost = stage.call("crash", json!({}));
    assert!(lost.text().contains("out of cheese"), "{}", lost.text());
    until("it is back", || stage.status()["generation"] == 2);
    assert_eq!(stage.text("echo", json!({ "text": "back" })), "back");
    let starts = std::fs::read_to_string(outer.join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 2);
    assert!(outer.join("job").is_symlink());
    assert!(!keys.join("made").exists());
}

#[test]
fn a_server_in_a_sandbox_leases_no_file() {
    // Whoever opens the file waits for who has a lease: `F_SETLEASE` and `F_WRLCK`.
    let lease = "import fcntl; open(\"f\", \"w\").close(); fcntl.fcntl(open(\"f\"), 1024, 1)";
    let script =
        format!("python3 -c '{lease}' 2>said; grep -o 'not permitted' said >lease; exec \"$0\"");
    let stage = Stage::new(json!({ "s": {
        "command": "/bin/sh",
        "args": ["-c", script, mock()],
        "era": "legacy",
        "sandbox": "working-dir",
    } }));
    let said = std::fs::read_to_string(stage.dir.path().join("lease")).unwrap();
    assert_eq!(said.trim(), "not permitted");
}
