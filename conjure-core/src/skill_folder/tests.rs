//! Whole `SKILL.md` texts in, skills and diagnostics out.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn rules(diagnostics: &[Diagnostic]) -> Vec<(Severity, &'static str, Option<usize>)> {
    diagnostics
        .iter()
        .map(|found| (found.severity, found.rule.id(), found.line))
        .collect()
}

fn strict(text: &str) -> Vec<(Severity, &'static str, Option<usize>)> {
    rules(&validate_strict("logs", text.as_bytes(), &[]))
}

const GOOD: &str = "\
---
name: logs
description: Analyses logs. Use for log files.
license: MIT
compatibility: Needs awk
metadata:
  author: someone
  version: 1.10
  10: ten
allowed-tools: Bash(git add:*) Bash(jq:*)  Read
custom:
  - 1
  - deep: true
---

# Logs

Run `scripts/a.sh`.
";

#[test]
fn p1_every_field_is_as_written() {
    let parsed = SkillFolder::parse("logs", GOOD.as_bytes());
    assert_eq!(
        rules(&parsed.diagnostics),
        [(Severity::Hint, "unknown-field", Some(11))]
    );
    let folder = parsed.folder.unwrap();
    assert_eq!(
        folder,
        SkillFolder {
            name: SkillName::new("logs").unwrap(),
            description: "Analyses logs. Use for log files.".into(),
            license: Some("MIT".into()),
            compatibility: Some("Needs awk".into()),
            metadata: vec![
                ("author".into(), "someone".into()),
                ("version".into(), "1.10".into()),
                ("10".into(), "ten".into()),
            ],
            allowed_tools: Some("Bash(git add:*) Bash(jq:*)  Read".into()),
            extra: json!({"custom": [1, {"deep": true}]})
                .as_object()
                .unwrap()
                .clone(),
            body: "# Logs\n\nRun `scripts/a.sh`.".into(),
        }
    );
}

#[test]
fn p2_b19_what_cannot_be_used_is_reported_with_the_reason() {
    for (text, rule, line) in [
        ("", "front-matter-missing", Some(1)),
        ("# Logs\n", "front-matter-missing", Some(1)),
        ("--- \n", "front-matter-unclosed", Some(1)),
        (
            "---\nname: logs\ndescription: d\n",
            "front-matter-unclosed",
            Some(1),
        ),
        ("---\n---\nbody", "front-matter-empty", Some(1)),
        (
            "---\n# only a comment\n---\n",
            "front-matter-empty",
            Some(1),
        ),
        ("---\n- a\n- b\n---\n", "front-matter-map", Some(2)),
        ("---\njust text\n---\n", "front-matter-map", Some(2)),
        ("---\nname: [\n---\n", "front-matter-yaml", Some(2)),
        (
            "---\nname: a\nname: b\ndescription: d\n---\n",
            "front-matter-yaml",
            None,
        ),
        ("---\nname: logs\n---\n", "description-required", None),
        (
            "---\nname: logs\ndescription:\n---\n",
            "description-required",
            Some(3),
        ),
        (
            "---\nname: logs\ndescription: '  '\n---\n",
            "description-required",
            Some(3),
        ),
        (
            "---\nname: logs\ndescription: 12\n---\n",
            "description-type",
            Some(3),
        ),
        (
            "---\nname: logs\ndescription: [a]\n---\n",
            "description-type",
            Some(3),
        ),
        (
            "---\nname: 2024\ndescription: d\n---\n",
            "name-type",
            Some(2),
        ),
    ] {
        let parsed = SkillFolder::parse("logs", text.as_bytes());
        assert_eq!(parsed.folder, None, "{text:?}");
        let found = rules(&parsed.diagnostics);
        assert_eq!(found.len(), 1, "{text:?} {found:?}");
        assert_eq!(
            (found[0].0, found[0].1),
            (Severity::Error, rule),
            "{text:?}"
        );
        if line.is_some() {
            assert_eq!(found[0].2, line, "{text:?}");
        }
    }
}

