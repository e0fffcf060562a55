//! `conjure policy check --call` for commands of a shell: what a pattern allows, denies and asks about.

use conjure_kit::Model;
use conjure_mock_llm::Message;

use crate::session::{asks, done, ok, stage};
use crate::stage::{LOCAL, workspace};

/// What a call of the local shell would get under these rules.
fn decided(workspace: &conjure_kit::Workspace, rules: &[&str], command: &str) -> String {
    let arguments = serde_json::json!({ "command": command, "description": "d" }).to_string();
    let args = ["policy", "check", "--executor", "local", "--call"];
    let args = [&args, &["local_bash_tool", &arguments][..], rules].concat();
    let output = conjure_kit::cli(args).workspace(workspace).run().unwrap();
    let said = output.stdout.split(' ').next().unwrap_or_default().trim();
    assert!(!said.is_empty(), "{output:?}");
    said.to_owned()
}

#[test]
fn a_command_is_judged_by_what_a_shell_would_run_of_it() {
    let workspace = workspace(&[LOCAL]);
    for (rules, command, expected) in [
        (
            ["--allow", "local_bash_tool(git *)"],
            "git -c alias.x='!reboot' x",
            "ask",
        ),
        (
            ["--allow", "local_bash_tool(git status *)"],
            "git status -s",
            "allow",
        ),
        (
            ["--allow", "local_bash_tool(git status *)"],
            "git status -s; reboot",
            "ask",
        ),
        (
            ["--allow", "local_bash_tool(cat docs/*)"],
            "cat docs/a.md",
            "allow",
        ),
        (
            ["--allow", "local_bash_tool(cat docs/*)"],
            "cat docs/../../../etc/shadow",
            "ask",
        ),
        (
            ["--allow", "local_bash_tool(ls *)"],
            "PATH=/tmp ls a",
            "ask",
        ),
        (["--allow", "local_bash_tool(ls *)"], "ls a > b", "ask"),
        (["--deny", "local_bash_tool(*rm *)"], "r\"m\" -rf x", "deny"),
        (
            ["--deny", "local_bash_tool(rm *)"],
            "ls | xargs rm x",
            "deny",
        ),
    ] {
        assert_eq!(
            decided(&workspace, &rules, command),
            expected,
            "{rules:?}: {command}"
        );
    }
    let both = [
        "--allow",
        "local_bash_tool",
        "--deny",
        "local_bash_tool(rm *)",
    ];
    assert_eq!(decided(&workspace, &both, "ls"), "allow");
    assert_eq!(decided(&workspace, &both, "$x -rf /"), "ask");
    for (deny, command, expected) in [
        ("*(*/etc/shadow*)", "cat /etc/shado?", "ask"),
        ("*(*/etc/shadow*)", "x=shadow; cat /etc/$x", "ask"),
        (
            "*(*/etc/shadow*)",
            "for f in shadow; do cat /etc/$f; done",
            "ask",
        ),
        ("*(*/etc/shadow*)", "cd /etc && cat shadow", "ask"),
        ("*(*/etc/shadow*)", "wc -l *.md", "allow"),
        ("*(systemctl stop *)", "systemctl $(echo stop) db", "ask"),
        ("*(systemctl stop *)", "systemctl sto? db", "ask"),
        ("*(systemctl stop *)", "systemctl status db", "allow"),
    ] {
        let both = ["--allow", "local_bash_tool", "--deny", deny];
        assert_eq!(
            decided(&workspace, &both, command),
            expected,
            "{deny}: {command}"
        );
    }
}

#[test]
fn a_pattern_that_cannot_keep_what_it_suggests_is_told_when_it_is_read() {
    let workspace = workspace(&[LOCAL]);
    let check = |pattern: &str| {
        let args = ["policy", "check", "--executor", "local", "--allow", pattern];
        conjure_kit::cli(args).workspace(&workspace).run().unwrap()
    };
    let weak = check("local_bash_tool(git *)");
    assert!(weak.stderr.contains("note: "), "{weak:?}");
    assert!(weak.stderr.contains("git *"), "{weak:?}");
    let good = check("local_bash_tool(git status *)");
    assert!(!good.stderr.contains("note: "), "{good:?}");
}

#[test]
fn such_a_pattern_is_told_by_the_verbs_of_saved_sessions_too() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let weak = "local_bash_tool(git *)";
    let policy = format!("[policy]\nallow = [\"{weak}\"]\n");
    workspace.write("weak.toml", policy).unwrap();
    let create = "session create work --auth claude --model claude-sonnet-4-5 --tools weak.toml";
    model.says(Message::new().text("Done."));
    for told in [
        done(&workspace, create),
        done(&workspace, "session set work --tools weak.toml"),
        ok(asks(
            &workspace,
            &["--session", "work", "--allow", weak],
            "Go",
        )),
    ] {
        assert!(told.stderr.contains("note: the rule"), "{told:?}");
        assert!(told.stderr.contains("git status *"), "{told:?}");
    }
    // What is not about rules says nothing of them.
    let renamed = done(&workspace, "session set work --name other");
    assert!(!renamed.stderr.contains("note: "), "{renamed:?}");
}
