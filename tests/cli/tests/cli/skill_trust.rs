//! `conjure skill trust`: which content of a project is trusted.

use conjure_kit::Workspace;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::stage::{LOCAL, conjure, json, workspace};

/// A file of the project's skill that changes.
const SCRIPT: &str = ".agents/skills/one/scripts/run.sh";

/// A project with one skill.
fn project() -> Workspace {
    let workspace = workspace(&[LOCAL]);
    workspace
        .write_skill(".agents/skills/one", "one", "The first.", "Body")
        .unwrap();
    workspace.write(SCRIPT, "echo one").unwrap();
    workspace
}

/// The project, as `conjure skill list` shows it to programs.
fn listed(workspace: &Workspace) -> Value {
    let list = conjure(workspace, "skill list --json").run().unwrap();
    json(&list)["project"].take()
}

fn digest(workspace: &Workspace) -> String {
    listed(workspace)["digest"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_trusted_is_what_was_shown_when_it_changes_before_the_answer() {
    let workspace = project();
    let shown = digest(&workspace);
    let trust = conjure(&workspace, "skill trust").on_terminal();
    let mut trust = trust.start().unwrap();
    let question = trust.wait_for_stdout("[y]es, [n]o").unwrap();
    assert!(question.contains(".agents/skills/one"), "{question}");
    assert!(question.contains(&shown), "{question}");
    workspace.write(SCRIPT, "echo other").unwrap();
    trust.send_line("y").unwrap();
    let output = trust.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    // What is there now is not what was shown, and is not used.
    assert_ne!(digest(&workspace), shown);
    assert_eq!(listed(&workspace)["trust"], "changed");
    workspace.write(SCRIPT, "echo one").unwrap();
    let expected = json!({ "path": workspace.work(), "digest": shown, "trust": "trusted" });
    assert_eq!(listed(&workspace), expected);
}

#[test]
fn a_person_who_says_no_trusts_nothing() {
    let workspace = project();
    let trust = conjure(&workspace, "skill trust").on_terminal();
    let mut trust = trust.start().unwrap();
    trust.wait_for_stdout("[y]es, [n]o").unwrap();
    trust.send_line("n").unwrap();
    let output = trust.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    assert_eq!(listed(&workspace)["trust"], "unknown");
    // Nobody is asked who says that it is meant.
    let trust = conjure(&workspace, "skill trust --yes").on_terminal();
    assert_eq!(trust.run().unwrap().code, Some(0));
    assert_eq!(listed(&workspace)["trust"], "trusted");
}

#[test]
fn a_script_says_which_content_it_trusts() {
    let workspace = project();
    let shown = digest(&workspace);
    let trust = |digest: &str| {
        let trust = format!("skill trust --json --digest {digest}");
        conjure(&workspace, &trust).run().unwrap()
    };
    let output = trust(&shown);
    assert_eq!(output.code, Some(0), "{output:?}");
    let done = json(&output);
    assert_eq!(done["digest"], shown);
    assert_eq!(done["project"], json!(workspace.work()));
    assert_eq!(done["skills"].as_array().unwrap().len(), 1);
    conjure(&workspace, "skill untrust").run().unwrap();
    workspace.write(SCRIPT, "echo other").unwrap();
    let output = trust(&shown);
    assert_eq!(output.code, Some(1), "{output:?}");
    let now = digest(&workspace);
    assert!(output.stderr.contains(&now), "{output:?}");
    assert_eq!(listed(&workspace)["trust"], "unknown");
    for wrong in [&shown[7..], &shown[..shown.len() - 1]] {
        assert_eq!(trust(wrong).code, Some(2), "{wrong}");
    }
}

#[test]
fn the_digest_of_another_content_is_refused() {
    let workspace = project();
    let other = format!("skill trust --digest sha256:{}", "0".repeat(64));
    assert_snapshot!(conjure(&workspace, &other).run().unwrap().snapshot(), @"
    exit code 1
    --- stdout
    --- stderr
    error: nothing was trusted: the skills of `[WORKSPACE]/work` are not those of `sha256:[HASH]`, their digest is `sha256:[HASH]`
    hint: look at what changed; `conjure skill trust` with the new digest trusts it
    ");
    let list = conjure(&workspace, "skill list").run().unwrap();
    assert!(list.stdout.contains(&digest(&workspace)), "{list:?}");
}
