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
    // Of a project that nobody trusts nothing is read, so nothing of it hides or is broken.
    let list = conjure(&workspace, "skill list").run().unwrap();
    assert_snapshot!(list.snapshot(), @r"
    exit code 0
    --- stdout
    SKILL  SCOPE    USED         PATH
    bad    project  not trusted  .conjure/skills/bad
    one    project  not trusted  .agents/skills/one
    two    project  not trusted  .claude/skills/two
    mine   user     yes          [WORKSPACE]/home/.agents/skills/mine
    one    user     yes          [WORKSPACE]/home/.agents/skills/one
    The project's skills have the digest sha256:[HASH].
    --- stderr
    ");
    conjure(&workspace, "skill trust").run().unwrap();
    let list = conjure(&workspace, "skill list").run().unwrap();
    assert_snapshot!(list.snapshot(), @r"
    exit code 0
    --- stdout
    SKILL  SCOPE    USED  PATH
    one    project  yes   .agents/skills/one
    two    project  yes   .claude/skills/two
    mine   user     yes   [WORKSPACE]/home/.agents/skills/mine
    The project's skills have the digest sha256:[HASH].
    --- stderr
    hidden: The user skill `one` in [WORKSPACE]/home/.agents/skills/one is hidden by the project skill in [WORKSPACE]/work/.agents/skills/one.
    broken: the skill at `[WORKSPACE]/work/.conjure/skills/bad` does not load: SKILL.md does not begin with a line `---`, so it has no front matter.
    ");
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
    assert_snapshot!(trust.snapshot(), @r"
    exit code 0
    --- stdout
    [WORKSPACE]/work is trusted as it is now, with 1 skill.
      .agents/skills/one
      sha256:[HASH]
    --- stderr
    ");
    let after = routes();
    assert!(after.stdout.contains("one_bash_tool"), "{after:?}");
    // Trust is in what was shown.
    workspace
        .write(".agents/skills/one/scripts/run.sh", "echo other")
        .unwrap();
    let changed = routes();
    assert!(!changed.stdout.contains("one_bash_tool"), "{changed:?}");
    assert!(changed.stderr.contains("changed since"), "{changed:?}");
    conjure(&workspace, "skill trust").run().unwrap();
    assert!(routes().stdout.contains("one_bash_tool"));
    let remove = conjure(&workspace, "skill untrust").run().unwrap();
    assert_snapshot!(remove.snapshot(), @r"
    exit code 0
    --- stdout
    [WORKSPACE]/work is not trusted any more.
    --- stderr
    ");
    assert!(!routes().stdout.contains("one_bash_tool"));
}

#[test]
fn nothing_of_a_project_is_parsed_before_it_is_trusted() {
    let workspace = workspace(&[LOCAL]);
    // A parser would go down as deep as this, or say what is wrong with it.
    let text = format!("---\nname: {}\n---\n", "[".repeat(200_000));
    workspace
        .write(".agents/skills/deep/SKILL.md", text)
        .unwrap();
    for args in ["routes", "skill list"] {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(!output.stderr.contains("does not load"), "{output:?}");
    }
}

#[test]
fn a_valid_skill_is_valid() {
    let workspace = workspace(&[]);
    workspace
        .write_skill("good", "good", "Good.", "See [this](references/a.md).")
        .unwrap();
    workspace.write("good/references/a.md", "text").unwrap();
    let output = conjure(&workspace, "skill check good").run().unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 0
    --- stdout
    valid good
    --- stderr
    ");
}

#[test]
fn every_mistake_is_told_with_its_line_and_what_to_do() {
    let workspace = workspace(&[]);
    let text = "---\nname: Not_Good\ndescription: Use when: testing\ncolour: red\n---\n\
                [gone](scripts/gone.sh)\n";
    workspace.write("bad/SKILL.md", text).unwrap();
    let output = conjure(&workspace, "skill check bad").run().unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 1
    --- stdout
    error [unquoted-colon] line 3: The value of `description` has a colon and is not quoted; it was read as if it were.
      Put the value of `description` in quotes.
    error [name-charset] line 2: The name `Not_Good` has characters other than letters, digits and hyphens.
      Write `not-good`.
    error [name-case] line 2: The name `Not_Good` is not lower-case.
      Write `not-good`.
    error [name-directory] line 2: The name `Not_Good` is not that of its directory, `bad`.
      Rename one of the two.
    hint [unknown-field] line 4: The standard does not know these fields: `colour`.
      Other hosts may ignore or refuse them; `metadata` is the place for your own.
    warning [link-missing]: The body links to files that are not there: `scripts/gone.sh`.
      Add the files or correct the links; paths are relative to the skill's directory.
    --- stderr
    ");
    let output = conjure(&workspace, "skill check --json bad").run().unwrap();
    assert_eq!(json(&output)["valid"], false);
    let output = conjure(&workspace, "skill check nowhere").run().unwrap();
    assert_eq!(output.code, Some(2));
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
    assert_snapshot!(output.snapshot(), @r"
    exit code 0
    --- stdout
    full
    Does it all.
    license: MIT
    author: Ada
    path: full
      references/deep/a.md
      scripts/run.sh

    # Full

    Do it.
    --- stderr
    ");
}

#[test]
fn trust_ends_with_a_change_of_what_a_link_leads_to() {
    let workspace = workspace(&[LOCAL]);
    workspace
        .write_skill("tools/one", "one", "The first.", "Body")
        .unwrap();
    workspace
        .write_skill(".claude/skills/two", "two", "The second.", "Body")
        .unwrap();
    workspace.write("shared/run.sh", "echo one").unwrap();
    let link = |target: &str, at: &str| {
        std::os::unix::fs::symlink(target, workspace.work().join(at)).unwrap();
    };
    link("../../tools/one", ".claude/skills/one");
    link("../../../shared", ".claude/skills/two/scripts");
    let routes = || conjure(&workspace, "routes").run().unwrap();
    let changes = [
        (
            "tools/one/SKILL.md",
            "---\nname: one\ndescription: Other.\n---\n",
        ),
        ("shared/run.sh", "echo other"),
    ];
    for (path, text) in changes {
        conjure(&workspace, "skill trust").run().unwrap();
        assert!(routes().stdout.contains("one_bash_tool"), "{path}");
        workspace.write(path, text).unwrap();
        let changed = routes();
        assert!(!changed.stdout.contains("one_bash_tool"), "{changed:?}");
        assert!(changed.stderr.contains("changed since"), "{changed:?}");
    }
}

#[test]
fn a_link_that_leads_out_of_a_project_is_told_and_never_read() {
    let workspace = workspace(&[LOCAL]);
    workspace
        .write_skill(".claude/skills/one", "one", "The first.", "Body")
        .unwrap();
    let link = workspace.work().join(".claude/skills/one/kernel");
    // Whoever reads this as root waits for what the kernel says next.
    std::os::unix::fs::symlink("/proc/kmsg", link).unwrap();
    for args in ["skill list", "routes", "skill trust"] {
        let output = conjure(&workspace, args).run().unwrap();
        let told = output.stderr.contains("leads out of the project");
        assert!(told && !output.stdout.contains("one"), "{output:?}");
    }
}

#[test]
fn what_a_skill_says_of_itself_steers_no_terminal() {
    let workspace = workspace(&[LOCAL]);
    let hostile = "\u{1b}[2J\u{9b}2Jna\u{200b}me";
    let text = format!("---\nname: \"{hostile}\"\ndescription: \"{hostile}\"\n---\n");
    let escaped = text.replace('\u{1b}', "\\x1b").replace('\u{9b}', "\\x9b");
    for folder in [".agents/skills/bad", "../home/.agents/skills/bad"] {
        workspace
            .write(format!("{folder}/SKILL.md"), &escaped)
            .unwrap();
    }
    let hidden = format!("../home/.agents/skills/{hostile}");
    workspace
        .write_skill(&hidden, "one", "Hidden.", "Body")
        .unwrap();
    workspace
        .write_skill(".agents/skills/one", "one", "First.", "Body")
        .unwrap();
    conjure(&workspace, "skill trust").run().unwrap();
    for args in [
        "skill list",
        "skill list --json",
        "skill check .agents/skills/bad",
        "skill check .agents/skills/bad --json",
        "skill show .agents/skills/bad",
        "routes --skill .agents/skills/bad --executor local",
    ] {
        let output = conjure(&workspace, args).on_terminal().run().unwrap();
        let said = format!("{}{}", output.stdout, output.stderr);
        for sign in ["\u{1b}[2J", "\u{9b}", "\u{200b}"] {
            assert!(!said.contains(sign), "{args}: {sign:?} in {said:?}");
        }
    }
}
