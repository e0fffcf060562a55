//! `conjure files`: what a thread made, listed and saved, wherever it is.

use std::fs;

use conjure_kit::Model;
use conjure_mock_llm::{Hosted, Message, MockLlm, Script, StoredFile, Wire};
use insta::assert_snapshot;
use serde_json::json;

use crate::stage::{self, LOCAL, conjure, workspace};

/// A reply in which a hosted skill made a file.
fn made() -> Message {
    Message::new()
        .server_tool_use(
            "srvtoolu_1",
            "bash_code_execution",
            json!({ "command": "make" }),
        )
        .raw_on(
            Wire::Anthropic,
            json!({
                "type": "bash_code_execution_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {
                    "type": "bash_code_execution_result",
                    "stdout": "", "stderr": "", "return_code": 0,
                    "content": [{ "type": "bash_code_execution_output", "file_id": "file_a" }],
                },
            }),
        )
        .container(json!({ "id": "container_1", "skills": null }))
        .tool_use(
            "toolu_1",
            "local_bash_tool",
            json!({ "command": "printf abc >notes.txt", "description": "" }),
        )
}

#[test]
fn p15_the_files_of_a_thread_are_listed_and_saved_and_nothing_is_replaced_unless_asked() {
    let script = Script::new()
        .reply(made())
        .reply(Message::new().text("Made."))
        .hosted(Hosted::new().generated_file("file_a", "report.xlsx", "PK table"));
    let mock = MockLlm::start_blocking(script).unwrap();
    let workspace = workspace(&[LOCAL, "conjure-backend-anthropic"]);
    let session = "provider = \"anthropic\"\nmodel = \"m\"\n\
        [[backend]]\nkind = \"local\"\n\
        [[backend]]\nkind = \"anthropic\"\nconfig.skills = [\"xlsx\"]\n\
        [policy]\nallow = [\"*\"]\n";
    workspace.write("session.toml", session).unwrap();
    let run = |args: &str| {
        conjure(&workspace, args)
            .env("ANTHROPIC_BASE_URL", mock.base_url())
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .run()
            .unwrap()
    };
    let said = run("run --config session.toml --json Go");
    let last = stage::json_lines(&said).pop().unwrap();
    let thread = last["thread"].as_str().unwrap().to_owned();

    let listed = run(&format!("files list {thread}"));
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let lines: Vec<Vec<&str>> = listed
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let notes = workspace.work().join("notes.txt").display().to_string();
    assert_eq!(lines[0], ["FILE", "NAME", "SIZE", "FROM", "PLACE"]);
    assert!(
        lines
            .iter()
            .any(|line| line[1..4] == ["notes.txt", "3", "bytes"]
                && line.ends_with(&["local", &notes])),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line[1] == "report.xlsx"
                && line.ends_with(&["anthropic", "with", "anthropic"])),
        "{lines:?}"
    );
    let json = stage::json(&run(&format!("files list {thread} --json")));
    assert_eq!(json.as_array().unwrap().len(), 2);

    // What is here needs no backend; what is not needs the session file.
    let save = format!("files save {thread}");
    let notes = run(&format!("{save} notes.txt --to out"));
    assert_eq!(notes.code, Some(0), "{notes:?}");
    let saved = |name: &str| fs::read(workspace.work().join("out").join(name));
    assert_eq!(saved("notes.txt").unwrap(), b"abc");
    let without = run(&format!("{save} report.xlsx --to out"));
    assert_eq!(without.code, Some(1), "{without:?}");
    assert!(
        without.stderr.contains("report.xlsx` was not saved"),
        "{without:?}"
    );
    assert!(saved("report.xlsx").is_err());
    let all = run(&format!("{save} --to out --config session.toml"));
    assert_eq!(all.code, Some(0), "{all:?}");
    assert_eq!(saved("report.xlsx").unwrap(), b"PK table");
    // Nothing is replaced: the second copy has its handle in front, and a third is refused.
    let second = fs::read_dir(workspace.work().join("out")).unwrap().count();
    assert_eq!(second, 3);
    let third = run(&format!("{save} notes.txt --to out"));
    assert_eq!(third.code, Some(1), "{third:?}");
    // Unless that is asked for.
    workspace.write("out/notes.txt", "something else").unwrap();
    let replaced = run(&format!("{save} notes.txt --to out --replace"));
    assert_eq!(replaced.code, Some(0), "{replaced:?}");
    assert_eq!(saved("notes.txt").unwrap(), b"abc");
    assert_eq!(
        fs::read_dir(workspace.work().join("out")).unwrap().count(),
        3
    );
    let unknown = run(&format!("{save} nothing"));
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("no file `nothing`"), "{unknown:?}");
    assert_eq!(mock.violations(), []);
}

