//! `conjure skill upload` and `conjure skill remote` against the Skills API.

use conjure_kit::{Cli, Workspace};
use conjure_mock_llm::{ErrorReply, Hosted, Matcher, MockLlm, Script, Step, StoredSkill};
use insta::assert_snapshot;

use crate::stage::{conjure, json, workspace};

fn place(hosted: Hosted) -> (Workspace, MockLlm) {
    let mock = MockLlm::start_blocking(Script::new().hosted(hosted)).unwrap();
    (workspace(&[]), mock)
}

fn ask(workspace: &Workspace, mock: &MockLlm, args: &str) -> Cli {
    conjure(workspace, args)
        .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
        .env("ANTHROPIC_BASE_URL", mock.base_url())
}

#[test]
fn p13_b11_a_skill_is_uploaded_listed_given_a_version_and_deleted() {
    for old in [false, true] {
        let hosted = Hosted::new();
        let hosted = if old { hosted.beta_format() } else { hosted };
        let (workspace, mock) = place(hosted);
        workspace
            .write_skill("mine", "my-report", "Writes reports.", "Body")
            .unwrap();
        workspace
            .write("mine/scripts/a.py", "print('\u{e9}')\n")
            .unwrap();
        let run = |args: &str| ask(&workspace, &mock, args).run().unwrap();
        let uploaded = run("skill upload mine");
        assert!(
            uploaded
                .stdout
                .starts_with("Uploaded `my-report` as skill_"),
            "{uploaded:?}"
        );
        let skill = mock.hosted().skills().last().unwrap().clone();
        let mut files = skill.versions[0].files.clone();
        files.sort();
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["my-report/SKILL.md", "my-report/scripts/a.py"]);
        assert_eq!(files[1].1, "print('\u{e9}')\n".as_bytes());
        assert_eq!(skill.title.as_deref(), Some("my-report"));

        let again = run(&format!(
            "skill upload mine --version-of {} --json",
            skill.id
        ));
        assert_eq!(json(&again)["id"], skill.id.as_str());
        let versions = json(&run(&format!("skill remote list {} --json", skill.id)));
        assert_eq!(versions["versions"].as_array().unwrap().len(), 2);
        assert_eq!(versions["versions"][1]["version"], json(&again)["version"]);

        let listed = json(&run("skill remote list --source custom --json"));
        assert_eq!(listed["skills"][0]["source"], "custom");
        assert_eq!(
            listed["skills"][0]["latest_version"],
            json(&again)["version"]
        );

        // What was uploaded comes back, and is right; where it is already it stays.
        let download = format!("skill remote download {} --to out --json", skill.id);
        let saved = json(&run(&download));
        assert_eq!(saved["version"], json(&again)["version"]);
        let package = saved["saved"].as_str().unwrap();
        assert!(package.ends_with("my-report.skill"), "{package}");
        let right = run(&format!("skill check {package}"));
        assert_eq!(right.code, Some(0), "{right:?}");
        let shown = run(&format!("skill show {package} --json"));
        assert!(shown.stdout.contains("scripts/a.py"), "{shown:?}");
        let twice = run(&download);
        assert_eq!(twice.code, Some(1), "{twice:?}");
        let first = &json(&run(&format!("skill remote list {} --json", skill.id)))["versions"][0];
        let first = first["version"].as_str().unwrap().to_owned();
        let older = format!(
            "skill remote download {} {first} --to older --json",
            skill.id
        );
        assert_eq!(json(&run(&older))["version"], first.as_str());

        let deleted = run(&format!("skill remote delete {} --yes", skill.id));
        assert_eq!(deleted.stdout, format!("Deleted {}.\n", skill.id));
        assert_eq!(mock.hosted().skills().len(), 4);
        assert_eq!(mock.violations(), [], "old shapes: {old}");
    }
}

