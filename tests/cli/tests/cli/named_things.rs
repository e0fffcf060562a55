//! What a person names by hand: a path, a provider or a plugin that is not there is wrong usage, and so
//! is an option that would change nothing.

use conjure_kit::{Cli, Output, conjure_bin};

use crate::stage::{conjure, workspace};

/// Refused as wrong usage, with these words.
fn is_refused(args: &str, output: &Output, words: &str) {
    assert_eq!(output.code, Some(2), "{args}: {output:?}");
    assert!(output.stderr.contains(words), "{args}: {output:?}");
    assert!(output.stdout.is_empty(), "{args}: {output:?}");
}

#[test]
fn what_is_not_there_or_is_something_else_is_wrong_usage() {
    let workspace = workspace(&[]);
    workspace.write("there", "{}").unwrap();
    for (args, words) in [
        ("thread import nope", "`nope`"),
        ("thread import there", "`there` is no thread"),
        ("thread import .", "`.`"),
        ("db import nope", "`nope`"),
        ("db backup there", "name another file"),
        ("db export there", "name another file"),
        ("man there", "there"),
        ("replay .", "`.` is a directory"),
        ("wire decode --wire gemini .", "`.` is a directory"),
        ("skill list nope", "`nope`"),
        ("skill check nope", "`nope`"),
        ("skill show nope", "`nope`"),
        ("skill upload nope", "`nope`"),
        ("plugin show nope", "`nope`"),
        ("plugin check nope", "`nope`"),
        ("plugin add nope --yes", "`nope`"),
        ("plugin trust nope", "`nope`"),
        ("plugin test nope", "`nope`"),
        ("run --plugin-dir nope Hi.", "--plugin-dir nope"),
        ("run --plugin nope Hi.", "--plugin nope"),
        ("--plugin-dir nope routes", "--plugin-dir nope"),
        ("serve --listen 127.0.0.1:0 --plugin nope", "--plugin nope"),
        ("models --offline nope", "there is no provider `nope`"),
        ("models nope", "there is no provider `nope`"),
        ("docker build --no-build --file nope", "nope"),
        ("docker build --no-build --file .", "is a directory"),
        ("mcp serve --http 127.0.0.1:0 --executor nope", "`nope`"),
        (
            "mcp serve --http 127.0.0.1:0 --skill nope --executor local",
            "nope",
        ),
        ("mcp serve --http 127.0.0.1:0 --working-dir nope", "`nope`"),
        ("mcp serve --stdio --executor nope", "`nope`"),
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        is_refused(args, &output, words);
    }
    let there = std::fs::read_to_string(workspace.work().join("there"));
    assert_eq!(there.unwrap(), "{}");
}

#[test]
fn an_option_that_would_change_nothing_is_refused() {
    let workspace = workspace(&[]);
    for (args, words) in [
        (
            "thread export t --html a.html --persona x --plugin-dir .",
            "--persona, --plugin-dir would change nothing",
        ),
        ("thread export t --ask y", "--ask would change nothing"),
        (
            "thread check t --to openai/gpt-5 --provider anthropic --model m --max-iterations 3",
            "--provider, --model, --max-iterations would change nothing",
        ),
        (
            "files save t --persona x --max-iterations 2 --ask z",
            "--persona, --max-iterations, --ask would change nothing",
        ),
        (
            "run --provider anthropic --model m --dialect deepseek Hi.",
            "`--dialect` would change nothing",
        ),
        (
            "wire decode --wire anthropic --dialect deepseek",
            "`--dialect` would change nothing",
        ),
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        is_refused(args, &output, words);
    }
}

#[test]
fn nobody_is_asked_about_a_backup_that_is_not_there() {
    let workspace = workspace(&[]);
    let output = conjure(&workspace, "db rollback").run().unwrap();
    is_refused("db rollback", &output, "there is no backup");
    assert!(!output.stderr.contains("This puts"), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn help_that_is_lost_is_no_success() {
    let workspace = workspace(&[]);
    let shell = |line: &str| {
        let line = format!("'{}' {line}", conjure_bin().unwrap().display());
        let shell = Cli::program("/bin/sh", ["-c", &line]).workspace(&workspace);
        shell.run().unwrap()
    };
    for verb in ["--help", "run --help", "--version"] {
        let output = shell(&format!("{verb} >/dev/full"));
        assert_eq!(output.code, Some(5), "{verb}: {output:?}");
        assert!(output.stderr.contains("could be written"), "{output:?}");
    }
    assert_eq!(shell("--help >/dev/null").code, Some(0));
}