#[test]
fn b16_wrong_types_are_typed_diagnostics_in_a_strict_check() {
    let text = "---\nname: 12\ndescription: true\nlicense: 3\ncompatibility: []\nmetadata: some text\nallowed-tools: {}\n---\n";
    assert_eq!(
        strict(text),
        [
            (Severity::Error, "name-type", Some(2)),
            (Severity::Error, "description-type", Some(3)),
            (Severity::Error, "license-type", Some(4)),
            (Severity::Error, "compatibility-type", Some(5)),
            (Severity::Error, "metadata-type", Some(6)),
            (Severity::Error, "allowed-tools-type", Some(7)),
        ]
    );
}

#[test]
fn b16_text_metadata_loads_without_it_and_says_so() {
    let parsed = SkillFolder::parse(
        "logs",
        b"---\nname: logs\ndescription: d\nmetadata: some text\n---\n",
    );
    assert_eq!(
        rules(&parsed.diagnostics),
        [(Severity::Warning, "metadata-type", Some(4))]
    );
    assert_eq!(parsed.folder.unwrap().metadata, []);
}

#[test]
fn metadata_keeps_its_scalars_when_one_value_is_nested() {
    let text = "---\nname: logs\ndescription: d\nmetadata:\n  a: 1\n  b: [x]\n  c: true\n---\n";
    let parsed = SkillFolder::parse("logs", text.as_bytes());
    assert_eq!(
        rules(&parsed.diagnostics),
        [(Severity::Warning, "metadata-value-type", Some(4))]
    );
    assert_eq!(
        parsed.folder.unwrap().metadata,
        [
            ("a".to_owned(), "1".to_owned()),
            ("c".to_owned(), "true".to_owned())
        ]
    );
}

#[test]
fn allowed_tools_as_a_list_are_taken_with_a_warning() {
    let text =
        "---\nname: logs\ndescription: d\nallowed-tools:\n  - Bash(git add:*)\n  - Read\n---\n";
    let parsed = SkillFolder::parse("logs", text.as_bytes());
    assert_eq!(
        rules(&parsed.diagnostics),
        [(Severity::Warning, "allowed-tools-type", Some(4))]
    );
    assert_eq!(
        parsed.folder.unwrap().allowed_tools.as_deref(),
        Some("Bash(git add:*) Read")
    );
}

#[test]
fn a_name_that_is_not_the_directorys_or_too_long_loads_with_a_warning() {
    let long = "a".repeat(65);
    let text = format!("---\nname: {long}\ndescription: d\n---\n");
    let parsed = SkillFolder::parse("logs", text.as_bytes());
    assert_eq!(
        rules(&parsed.diagnostics),
        [
            (Severity::Warning, "name-length", Some(2)),
            (Severity::Warning, "name-directory", Some(2)),
        ]
    );
    assert_eq!(parsed.folder.unwrap().name.as_str(), long);
}

#[test]
fn a_missing_or_unusable_name_becomes_the_directorys() {
    for text in [
        "---\ndescription: d\n---\n",
        "---\nname: ''\ndescription: d\n---\n",
        "---\nname: ../../etc\ndescription: d\n---\n",
        "---\nname: \"a\\0b\"\ndescription: d\n---\n",
    ] {
        let parsed = SkillFolder::parse("logs", text.as_bytes());
        assert!(!parsed.diagnostics.is_empty());
        assert_eq!(parsed.folder.unwrap().name.as_str(), "logs", "{text:?}");
    }
    let parsed = SkillFolder::parse("..", b"---\ndescription: d\n---\n");
    assert_eq!(parsed.folder, None);
    assert_eq!(parsed.diagnostics.last().unwrap().severity, Severity::Error);
}

#[test]
fn the_directorys_name_is_compared_after_nfkc() {
    let text = "---\nname: cafe\u{301}\ndescription: d\n---\n";
    assert_eq!(
        rules(&validate_strict("caf\u{e9}", text.as_bytes(), &[])),
        [] as [(Severity, &str, Option<usize>); 0]
    );
}

