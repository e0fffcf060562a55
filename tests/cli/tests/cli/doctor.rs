//! `conjure doctor`: what works, what does not, and what to do.

use conjure_kit::{Output, Workspace};
use serde_json::Value;

use crate::stage::{LOCAL, conjure, json, workspace};

fn run(workspace: &Workspace, args: &str) -> Output {
    conjure(workspace, args).run().unwrap()
}

/// What was found about a thing.
fn about<'a>(findings: &'a Value, area: &str, subject: &str) -> &'a Value {
    let all = findings["findings"].as_array().unwrap();
    let meant = |finding: &&Value| {
        finding["area"] == area && finding["subject"].as_str().unwrap().contains(subject)
    };
    all.iter()
        .find(meant)
        .unwrap_or_else(|| panic!("{subject}: {findings:#}"))
}

#[test]
fn what_does_not_work_is_named_with_what_to_do() {
    let workspace = workspace(&[LOCAL]);
    std::fs::write(workspace.plugins().join("libbroken.so"), "no library").unwrap();
    for name in ["key", "lost"] {
        let add = conjure(
            &workspace,
            &format!("auth create {name} --provider anthropic"),
        );
        assert_eq!(add.stdin("sk-test").run().unwrap().code, Some(0));
    }
    let gone = workspace.work().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let create = |rest: &str| {
        let made = run(
            &workspace,
            &format!("session create {rest} --auth key --model m"),
        );
        assert_eq!(made.code, Some(0), "{made:?}");
    };
    create("fine");
    create("homeless --working-dir gone");
    workspace
        .write("tools.toml", "[[backend]]\nkind = \"docker\"\n")
        .unwrap();
    create("containers --tools tools.toml");
    std::fs::remove_dir(&gone).unwrap();
    let healthy = json(&run(&workspace, "doctor --json"));
    assert_eq!(healthy["ok"], false);
    let state = |area: &str, subject: &str| about(&healthy, area, subject)["state"].clone();
    assert_eq!(state("database", "check"), "well");
    assert_eq!(state("auth", "anthropic/api_key/key"), "well");
    assert_eq!(state("plugin", "local"), "well");
    assert_eq!(state("session", "fine"), "well");
    let broken = about(&healthy, "plugin", "libbroken.so");
    assert_eq!(broken["state"], "ill");
    assert!(broken["remedy"].as_str().unwrap().contains("plugin check"));
    let homeless = about(&healthy, "session", "homeless");
    assert!(
        homeless["found"].as_str().unwrap().contains("gone"),
        "{homeless}"
    );
    assert_eq!(
        homeless["remedy"],
        "conjure session set homeless --working-dir DIR"
    );
    let containers = about(&healthy, "session", "containers");
    assert!(
        containers["found"]
            .as_str()
            .unwrap()
            .contains("no plugin `docker`")
    );
    let key = workspace.home().join(".local/share/conjure/vault.key");
    std::fs::remove_file(key).unwrap();
    let other = json(&run(&workspace, "doctor --json"));
    let lost = about(&other, "auth", "anthropic/api_key/lost");
    assert_eq!(lost["state"], "ill");
    assert!(
        lost["found"]
            .as_str()
            .unwrap()
            .contains("save the credential again"),
        "{lost}"
    );
    let told = run(&workspace, "doctor");
    assert_eq!(told.code, Some(1));
    assert!(told.stdout.contains("✗ homeless"), "{}", told.stdout);
    assert!(!told.stdout.contains("sk-test"));
}

#[test]
fn where_everything_works_it_says_so() {
    let workspace = workspace(&[LOCAL]);
    let output = run(&workspace, "doctor");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("✓ local"), "{}", output.stdout);
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_kernel_has_to_confine_is_said() {
    let findings = json(&run(&workspace(&[]), "doctor --json"));
    let worker = about(&findings, "worker", "confinement");
    assert!(
        worker["found"].as_str().unwrap().contains("Landlock"),
        "{worker}"
    );
    let namespaces = about(&findings, "sandbox", "user namespaces");
    let is_well = namespaces["state"] == "well";
    assert_eq!(is_well, namespaces["remedy"].is_null(), "{namespaces}");
}

#[test]
fn mcp_servers_of_sessions_are_started_once() {
    let workspace = workspace(&["conjure-backend-mcp"]);
    let add = conjure(&workspace, "auth create key --provider anthropic");
    assert_eq!(add.stdin("sk-test").run().unwrap().code, Some(0));
    let server = conjure_kit::build_bin("conjure-mock-mcp", "mock-mcp").unwrap();
    let mcps = serde_json::json!({
        "well": { "command": server },
        "broken": { "command": "/no/such/program" },
    });
    let args = [
        "session",
        "create",
        "s",
        "--auth",
        "key",
        "--model",
        "m",
        "--mcps",
        &mcps.to_string(),
    ];
    let made = conjure_kit::cli(args).workspace(&workspace).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    let findings = json(&run(&workspace, "doctor --json"));
    let well = about(&findings, "mcp", "well");
    assert!(
        well["found"].as_str().unwrap().starts_with("ready"),
        "{well}"
    );
    assert_eq!(about(&findings, "mcp", "broken")["state"], "ill");
}
