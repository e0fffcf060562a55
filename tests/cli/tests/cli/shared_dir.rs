//! Two `conjure run` at the same time in one directory: neither claims what the other one made, and
//! neither takes a copy of the host's for a new file.

use std::collections::BTreeMap;

use conjure_kit::{ProgramHandle, Workspace};
use serde_json::{Value, json};

use crate::stage::{self, LOCAL, conjure, workspace};

/// Starts a run whose model makes these calls of the local executor, one after the other.
fn run(workspace: &Workspace, name: &str, commands: &[&str]) -> ProgramHandle {
    let calls = commands.iter().map(|command| {
        let arguments = json!({ "command": command, "description": "" });
        json!({ "calls": [{ "tool": "local_bash_tool", "arguments": arguments }] })
    });
    let steps: Vec<Value> = calls.chain([json!({ "text": "Done." })]).collect();
    let script = format!("{name}.json");
    let text = json!({ "about": "Makes files.", "steps": steps }).to_string();
    workspace.write(&script, &text).unwrap();
    let args = format!("run --json --script {script} --executor local --allow * Go");
    conjure(workspace, &args).start().unwrap()
}

/// The files of a run that is over, with their sources, and the texts of its results.
fn over(workspace: &Workspace, running: ProgramHandle) -> (BTreeMap<String, String>, String) {
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines = stage::json_lines(&output);
    let thread = lines.last().unwrap()["thread"].as_str().unwrap().to_owned();
    let listed = conjure(workspace, &format!("files list {thread} --json"));
    let listed = stage::json(&listed.run().unwrap());
    let files = listed.as_array().unwrap();
    let text = |file: &Value, field: &str| file[field].as_str().unwrap().to_owned();
    let sources: BTreeMap<String, String> = files
        .iter()
        .map(|file| (text(file, "name"), text(file, "source")))
        .collect();
    assert_eq!(
        sources.len(),
        files.len(),
        "each file is listed once: {listed}"
    );
    let results = lines
        .iter()
        .filter(|line| line["type"] == "function_call_output");
    let results: Vec<String> = results.map(|line| text(line, "output")).collect();
    (sources, results.join("\n"))
}

#[test]
fn two_runs_in_one_directory_never_claim_each_others_files() {
    let workspace = workspace(&[LOCAL]);
    let wait = |name: &str| format!("until test -e {name}; do sleep 0.01; done");
    let one = format!(
        "echo > begun; {}; echo > a.txt; {}",
        wait("ready"),
        wait("b.txt")
    );
    let other = format!(
        "{}; echo > ready; {}; echo > b.txt",
        wait("begun"),
        wait("a.txt")
    );
    let first = run(&workspace, "one", &["echo > mine.txt", &one]);
    let second = run(&workspace, "other", &[&other]);
    let (first, told_first) = over(&workspace, first);
    let (second, told_second) = over(&workspace, second);
    let is_right = |files: &BTreeMap<String, String>, name: &str, own: bool| {
        let source = files.get(name).map(String::as_str);
        source == Some("unknown") || source == own.then_some("local")
    };
    for (name, own) in [("a.txt", true), ("b.txt", false), ("ready", false)] {
        assert!(is_right(&first, name, own), "{name}: {first:?}");
        assert!(is_right(&second, name, !own), "{name}: {second:?}");
    }
    assert!(!told_first.contains("b.txt"), "{told_first}");
    assert!(!told_second.contains("a.txt"), "{told_second}");
    assert!(
        first["mine.txt"] == "local" || first["mine.txt"] == "unknown",
        "{first:?}"
    );
    assert!(
        second
            .get("mine.txt")
            .is_none_or(|source| source == "unknown"),
        "{second:?}"
    );
}

#[test]
fn a_copy_that_the_host_brings_is_nobodys_file() {
    let workspace = workspace(&[LOCAL]);
    // What is too long for the model is a file in the data directory, and is brought from there.
    let long = [
        "seq 1 20000",
        "wc -l file-1; until test -e seen; do sleep 0.01; done",
    ];
    let watches = "until ls file-1-* >/dev/null 2>&1; do sleep 0.01; done; sleep 0.1; echo > seen";
    let second = run(&workspace, "other", &[watches]);
    let first = run(&workspace, "one", &long);
    let (first, told_first) = over(&workspace, first);
    let (second, told_second) = over(&workspace, second);
    assert!(told_first.contains("20000 "), "{told_first}");
    for files in [&first, &second] {
        let copy = files.keys().find(|name| name.starts_with("file-1-"));
        assert_eq!(copy, None, "{files:?}");
    }
    assert!(!told_second.contains("file-1-"), "{told_second}");
}