#[test]
fn b17_every_rule_of_the_standard_has_its_message() {
    let text = format!(
        "---\nname: -Log__S--\ndescription: {}\ncompatibility: {}\n---\n{}",
        "d".repeat(5_000),
        "c".repeat(501),
        "a line of the body that is not short at all\n".repeat(501),
    );
    assert_eq!(
        strict(&text),
        [
            (Severity::Error, "name-charset", Some(2)),
            (Severity::Error, "name-case", Some(2)),
            (Severity::Error, "name-hyphen-ends", Some(2)),
            (Severity::Error, "name-double-hyphen", Some(2)),
            (Severity::Error, "name-directory", Some(2)),
            (Severity::Error, "description-length", Some(3)),
            (Severity::Error, "compatibility-length", Some(4)),
            (Severity::Warning, "body-lines", None),
            (Severity::Warning, "body-tokens", None),
        ]
    );
    assert_eq!(
        strict("---\n{}\n---\n"),
        [
            (Severity::Error, "name-required", None),
            (Severity::Error, "description-required", None),
        ]
    );
    assert_eq!(
        strict("---\nname: logs\ndescription: d\ncompatibility: ''\n---\n").len(),
        1
    );
    assert_eq!(strict("---\nname: logs\ndescription: d\n---\n"), []);
}

#[test]
fn a_limit_counts_characters_and_allows_its_own_value() {
    let text = |n: usize| format!("---\nname: logs\ndescription: {}\n---\n", "é".repeat(n));
    assert_eq!(strict(&text(1_024)), []);
    assert_eq!(strict(&text(1_025)).len(), 1);
}

#[test]
fn b17_diagnostics_read_well() {
    let text = "---\nname: Logs\ndescription: Use: it\nmetadata: x\nmode: y\n---\nSee [a](references/a.md), [b](../b.md).\n";
    let lines: Vec<String> = validate_strict("logz", text.as_bytes(), &["/etc/passwd"])
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r##"
    error [unquoted-colon] line 3: The value of `description` has a colon and is not quoted; it was read as if it were. Put the value of `description` in quotes.
    error [name-case] line 2: The name `Logs` is not lower-case. Write `logs`.
    error [name-directory] line 2: The name `Logs` is not that of its directory, `logz`. Rename one of the two.
    error [metadata-type] line 4: `metadata` is text, not a map; it was left out. Write one `key: "value"` a line, indented under `metadata:`.
    hint [unknown-field] line 5: The standard does not know these fields: `mode`. Other hosts may ignore or refuse them; `metadata` is the place for your own.
    warning [link-missing]: The body links to files that are not there: `references/a.md`. Add the files or correct the links; paths are relative to the skill's directory.
    warning [link-outside]: The body links out of the skill's directory: `../b.md`. A host refuses to read there; move the files into the skill's directory.
    error [resource-path]: Resource paths lead out of the skill's directory: `/etc/passwd`. Use relative paths without `..`.
    "##);
}

#[test]
fn b18_an_unquoted_colon_is_recovered_and_said() {
    let text =
        "---\nname: logs\ndescription: Use this when: the user's logs\n  are: long\n---\nbody\n";
    let parsed = SkillFolder::parse("logs", text.as_bytes());
    assert_eq!(
        rules(&parsed.diagnostics),
        [(Severity::Warning, "unquoted-colon", Some(3))]
    );
    assert_eq!(
        parsed.folder.unwrap().description,
        "Use this when: the user's logs are: long"
    );
    assert_eq!(strict(text), [(Severity::Error, "unquoted-colon", Some(3))]);
}

