//! Skill folders: loading, front matter, what the model is told, and using them.

use std::fs;
use std::os::unix::fs::symlink;

use conjure_host::session::BackendSpec;
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::stage::{LOCAL, Seen, Stage, bash, conjure, in_time, local, system, workspace};

/// What `conjure … --json` prints.
pub(crate) fn printed(output: &conjure_kit::Output) -> Value {
    serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error} in {}\n{}", output.stdout, output.stderr))
}

/// The rules that `conjure skill check` finds broken.
fn broken_rules(output: &conjure_kit::Output) -> Vec<String> {
    let printed = printed(output);
    let diagnostics = printed["diagnostics"].as_array().unwrap();
    let rules = diagnostics
        .iter()
        .map(|it| it["rule"].as_str().unwrap().to_owned());
    rules.collect()
}

#[test]
fn p01_a_root_with_two_folders_is_two_skills_with_every_field_as_written() {
    let workspace = workspace(&[]);
    let front = "---\nname: full\ndescription: Does it all. Use it always.\nlicense: MIT\n\
                 compatibility: needs awk\nmetadata:\n  author: Ada\n  version: \"1.0\"\n\
                 allowed-tools: Bash(awk:*) Read\n---\n\n# Full\n\nDo it.\n";
    workspace.write("skills/full/SKILL.md", front).unwrap();
    workspace
        .write_skill("skills/small", "small", "Does little.", "Do little.")
        .unwrap();
    let list = conjure(&workspace, ["skill", "list", "skills", "--json"])
        .run()
        .unwrap();
    let list = printed(&list);
    let names: Vec<&Value> = list["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["name"])
        .collect();
    assert_eq!(names, ["full", "small"]);
    assert_eq!((&list["broken"], &list["hidden"]), (&json!([]), &json!([])));
    let show = conjure(&workspace, ["skill", "show", "skills/full", "--json"])
        .run()
        .unwrap();
    assert_eq!(
        printed(&show),
        json!({
            "name": "full",
            "description": "Does it all. Use it always.",
            "license": "MIT",
            "compatibility": "needs awk",
            "metadata": { "author": "Ada", "version": "1.0" },
            "allowed_tools": "Bash(awk:*) Read",
            "path": workspace.work().join("skills/full"),
            "resources": [],
            "body": "# Full\n\nDo it.",
            "diagnostics": [],
        })
    );
}

#[test]
fn p02_b16_front_matter_is_a_value_or_a_typed_error() {
    for (text, dir, code, rules) in [
        (
            "---\nname: x\ndescription: Fine.\n---\nBody\n",
            "x",
            0,
            vec![],
        ),
        ("no front matter\n", "x", 1, vec!["front-matter-missing"]),
        (
            "---\nname: x\n---\nBody\n",
            "x",
            1,
            vec!["description-required"],
        ),
        (
            "---\nname: X_Y\ndescription: d\n---\n",
            "X_Y",
            1,
            vec!["name-charset", "name-case"],
        ),
        (
            "---\nname: 7\ndescription: d\n---\n",
            "7",
            1,
            vec!["name-type"],
        ),
        (
            "---\nname: x\ndescription: [a, b]\n---\n",
            "x",
            1,
            vec!["description-type"],
        ),
        (
            "---\nname: x\ndescription: d\nmetadata: text\n---\n",
            "x",
            1,
            vec!["metadata-type"],
        ),
        (
            "---\nname: x\ndescription: d\nlicense: {a: b}\n---\n",
            "x",
            1,
            vec!["license-type"],
        ),
        ("---\nname: [\n---\n", "x", 1, vec!["front-matter-yaml"]),
        ("---\n- a\n---\n", "x", 1, vec!["front-matter-map"]),
    ] {
        let workspace = workspace(&[]);
        workspace.write(format!("{dir}/SKILL.md"), text).unwrap();
        let output = conjure(&workspace, ["skill", "check", dir, "--json"])
            .run()
            .unwrap();
        assert_eq!(
            (output.code, broken_rules(&output)),
            (Some(code), own(&rules)),
            "{text}"
        );
    }
}

fn own(rules: &[&str]) -> Vec<String> {
    rules.iter().map(ToString::to_string).collect()
}

#[test]
fn b17_every_rule_of_the_standard_has_a_diagnostic() {
    let long = |count: usize| "x".repeat(count);
    let front = |fields: &str| format!("---\n{fields}\n---\nBody\n");
    let named = |name: &str| front(&format!("name: {name}\ndescription: d"));
    for (text, dir, rule) in [
        (format!("\u{feff}{}", named("x")), "x", "bom"),
        (
            "---\nname: x\ndescription: d\n".to_owned(),
            "x",
            "front-matter-unclosed",
        ),
        ("---\n---\nBody\n".to_owned(), "x", "front-matter-empty"),
        (front("description: d"), "x", "name-required"),
        (named(&long(65)), &long(65), "name-length"),
        (named("-x"), "-x", "name-hyphen-ends"),
        (named("x--y"), "x--y", "name-double-hyphen"),
        (named("other"), "x", "name-directory"),
        (
            front("name: x\ndescription: \"  \""),
            "x",
            "description-required",
        ),
        (
            front(&format!("name: x\ndescription: {}", long(1025))),
            "x",
            "description-length",
        ),
        (
            front("name: x\ndescription: d\ncompatibility: 7"),
            "x",
            "compatibility-type",
        ),
        (
            front(&format!(
                "name: x\ndescription: d\ncompatibility: {}",
                long(501)
            )),
            "x",
            "compatibility-length",
        ),
        (
            front("name: x\ndescription: d\nmetadata: {a: [1]}"),
            "x",
            "metadata-value-type",
        ),
        (
            front("name: x\ndescription: d\nallowed-tools: [Read]"),
            "x",
            "allowed-tools-type",
        ),
        (
            front("name: x\ndescription: d\ncolour: red"),
            "x",
            "unknown-field",
        ),
        (
            front("name: x\ndescription: a colon: here"),
            "x",
            "unquoted-colon",
        ),
        (
            format!("{}{}", named("x"), "line\n".repeat(501)),
            "x",
            "body-lines",
        ),
        (
            format!("{}{}\n", named("x"), long(20_001)),
            "x",
            "body-tokens",
        ),
        (
            format!("{}[a](scripts/none.sh)\n", named("x")),
            "x",
            "link-missing",
        ),
        (
            format!("{}[a](../y/none.sh)\n", named("x")),
            "x",
            "link-outside",
        ),
    ] {
        let workspace = workspace(&[]);
        let dir = dir.to_owned();
        workspace.write(format!("{dir}/SKILL.md"), &text).unwrap();
        let args = ["skill", "check", "--json", "--", &dir];
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(broken_rules(&output), [rule], "{text}");
    }
    let workspace = workspace(&[]);
    let text = "---\nname: my-claude\ndescription: Use <b>it</b>.\n---\nBody\n";
    workspace.write("my-claude/SKILL.md", text).unwrap();
    let args = ["skill", "check", "my-claude", "--upload", "--json"];
    let output = conjure(&workspace, args).run().unwrap();
    assert_eq!(
        broken_rules(&output),
        ["upload-description-xml", "upload-name-reserved"]
    );
}

#[tokio::test]
async fn b18_an_unquoted_colon_is_recovered_and_said() {
    let stage = Stage::new(&[LOCAL]).await;
    let dir = stage
        .workspace
        .write_skill("colon", "colon", "Use when: testing", "Body")
        .unwrap();
    let validate = conjure(&stage.workspace, ["skill", "check", "colon"])
        .run()
        .unwrap();
    assert!(validate.stdout.contains("unquoted-colon"), "{validate:?}");
    let list = conjure(&stage.workspace, ["skill", "list", "."])
        .run()
        .unwrap();
    assert!(list.stdout.contains("colon"), "{list:?}");
    assert!(
        list.stderr.contains("has a colon and is not quoted"),
        "it is said: {list:?}"
    );
    let session = stage
        .session([BackendSpec::local([dir.display().to_string()])])
        .await;
    stage.model.says(Message::new().text("Hello."));
    in_time(session.chat("Hi.")).await.unwrap();
    let told = system(&stage.model.last_request());
    assert!(
        told.contains("<description>Use when: testing</description>"),
        "{told}"
    );
    session.close().await;
}

#[tokio::test]
async fn b19_a_bad_skill_is_reported_and_the_others_are_there() {
    let stage = Stage::new(&[LOCAL]).await;
    stage
        .workspace
        .write_skill("skills/good", "good", "Good.", "Body")
        .unwrap();
    stage
        .workspace
        .write("skills/bad/SKILL.md", "---\nname: bad\n---\n")
        .unwrap();
    let list = conjure(&stage.workspace, ["skill", "list", "skills"])
        .run()
        .unwrap();
    assert!(
        list.stdout.contains("good") && !list.stdout.contains("bad"),
        "{list:?}"
    );
    assert!(
        list.stderr.contains("skills/bad") && list.stderr.contains("`description`"),
        "{list:?}"
    );
    let list = conjure(&stage.workspace, ["skill", "list", "skills", "--json"])
        .run()
        .unwrap();
    assert_eq!(printed(&list)["broken"].as_array().unwrap().len(), 1);
    let spec = stage.spec([BackendSpec::local([stage.path("skills/bad")])]);
    let error = stage
        .host
        .session(spec)
        .await
        .err()
        .expect("it does not load");
    for word in ["`local`", "skills/bad", "`description`"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn p04_the_model_is_told_names_escaped_descriptions_and_places() {
    let stage = Stage::new(&[LOCAL]).await;
    let description = "\"Totals & rates for <log> files\"";
    let one = stage
        .workspace
        .write_skill("one", "one", description, "Body")
        .unwrap();
    let two = stage
        .workspace
        .write_skill("two", "two", "</skill><skill>", "Body")
        .unwrap();
    let skills = [&one, &two].map(|dir| dir.display().to_string());
    let session = stage.session([BackendSpec::local(skills)]).await;
    stage.model.says(Message::new().text("Hello."));
    in_time(session.chat("Hi.")).await.unwrap();
    let told = system(&stage.model.last_request());
    let start = told
        .find("<available_skills>")
        .expect("there is a part for skills");
    let end = told.find("</available_skills>").unwrap();
    let expected = format!(
        "<available_skills>\n  <skill>\n    <name>one</name>\n    \
         <description>Totals &amp; rates for &lt;log&gt; files</description>\n    \
         <location>{}/SKILL.md</location>\n    <read_with>one_view</read_with>\n    \
         <run_with>one_bash_tool</run_with>\n  </skill>\n  <skill>\n    <name>two</name>\n    \
         <description>&lt;/skill&gt;&lt;skill&gt;</description>\n    \
         <location>{}/SKILL.md</location>\n    <read_with>two_view</read_with>\n    \
         <run_with>two_bash_tool</run_with>\n  </skill>\n",
        one.display(),
        two.display()
    );
    assert_eq!(&told[start..end], expected);
    session.close().await;
}

#[tokio::test]
async fn b29_without_skills_there_is_no_word_of_skills() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    stage.model.says(Message::new().text("Hello."));
    in_time(session.chat("Hi.")).await.unwrap();
    let told = system(&stage.model.last_request());
    assert!(!told.to_lowercase().contains("skill"), "{told}");
    session.close().await;
}

#[tokio::test]
async fn b07_skills_of_a_second_root_can_be_read() {
    let stage = Stage::new(&[LOCAL]).await;
    let elsewhere = stage.workspace.root().join("elsewhere");
    for (dir, name) in [("first", "one"), ("second", "two")] {
        let dir = elsewhere.join(dir).join(name);
        fs::create_dir_all(dir.join("references")).unwrap();
        fs::write(
            dir.join("SKILL.md"),
            format!("---\nname: {name}\ndescription: d\n---\n{name}\n"),
        )
        .unwrap();
        fs::write(
            dir.join("references/r.md"),
            format!("reference of {name}\n"),
        )
        .unwrap();
    }
    let skills = ["first/one", "second/two"].map(|dir| elsewhere.join(dir).display().to_string());
    let session = stage.session([BackendSpec::local(skills.clone())]).await;
    for (name, dir) in ["one", "two"].iter().zip(&skills) {
        let tool = format!("{name}_view");
        let seen = stage
            .calls(
                &session,
                &[
                    (&tool, json!({ "path": format!("{dir}/SKILL.md") })),
                    (&tool, json!({ "path": "references/r.md" })),
                ],
            )
            .await;
        assert!(seen[0].text.contains(name), "{seen:?}");
        assert_eq!(seen[1], Seen::ok(&format!("     1\treference of {name}\n")));
    }
    session.close().await;
}

#[tokio::test]
async fn b08_a_script_of_a_skill_runs_with_default_settings() {
    let stage = Stage::new(&[LOCAL]).await;
    let skills = stage.workspace.root().join("skills");
    let dir = skills.join("with-script");
    fs::create_dir_all(dir.join("scripts")).unwrap();
    fs::write(
        dir.join("SKILL.md"),
        "---\nname: with-script\ndescription: d\n---\nRun it.\n",
    )
    .unwrap();
    fs::write(
        dir.join("scripts/x.sh"),
        "echo \"$1 in $PWD\"; test -d \"$SKILL_DIR\"\n",
    )
    .unwrap();
    let session = stage
        .session([BackendSpec::local([dir.display().to_string()])])
        .await;
    let work = stage.workspace.work();
    let expected = Seen::ok(&format!("hello in {}\n", work.display()));
    for command in ["sh scripts/x.sh hello", "sh ./scripts/x.sh hello"] {
        assert_eq!(
            stage
                .call(&session, "with-script_bash_tool", bash(command))
                .await,
            expected
        );
    }
    session.close().await;
}

#[tokio::test]
async fn b21_nested_resources_are_listed_and_read_and_links_to_outside_are_not() {
    let stage = Stage::new(&[LOCAL]).await;
    let outside = stage.workspace.root().join("secret.txt");
    fs::write(&outside, "secret").unwrap();
    let dir = stage
        .workspace
        .write_skill("deep", "deep", "Deep.", "Body")
        .unwrap();
    stage
        .workspace
        .write("deep/references/a/b/c.md", "nested\n")
        .unwrap();
    stage.workspace.write("deep/top.txt", "top\n").unwrap();
    symlink(&outside, dir.join("references/link.txt")).unwrap();
    let show = conjure(&stage.workspace, ["skill", "show", "deep", "--json"])
        .run()
        .unwrap();
    assert_eq!(
        printed(&show)["resources"],
        json!(["references/a/b/c.md", "top.txt"])
    );
    let spec = conjure_host::session::SessionSpec {
        working_dir: None,
        ..stage.spec([BackendSpec::local([dir.display().to_string()])])
    };
    let session = stage.open(spec).await;
    let view = |path: &str| ("deep_view", json!({ "path": path }));
    let seen = stage
        .calls(
            &session,
            &[
                view("references/a/b/c.md"),
                view(&dir.join("top.txt").display().to_string()),
                view(&dir.join("references/link.txt").display().to_string()),
            ],
        )
        .await;
    assert_eq!(
        seen[..2],
        ["     1\tnested\n", "     1\ttop\n"].map(Seen::ok)
    );
    assert!(
        seen[2].is_error && !seen[2].text.contains("secret\n"),
        "{seen:?}"
    );
    session.close().await;
}
