//! `conjure skill`: folders and packages.

use insta::assert_snapshot;

use crate::stage::{LOCAL, conjure, json, workspace};

#[test]
fn the_list_shows_the_projects_and_the_users_skills_and_what_is_wrong() {
    let workspace = workspace(&[]);
    workspace
        .write_skill(".agents/skills/one", "one", "The first.", "Body")
        .unwrap();
    workspace
        .write_skill(".claude/skills/two", "two", "The second.", "Body")
        .unwrap();
    workspace
        .write(".conjure/skills/bad/SKILL.md", "no front matter\n")
        .unwrap();
    workspace
        .write_skill("../home/.agents/skills/one", "one", "Hidden.", "Body")
        .unwrap();
    workspace
        .write_skill("../home/.agents/skills/mine", "mine", "Mine.", "Body")
        .unwrap();
    let list = conjure(&workspace, "skill list").run().unwrap();
    assert_snapshot!(list.snapshot(), @"");
    let list = json(&conjure(&workspace, "skill list --json").run().unwrap());
    let count = |what: &str| list[what].as_array().unwrap().len();
    assert_eq!(
        (count("skills"), count("hidden"), count("broken")),
        (3, 1, 1)
    );
}

#[test]
fn the_skills_of_a_project_are_used_after_it_was_trusted() {
    let workspace = workspace(&[LOCAL]);
    workspace
        .write_skill(".agents/skills/one", "one", "The first.", "Body")
        .unwrap();
    let routes = || conjure(&workspace, "routes").run().unwrap();
    let before = routes();
    assert!(!before.stdout.contains("one_bash_tool"), "{before:?}");
    assert!(before.stderr.contains("conjure skill trust"), "{before:?}");
    let trust = conjure(&workspace, "skill trust").run().unwrap();
    assert_snapshot!(trust.snapshot(), @"");
    let after = routes();
    assert!(after.stdout.contains("one_bash_tool"), "{after:?}");
    let remove = conjure(&workspace, "skill trust --remove").run().unwrap();
    assert_snapshot!(remove.snapshot(), @"");
    assert!(!routes().stdout.contains("one_bash_tool"));
}

#[test]
fn a_valid_skill_is_valid() {
    let workspace = workspace(&[]);
    workspace
        .write_skill("good", "good", "Good.", "See [this](references/a.md).")
        .unwrap();
    workspace.write("good/references/a.md", "text").unwrap();
    let output = conjure(&workspace, "skill validate good").run().unwrap();
    assert_snapshot!(output.snapshot(), @"");
}

#[test]
fn every_mistake_is_told_with_its_line_and_what_to_do() {
    let workspace = workspace(&[]);
    let text = "---\nname: Not_Good\ndescription: Use when: testing\ncolour: red\n---\n\
                [gone](scripts/gone.sh)\n";
    workspace.write("bad/SKILL.md", text).unwrap();
    let output = conjure(&workspace, "skill validate bad").run().unwrap();
    assert_snapshot!(output.snapshot(), @"");
    let output = conjure(&workspace, "skill validate --json bad")
        .run()
        .unwrap();
    assert_eq!(json(&output)["valid"], false);
    let output = conjure(&workspace, "skill validate nowhere").run().unwrap();
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("nowhere"), "{output:?}");
}

#[test]
fn a_skill_is_shown() {
    let workspace = workspace(&[]);
    let text = "---\nname: full\ndescription: Does it all.\nlicense: MIT\nmetadata:\n  author: Ada\n\
                ---\n\n# Full\n\nDo it.\n";
    workspace.write("full/SKILL.md", text).unwrap();
    workspace.write("full/scripts/run.sh", "echo\n").unwrap();
    workspace
        .write("full/references/deep/a.md", "text\n")
        .unwrap();
    let output = conjure(&workspace, "skill show full").run().unwrap();
    assert_snapshot!(output.snapshot(), @"");
}
