//! Sessions in one call, without a host of one's own: the plugins are those of the usual places.
//!
//! The usual places come from the environment, so each case runs in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use conjure_host::session::{BackendSpec, PolicySpec, Session, SessionSpec};
use conjure_kit::Workspace;
use serde_json::json;

use crate::stage::{CACHE, LOCAL};

/// Where the child's workspace is.
const ROOT: &str = "CONJURE_TEST_ROOT";

#[test]
fn every_kind_of_session_is_one_call() {
    let workspace = Workspace::new().unwrap();
    for plugin in [CACHE, LOCAL] {
        workspace.add_plugin(plugin).unwrap();
    }
    workspace
        .write_skill("skills/one", "one", "Does one thing", "")
        .unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_call::in_the_usual_places", "--ignored"])
        .arg("--nocapture")
        .env(ROOT, workspace.work())
        .env("CONJURE_PLUGIN_PATH", workspace.plugins())
        .env("CONJURE_DATA_DIR", workspace.root().join("data"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("1 passed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in a child of the other test"]
async fn in_the_usual_places() {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else {
        return;
    };
    let skill = root.join("skills/one").display().to_string();

    let native = Session::native(
        ["cache-manager"],
        plays(&root, "cache-manager_execute", "set a b"),
    );
    assert_eq!(answer(native.await.unwrap()).await, "stored");
    let local = Session::local([skill.clone()], plays(&root, "one_bash_tool", "echo hello"));
    assert!(answer(local.await.unwrap()).await.contains("hello"));
    let backends = [
        BackendSpec::native(["cache-manager"]),
        BackendSpec::local([skill.clone()]),
    ];
    let hybrid = Session::hybrid(backends, plays(&root, "one_bash_tool", "echo both"));
    assert!(answer(hybrid.await.unwrap()).await.contains("both"));

    let docker = Session::docker([skill], plays(&root, "x", "")).await;
    let error = docker.err().unwrap().to_string();
    assert!(error.contains("docker"), "{error}");
    let anthropic = Session::anthropic(["xlsx"], plays(&root, "x", "")).await;
    let error = anthropic.err().unwrap().to_string();
    assert!(error.contains("anthropic"), "{error}");
}

/// A session whose model calls one tool and says what came of it.
fn plays(root: &Path, tool: &str, command: &str) -> SessionSpec {
    let script = json!({ "steps": [
        { "calls": [{
            "as": "it", "tool": tool,
            "arguments": { "command": command, "description": "It is a test" },
        }] },
        { "text": "{{it.text}}" },
    ] });
    let path = root.join(format!("{tool}.json"));
    std::fs::write(&path, script.to_string()).unwrap();
    SessionSpec {
        provider: Some("scripted".into()),
        script: Some(path),
        policy: PolicySpec {
            allow: vec!["*".parse().unwrap()],
            ..PolicySpec::default()
        },
        ..SessionSpec::default()
    }
}

async fn answer(session: Session) -> String {
    let answer = session.chat("Go").await.unwrap();
    session.close().await;
    answer.text
}