#[test]
fn p14_every_page_of_the_list_is_read() {
    let mut hosted = Hosted::new();
    for number in 0..230 {
        hosted = hosted.skill(StoredSkill::custom(
            &format!("skill_{number}"),
            "mine",
            "Mine.",
        ));
    }
    let (workspace, mock) = place(hosted);
    let listed = ask(&workspace, &mock, "skill remote list --json")
        .run()
        .unwrap();
    assert_eq!(json(&listed)["skills"].as_array().unwrap().len(), 234);
    assert_eq!(mock.requests().len(), 3);
    assert_eq!(mock.violations(), []);
}

#[test]
fn the_list_is_a_table() {
    let (workspace, mock) =
        place(Hosted::new().skill(StoredSkill::custom("skill_1", "mine", "Mine.")));
    let listed = ask(&workspace, &mock, "skill remote list").run().unwrap();
    assert_snapshot!(listed.snapshot(), @"
    exit code 0
    --- stdout
    ID       TITLE  SOURCE     LATEST VERSION
    pptx     pptx   anthropic  20251013
    xlsx     xlsx   anthropic  20251013
    docx     docx   anthropic  20251013
    pdf      pdf    anthropic  20251013
    skill_1  mine   custom     skver_1
    --- stderr
    ");
}

#[test]
fn what_the_provider_refuses_is_said_and_the_rest_is_done() {
    let (workspace, mock) =
        place(Hosted::new().skill(StoredSkill::custom("skill_1", "mine", "Mine.")));
    let deleted = ask(
        &workspace,
        &mock,
        "skill remote delete xlsx skill_9 ../x skill_1 --yes",
    )
    .run()
    .unwrap();
    assert_snapshot!(deleted.snapshot(), @r"
    exit code 3
    --- stdout
    Deleted skill_1.
    --- stderr
    error: anthropic: Anthropic gave no reply (HTTP status 400, invalid_request_error). Skill `xlsx` cannot be deleted: it is the provider's own. The request is wrong as it is, so sending it again will not help. (request req_mock_0)
    error: anthropic: Anthropic gave no reply (HTTP status 404, not_found_error). Skill not found: skill_9. Check the name or id that was asked for, and the base URL `http://127.0.0.1:[PORT]`. (request req_mock_2)
    error: anthropic: `../x` is no id
    ");
}

#[test]
fn a_skill_that_breaks_a_rule_is_not_sent() {
    let (workspace, mock) = place(Hosted::new());
    workspace
        .write_skill("claude-help", "claude-help", "Helps.", "Body")
        .unwrap();
    let refused = ask(&workspace, &mock, "skill upload claude-help")
        .run()
        .unwrap();
    assert_snapshot!(refused.snapshot(), @"
    exit code 1
    --- stdout
    --- stderr
    error: the skill at `claude-help` cannot be uploaded: The name `claude-help` has the reserved word `claude` in it.
    hint: `conjure skill check --upload` says more
    ");
    let large = "x".repeat(30_000_000);
    workspace
        .write_skill("large", "large", "Large.", "Body")
        .unwrap();
    workspace.write("large/data.txt", &large).unwrap();
    let refused = ask(&workspace, &mock, "skill upload large").run().unwrap();
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("less than 30000000"), "{refused:?}");
    assert_eq!(mock.requests().len(), 0);
}

#[test]
fn an_upload_is_never_sent_twice() {
    let script = Script::new()
        .step(Step::new(ErrorReply::new(529)).when(Matcher::any().path("/v1/skills")))
        .hosted(Hosted::new());
    let mock = MockLlm::start_blocking(script).unwrap();
    let workspace = workspace(&[]);
    workspace
        .write_skill("mine", "mine", "Mine.", "Body")
        .unwrap();
    let failed = ask(&workspace, &mock, "skill upload mine").run().unwrap();
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert_eq!(mock.requests().len(), 1);
}

#[test]
fn other_providers_keep_no_skills() {
    let (workspace, mock) = place(Hosted::new());
    let listed = ask(&workspace, &mock, "skill remote list --provider openai")
        .env("OPENAI_API_KEY", "a-key-of-nobody")
        .run()
        .unwrap();
    assert_eq!(listed.code, Some(3), "{listed:?}");
    assert!(listed.stderr.contains("only Anthropic"), "{listed:?}");
}