#[test]
fn a_file_that_became_a_link_is_not_saved() {
    use std::os::unix::fs::symlink;
    let workspace = workspace(&[LOCAL]);
    let secret = workspace.root().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("out.txt"), "nobody's").unwrap();
    let model = Model::start().unwrap();
    let call = json!({ "command": "mkdir d; printf abc >d/out.txt", "description": "" });
    model.calls("call_1", "local_bash_tool", call);
    model.says(Message::new().text("Made."));
    let args = "run --provider anthropic --model a-model --executor local --allow * --json Go";
    let said = conjure(&workspace, args).model(&model).run().unwrap();
    let last = stage::json_lines(&said).pop().unwrap();
    let thread = last["thread"].as_str().unwrap().to_owned();
    let save = |replace: &str| {
        let args = format!("files save {thread} out.txt --to out {replace}");
        conjure(&workspace, &args).run().unwrap()
    };
    let copy = workspace.work().join("out/out.txt");
    assert_eq!(save("").code, Some(0));
    assert_eq!(fs::read(&copy).unwrap(), b"abc");
    let made = workspace.work().join("d");
    let refused = || {
        let said = save("--replace");
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains("a link on the way"), "{said:?}");
        assert_eq!(fs::read(&copy).unwrap(), b"abc");
    };
    fs::remove_file(made.join("out.txt")).unwrap();
    symlink(secret.join("out.txt"), made.join("out.txt")).unwrap();
    refused();
    // The same where the directory became one.
    fs::rename(&made, workspace.work().join("d2")).unwrap();
    symlink(&secret, &made).unwrap();
    refused();
}

#[test]
fn p14_the_files_that_the_provider_keeps_are_listed_page_by_page_and_deleted() {
    let mut hosted = Hosted::new().generated_file("file_made", "report.xlsx", "PK table");
    for number in 0..130 {
        let name = format!("data-{number}.csv");
        hosted = hosted.file(StoredFile::new(
            &format!("file_{number}"),
            &name,
            "a,b",
            false,
        ));
    }
    let mock = MockLlm::start_blocking(Script::new().hosted(hosted)).unwrap();
    let workspace = workspace(&[]);
    let run = |args: &str| {
        conjure(&workspace, args)
            .env("ANTHROPIC_BASE_URL", mock.base_url())
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .run()
            .unwrap()
    };
    let listed = stage::json(&run("files remote list --json"));
    assert_eq!(listed["files"].as_array().unwrap().len(), 131);
    assert_eq!(mock.requests().len(), 2);
    let many: Vec<String> = (0..129).map(|number| format!("file_{number}")).collect();
    let deleted = run(&format!(
        "files remote delete --yes --json {}",
        many.join(" ")
    ));
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert_snapshot!(run("files remote list").snapshot(), @"
    exit code 0
    --- stdout
    ID         NAME          SIZE     MADE BY    CREATED
    file_made  report.xlsx   8 bytes  a skill    [TIME]
    file_129   data-129.csv  3 bytes  an upload  [TIME]
    --- stderr
    ");
    assert_snapshot!(run("files remote delete --yes ../x file_9 file_129").snapshot(), @r"
    exit code 3
    --- stdout
    Deleted file_129.
    --- stderr
    error: anthropic: `../x` is no id
    error: anthropic: Anthropic gave no reply (HTTP status 404, not_found_error). File not found: file_9. Check the name or id that was asked for, and the base URL `http://127.0.0.1:[PORT]`. (request req_mock_132)
    ");
    assert_eq!(mock.hosted().files().len(), 1);
    assert_eq!(mock.violations(), []);
}
