//! Clients of both official SDKs, and the Inspector, against `conjure mcp serve`.
//!
//! Each client lists, calls, hears progress, cancels a call, and is connected while a skill is
//! added; the scripts in `clients/` say what came of it as JSON.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::peers::{Peers, finished, script, succeeded};
use crate::serving::Served;

/// How long a client may take; it takes a second or two.
const LIMIT: Duration = Duration::from_secs(60);

/// SDK of the client that speaks.
#[derive(Clone, Copy)]
enum Sdk {
    TypeScript1,
    TypeScript2,
    Python1,
    Python2,
}

/// What every client has to say.
fn expected(version: &str) -> Value {
    json!({
        "version": version,
        "listed": true,
        "text": "This is a simple text response for testing.",
        "failed": true,
        "progress": [0.0, 50.0, 100.0],
        "cancelled": "no answer",
        "cancellations": "1",
        "added": true,
        "stored": "stored",
    })
}

fn works(sdk: Sdk, era: &str) {
    let Some(peers) = Peers::find() else { return };
    let version = match era {
        "modern" => "2026-07-28",
        _ => "2025-11-25",
    };
    let over_stdio = Served::fixture();
    let said = says(
        &peers,
        sdk,
        &over_stdio,
        &json!({ "era": era, "stdio": over_stdio.command(), "addition": over_stdio.addition() }),
    );
    assert_eq!(said, expected(version), "over stdio");

    let over_http = Served::fixture().over_http();
    let addition = over_http.served().addition();
    let given = json!({ "era": era, "url": over_http.url(), "addition": addition });
    let said = says(&peers, sdk, over_http.served(), &given);
    assert_eq!(said, expected(version), "over HTTP");
}

/// What a client says that is given this.
fn says(peers: &Peers, sdk: Sdk, served: &Served, given: &Value) -> Value {
    let mut command = client(peers, sdk, served);
    command.arg(given.to_string());
    let said = succeeded(command, LIMIT);
    let said: Value = serde_json::from_str(said.trim()).unwrap_or_else(|error| {
        panic!("{error}: {said}");
    });
    whole(said)
}

/// Numbers as one kind: a client in JavaScript says 50 where one in Python says 50.0.
fn whole(mut said: Value) -> Value {
    for number in said["progress"].as_array_mut().into_iter().flatten() {
        *number = json!(number.as_f64());
    }
    said
}

fn client(peers: &Peers, sdk: Sdk, served: &Served) -> Command {
    let (program, name): (PathBuf, _) = match sdk {
        Sdk::TypeScript1 => (peers.node(), "typescript-1.mjs"),
        Sdk::TypeScript2 => (peers.node(), "typescript-2.mjs"),
        Sdk::Python1 => (peers.python_1("python"), "python_1.py"),
        Sdk::Python2 => (peers.python("python"), "python_2.py"),
    };
    let mut command = peers.command(&program);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    match sdk {
        Sdk::Python1 | Sdk::Python2 => command.arg(script(name)),
        Sdk::TypeScript1 | Sdk::TypeScript2 => {
            // Node looks for packages beside the script.
            let dir = served.workspace().root().join("client");
            fs::create_dir(&dir).unwrap();
            for file in [name, "check.mjs"] {
                fs::copy(script(file), dir.join(file)).unwrap();
            }
            let packages = peers.js_home().join("node_modules");
            symlink(packages, dir.join("node_modules")).unwrap();
            command.arg(dir.join(name))
        }
    };
    command
}

#[test]
fn the_typescript_sdk_1_works() {
    works(Sdk::TypeScript1, "legacy");
}

#[test]
fn the_typescript_sdk_2_works_in_the_legacy_era() {
    works(Sdk::TypeScript2, "legacy");
}

#[test]
fn the_typescript_sdk_2_works_in_the_modern_era() {
    works(Sdk::TypeScript2, "modern");
}

#[test]
fn the_python_sdk_1_works() {
    works(Sdk::Python1, "legacy");
}

#[test]
fn the_python_sdk_2_works_in_the_legacy_era() {
    works(Sdk::Python2, "legacy");
}

#[test]
fn the_python_sdk_2_works_in_the_modern_era() {
    works(Sdk::Python2, "modern");
}

/// What the Inspector prints when it is asked this of the served fixtures.
fn inspected(peers: &Peers, served: &Served, arguments: &[&str]) -> Value {
    let serving = served.command();
    let mut inspector = peers.command(&peers.js("mcp-inspector"));
    inspector
        .args(["--cli", "-q"])
        .arg(serving["command"].as_str().unwrap());
    let server = serving["args"].as_array().unwrap().iter();
    inspector.args(server.map(|argument| argument.as_str().unwrap()));
    inspector.args(arguments).args(["--format", "json"]);
    let shown = format!("{inspector:?}");
    let output = finished(inspector, LIMIT);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(
        output.status.success(),
        "{shown}: {}\n{stdout}\n{stderr}",
        output.status
    );
    let said: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{shown}: {error}: {stdout}"));
    said["result"].clone()
}

#[test]
fn the_inspector_lists_strictly_and_calls_in_both_eras() {
    let Some(peers) = Peers::find() else { return };
    let served = Served::fixture();
    for era in ["legacy", "modern"] {
        let ask = |arguments: &[&str]| {
            let era = ["--protocol-era", era];
            inspected(&peers, &served, &[&era[..], arguments].concat())
        };
        // Strict: it fails where a schema is one that some client cannot take.
        let list = ask(&["--method", "tools/list", "--strict"]);
        let tools = list["tools"].as_array().unwrap();
        let named = |name: &str| tools.iter().any(|tool| tool["name"] == name);
        assert!(
            named("test_simple_text") && named("json_schema_2020_12_tool"),
            "{list}"
        );
        let call = ["--method", "tools/call", "--tool-name", "test_simple_text"];
        let called = ask(&call);
        let text = &called["content"][0]["text"];
        assert_eq!(
            text, "This is a simple text response for testing.",
            "{called}"
        );
    }
}