#[test]
fn a_byte_order_mark_and_crlf_change_nothing_but_a_warning() {
    let text = format!("\u{feff}{}", GOOD.replace('\n', "\r\n"));
    let parsed = SkillFolder::parse("logs", text.as_bytes());
    assert_eq!(
        rules(&parsed.diagnostics),
        [
            (Severity::Warning, "bom", Some(1)),
            (Severity::Hint, "unknown-field", Some(11)),
        ]
    );
    assert_eq!(
        parsed.folder,
        SkillFolder::parse("logs", GOOD.as_bytes()).folder
    );
}

#[test]
fn text_that_is_not_utf8_is_reported_with_its_line() {
    let parsed = SkillFolder::parse("logs", b"---\nname: logs\ndescription: caf\xe9\n---\n");
    assert_eq!(parsed.folder, None);
    assert_eq!(
        rules(&parsed.diagnostics),
        [(Severity::Error, "utf8", Some(3))]
    );
}

#[test]
fn an_alias_bomb_is_an_error_and_not_a_hang() {
    let mut text = String::from("---\nname: logs\ndescription: d\na0: &a0 [x]\n");
    for level in 1..40 {
        let before = level - 1;
        text.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{before}"); 10].join(",")
        ));
    }
    text.push_str("---\n");
    let parsed = SkillFolder::parse("logs", text.as_bytes());
    assert_eq!(
        parsed
            .diagnostics
            .iter()
            .map(|d| d.rule)
            .collect::<Vec<_>>(),
        [SkillRule::FrontMatterYaml]
    );
    let deep = format!("---\na: {}\n---\n", "[".repeat(10_000));
    assert_eq!(SkillFolder::parse("logs", deep.as_bytes()).folder, None);
}

#[test]
fn b21_links_to_nested_resources_are_found() {
    let text = "---\nname: logs\ndescription: d\n---\n\
        [a](references/deep/a.md#top) [b](./scripts/) [c](https://x/y) [d](#here) [e](missing.md \"t\")\n\
        ```\n[f](in-code.md)\n```\n[g](references/../SKILL.md) [h](/abs.md)\n";
    let resources = ["references/deep/a.md", "scripts/run.sh"];
    let messages: Vec<String> = validate_strict("logs", text.as_bytes(), &resources)
        .into_iter()
        .map(|found| found.message)
        .collect();
    assert_eq!(
        messages,
        [
            "The body links to files that are not there: `missing.md`.",
            "The body links out of the skill's directory: `/abs.md`.",
        ]
    );
}

#[test]
fn uploading_has_rules_of_its_own() {
    let text = "---\nname: my-claude-anthropic-<b>x\ndescription: Shows <b>bold</b> text\n---\n";
    let folder = SkillFolder::parse("x", text.as_bytes()).folder.unwrap();
    let ids: Vec<&str> = validate_upload(&folder)
        .iter()
        .map(|found| found.rule.id())
        .collect();
    assert_eq!(
        ids,
        [
            "upload-name-xml",
            "upload-description-xml",
            "upload-name-reserved",
            "upload-name-reserved",
        ]
    );
    let good = SkillFolder::parse("logs", GOOD.as_bytes()).folder.unwrap();
    assert_eq!(validate_upload(&good), []);
}

proptest! {
    #[test]
    fn no_bytes_crash_the_parser_and_silence_is_never_the_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let parsed = SkillFolder::parse("logs", &bytes);
        prop_assert!(parsed.folder.is_some() || parsed.diagnostics.iter().any(|d| d.severity == Severity::Error));
    }

    #[test]
    fn no_front_matter_crashes_the_parser(lines in "([a-z-]{1,12}: ?[ -~é\t]{0,20}\n){0,6}") {
        let text = format!("---\n{lines}---\nbody");
        let parsed = SkillFolder::parse("logs", text.as_bytes());
        prop_assert!(parsed.folder.is_some() || parsed.diagnostics.iter().any(|d| d.severity == Severity::Error));
        // What a strict check lets pass always loads.
        if validate_strict("logs", text.as_bytes(), &[]).iter().all(|d| d.severity != Severity::Error) {
            prop_assert!(parsed.folder.is_some());
        }
    }
}
