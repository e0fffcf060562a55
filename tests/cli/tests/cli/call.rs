//! `conjure call`: one call, no model.

use insta::assert_snapshot;
use serde_json::json;

use crate::stage::{CACHE, FETCHER, LOCAL, conjure, json, workspace};

#[test]
fn a_native_skill_is_called() {
    let workspace = workspace(&[CACHE]);
    let args = "call cache-manager_execute --args {\"command\":\"list\"}";
    assert_snapshot!(conjure(&workspace, args).run().unwrap().snapshot(), @"");
}

#[test]
fn a_command_tool_needs_an_executor() {
    let workspace = workspace(&[LOCAL]);
    let call = "call local_bash_tool --args {\"command\":\"pwd\",\"description\":\"\"}";
    assert_snapshot!(conjure(&workspace, call).run().unwrap().snapshot(), @"");
    let named = format!("{call} --executor local");
    assert_snapshot!(conjure(&workspace, &named).run().unwrap().snapshot(), @"");
    let other = format!("{call} --executor docker");
    assert_snapshot!(conjure(&workspace, &other).run().unwrap().snapshot(), @"");
}

#[test]
fn a_tool_of_a_skill_folder_is_called() {
    let workspace = workspace(&[LOCAL]);
    workspace.write_skill("s", "s", "A skill.", "Body").unwrap();
    workspace.write("s/scripts/x.sh", "echo ran\n").unwrap();
    let args = "call s_bash_tool --executor local --skill s --args \
                {\"command\":\"sh${IFS}scripts/x.sh\",\"description\":\"\"}";
    // A blank would be a new argument here; the shell makes one of the variable.
    let output = conjure(&workspace, args).run().unwrap();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "ran\n"),
        "{output:?}"
    );
}

#[test]
fn a_failing_call_is_exit_code_1_with_its_output() {
    let workspace = workspace(&[LOCAL]);
    let command = json!({ "command": "echo out; echo err >&2; exit 3", "description": "" });
    let args = [
        "call",
        "local_bash_tool",
        "--executor",
        "local",
        "--args",
        &command.to_string(),
    ];
    let output = conjure_kit::cli(args).workspace(&workspace).run().unwrap();
    assert_snapshot!(output.snapshot(), @"");
}

#[test]
fn programs_get_json() {
    let workspace = workspace(&[CACHE, FETCHER]);
    workspace
        .write("app.log", "2026-01-02T03:04:05Z ERROR it broke\n")
        .unwrap();
    let args = [
        "call",
        "log-fetcher_execute",
        "--json",
        "--args",
        "{\"command\":\"fetch app.log\"}",
    ];
    let output = conjure_kit::cli(args).workspace(&workspace).run().unwrap();
    let mut printed = json(&output);
    let file = &printed["files"][0];
    assert_eq!(file["source"], "native");
    assert!(
        file["sha256"].is_string() && file["size"].is_number(),
        "{file}"
    );
    printed["files"] = json!("…");
    printed["output"] = json!("…");
    printed["duration_ms"] = json!("…");
    let text = serde_json::to_string_pretty(&printed).unwrap();
    let redact = conjure_kit::Redactor::for_workspace(&workspace);
    assert_snapshot!(redact.apply(&text), @"");
}

#[test]
fn wrong_usage_is_told() {
    let workspace = workspace(&[CACHE]);
    let mut story = String::new();
    for args in [
        "call",
        "call nobody_knows",
        "call cache-manager_execute --args {",
        "call cache-manager_execute --args []",
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        story.push_str(&format!("$ conjure {args}\n{}", output.snapshot()));
    }
    assert_snapshot!(story, @"");
}
