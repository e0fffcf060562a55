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

#[test]
fn that_there_are_no_plugins_is_said() {
    let findings = json(&run(&workspace(&[]), "doctor --json"));
    let plugins = about(&findings, "plugin", "all");
    assert_eq!(plugins["state"], "note");
    assert!(plugins["remedy"].as_str().unwrap().contains("plugin list"));
    let database = about(&findings, "database", "check");
    assert_eq!(database["found"], "sound: 0 threads, 0 entries, 0 events");
}

#[test]
fn the_size_of_the_sdk_in_the_program_is_said() {
    let workspace = workspace(&[]);
    let findings = json(&run(&workspace, "doctor --json"));
    let sdk = about(&findings, "sdk", "conjure-skill-sdk");
    assert_eq!(sdk["state"], "well");
    let found = sdk["found"].as_str().unwrap();
    assert!(found.contains(" KB of this program, compressed"), "{sdk}");
    let told = run(&workspace, "doctor");
    assert!(told.stdout.contains("✓ conjure-skill-sdk"), "{told:?}");
}

#[test]
fn a_database_that_is_none_is_a_finding_and_the_rest_is_looked_at() {
    let workspace = workspace(&[LOCAL]);
    std::fs::create_dir_all(workspace.data_dir()).unwrap();
    let garbage = "This is no database, and is long enough to be taken for one. ".repeat(200);
    std::fs::write(workspace.data_dir().join("conjure.db"), garbage).unwrap();
    let output = run(&workspace, "doctor --json");
    assert_eq!(output.code, Some(1), "{output:?}");
    let findings = json(&output);
    assert_eq!(findings["ok"], false);
    let database = about(&findings, "database", "check");
    assert_eq!(database["state"], "ill");
    let found = database["found"].as_str().unwrap();
    assert!(found.contains("not a database"), "{database}");
    let remedy = database["remedy"].as_str().unwrap();
    for verb in ["conjure db check", "conjure db backup"] {
        assert!(remedy.contains(verb), "{database}");
    }
    assert_eq!(about(&findings, "plugin", "local")["state"], "well");
    about(&findings, "worker", "confinement");
    let told = run(&workspace, "doctor");
    assert_eq!(told.code, Some(1));
    assert!(told.stdout.contains("✗ check"), "{}", told.stdout);
    assert!(told.stdout.contains("✓ local"), "{}", told.stdout);

    // What it names works, as far as anything does.
    let check = run(&workspace, "db check");
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.contains("cannot be opened"), "{check:?}");
    let backup = run(&workspace, "db backup copy.db");
    assert_eq!(backup.code, Some(5), "{backup:?}");
    assert!(
        backup.stderr.contains("put a backup in its place"),
        "{backup:?}"
    );
    assert!(!workspace.work().join("copy.db").exists());
}

#[test]
fn a_damaged_database_is_saved_as_far_as_it_can_be_read() {
    let workspace = workspace(&[]);
    workspace
        .write("long", "a long text ".repeat(40_000))
        .unwrap();
    for args in [
        "persona create rivers hello",
        "persona create lakes @long",
        "db backup whole.db",
    ] {
        let made = run(&workspace, args);
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    // The end of the long text is gone.
    let whole = std::fs::read(workspace.work().join("whole.db")).unwrap();
    let path = workspace.data_dir().join("conjure.db");
    for ending in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(path.with_file_name(format!("conjure.db{ending}")));
    }
    std::fs::write(&path, &whole[..whole.len() - 50 * 4096]).unwrap();
    assert_eq!(run(&workspace, "doctor").code, Some(1));
    assert_eq!(run(&workspace, "db check").code, Some(1));
    let backup = run(&workspace, "db backup copy.db");
    assert_eq!(backup.code, Some(1), "{backup:?}");
    assert!(
        backup.stdout.contains("personas: up to 1 rows"),
        "{backup:?}"
    );
    std::fs::rename(workspace.work().join("copy.db"), &path).unwrap();
    let listed = run(&workspace, "persona list");
    assert!(listed.stdout.contains("rivers"), "{listed:?}");
    assert_eq!(run(&workspace, "doctor").code, Some(0));
}

#[test]
fn an_executor_that_is_kept_from_a_directory_that_holds_the_hosts_data_is_noted() {
    let workspace = workspace(&[LOCAL]);
    // The list of trusted plugins is in the usual one.
    for (dir, state) in [("data", "note"), ("../elsewhere", "well")] {
        let output = run(&workspace, &format!("doctor --json --data-dir {dir}"));
        let findings = json(&output);
        let local = about(&findings, "plugin", "local");
        assert_eq!(local["state"], state, "{dir}: {local}");
    }
}

#[test]
fn a_data_directory_that_cannot_be_made_is_a_finding_and_the_rest_is_looked_at() {
    let workspace = workspace(&[LOCAL]);
    // Nobody makes a directory there.
    let dir = "/proc/conjure-data";
    let output = run(&workspace, &format!("doctor --json --data-dir {dir}"));
    assert_eq!(output.code, Some(1), "{output:?}");
    let findings = json(&output);
    let database = about(&findings, "database", "check");
    assert_eq!(database["state"], "ill");
    let remedy = database["remedy"].as_str().unwrap();
    assert!(remedy.contains("--data-dir"), "{database}");
    about(&findings, "plugin", dir);
    about(&findings, "plugin", "local");
    about(&findings, "worker", "confinement");
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
