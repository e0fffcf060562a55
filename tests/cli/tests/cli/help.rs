//! Every page of help.

use insta::assert_snapshot;

/// Every verb, as it is written after `conjure`.
const VERBS: [&str; 17] = [
    "",
    "run",
    "chat",
    "call",
    "routes",
    "plugin",
    "plugin list",
    "plugin inspect",
    "plugin check",
    "plugin new",
    "skill",
    "skill list",
    "skill validate",
    "skill show",
    "skill trust",
    "completions",
    "help",
];

fn help(verb: &str) -> String {
    let mut args: Vec<&str> = verb.split_whitespace().collect();
    args.push("--help");
    let output = conjure_kit::cli(args).run().unwrap();
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(0), ""),
        "{verb}"
    );
    output.stdout
}

#[test]
fn every_verb_has_help_and_no_verb_is_missing_here() {
    for verb in VERBS.iter().filter(|verb| **verb != "help") {
        let text = help(verb);
        assert!(text.contains("Usage: conjure"), "{verb}: {text}");
        let listed = text.split_once("Commands:\n").map_or("", |(_, rest)| {
            rest.split_once("\n\n").map_or(rest, |(list, _)| list)
        });
        for line in listed.lines() {
            // Descriptions that go on in the next line stand further to the right.
            let Some(name) = line
                .strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '))
            else {
                continue;
            };
            let name = name.split_whitespace().next().unwrap();
            let known = format!("{verb} {name}");
            assert!(name == "help" || VERBS.contains(&known.trim()), "{known}");
        }
    }
}

#[test]
fn the_program() {
    assert_snapshot!(help(""), @"");
}

#[test]
fn run() {
    assert_snapshot!(help("run"), @"");
}

#[test]
fn chat() {
    assert_snapshot!(help("chat"), @"");
}

#[test]
fn call() {
    assert_snapshot!(help("call"), @"");
}

#[test]
fn routes() {
    assert_snapshot!(help("routes"), @"");
}

#[test]
fn plugin() {
    assert_snapshot!(help("plugin"), @"");
}

#[test]
fn plugin_list() {
    assert_snapshot!(help("plugin list"), @"");
}

#[test]
fn plugin_inspect() {
    assert_snapshot!(help("plugin inspect"), @"");
}

#[test]
fn plugin_check() {
    assert_snapshot!(help("plugin check"), @"");
}

#[test]
fn plugin_new() {
    assert_snapshot!(help("plugin new"), @"");
}

#[test]
fn skill() {
    assert_snapshot!(help("skill"), @"");
}

#[test]
fn skill_list() {
    assert_snapshot!(help("skill list"), @"");
}

#[test]
fn skill_validate() {
    assert_snapshot!(help("skill validate"), @"");
}

#[test]
fn skill_show() {
    assert_snapshot!(help("skill show"), @"");
}

#[test]
fn skill_trust() {
    assert_snapshot!(help("skill trust"), @"");
}

#[test]
fn completions() {
    assert_snapshot!(help("completions"), @"");
}

#[test]
fn the_version_is_one_line() {
    let output = conjure_kit::cli(["--version"]).run().unwrap();
    let version = format!("conjure {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((output.code, output.stdout), (Some(0), version));
}

#[test]
fn a_mistake_is_told_with_the_way_out() {
    let output = conjure_kit::cli(["rnu"]).run().unwrap();
    assert_snapshot!(output.snapshot(), @"");
}
