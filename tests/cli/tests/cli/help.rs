//! Help through the real binary. What each page of it says stands in `conjure-host/docs/cli.md`,
//! which a test of the program keeps.

use insta::assert_snapshot;

/// The most columns of a line that is wrapped.
const WIDEST: usize = 100;

/// What `conjure VERB --help` prints.
fn help(verb: &[String]) -> String {
    let help = "--help".to_owned();
    let output = conjure_kit::cli(verb.iter().chain([&help]).cloned())
        .run()
        .unwrap();
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(0), ""),
        "{verb:?}"
    );
    output.stdout
}

/// The verbs that a page of help lists.
fn listed(help: &str) -> Vec<String> {
    let list = help.split_once("Commands:\n").map_or("", |(_, rest)| {
        rest.split_once("\n\n").map_or(rest, |(list, _)| list)
    });
    // Descriptions that go on in the next line stand further to the right.
    let verbs = list.lines().filter_map(|line| line.strip_prefix("  "));
    let verbs = verbs.filter(|line| !line.starts_with(' '));
    let verbs = verbs.filter_map(|line| line.split_whitespace().next());
    let verbs = verbs.filter(|verb| *verb != "help");
    verbs.map(str::to_owned).collect()
}

#[test]
fn every_verb_that_is_listed_has_help_that_fits_a_terminal() {
    let mut left = vec![Vec::new()];
    let mut seen = Vec::new();
    while let Some(verb) = left.pop() {
        let text = help(&verb);
        assert!(text.contains("Usage: conjure"), "{verb:?}: {text}");
        // Examples are lines to be copied, and are not wrapped.
        let wrapped = text.split("Examples:").next().unwrap_or_default();
        let wide = wrapped.lines().find(|line| line.chars().count() > WIDEST);
        assert_eq!(wide, None, "{verb:?}");
        for below in listed(&text) {
            left.push([verb.as_slice(), &[below]].concat());
        }
        seen.push(verb.join(" "));
    }
    for verb in ["run", "session memory edit", "skill remote delete"] {
        assert!(seen.iter().any(|seen| seen == verb), "{verb}: {seen:?}");
    }
}

#[test]
fn words_of_earlier_versions_work_and_are_in_no_help() {
    for (group, old, new) in [
        ("auth", "add", "create"),
        ("auth", "test", "check"),
        ("auth", "remove", "delete"),
        ("persona", "remove", "delete"),
        ("plugin", "new", "create"),
        ("plugin", "inspect", "show"),
        ("skill", "validate", "check"),
        ("mcp", "doctor", "check"),
    ] {
        let typed = |verb: &str| help(&[group.to_owned(), verb.to_owned()]);
        assert_eq!(typed(old), typed(new), "{group} {old}");
        let verbs = listed(&help(&[group.to_owned()]));
        assert!(verbs.iter().any(|verb| verb == new), "{group}: {verbs:?}");
        assert!(verbs.iter().all(|verb| verb != old), "{group}: {verbs:?}");
    }
    let trust = ["skill", "trust", "--remove"];
    let output = conjure_kit::cli(trust).run().unwrap();
    assert!(output.stdout.ends_with("is not trusted.\n"), "{output:?}");
    let trust = ["skill", "trust"].map(str::to_owned);
    assert!(!help(&trust).contains("--remove"));
}

#[test]
fn every_exit_code_is_in_the_help() {
    let text = help(&[]);
    let codes = text.split_once("Exit codes:\n").map_or("", |(_, rest)| {
        rest.split_once("\n\n").map_or(rest, |(list, _)| list)
    });
    let codes = codes
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    assert_eq!(
        codes.collect::<Vec<_>>(),
        ["0", "1", "2", "3", "4", "5", "130", "143"]
    );
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
    assert_snapshot!(output.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: unrecognized subcommand 'rnu'

    Usage: conjure [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn an_option_for_plugins_is_refused_where_no_plugin_is_used() {
    for (args, words) in [
        ("thread list --plugin x.so", "'--plugin'"),
        (
            "--plugin x.so thread list",
            "`conjure thread list` uses no plugins",
        ),
        (
            "--plugin-dir plugins auth list",
            "`conjure auth list` uses no plugins",
        ),
    ] {
        let output = conjure_kit::cli(args.split_whitespace()).run().unwrap();
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(words), "{output:?}");
    }
    for args in [
        "--plugin-dir none plugin list",
        "plugin list --plugin-dir none",
    ] {
        let output = conjure_kit::cli(args.split_whitespace()).run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains("\n  none\n"), "{output:?}");
    }
}
