//! What the tests of verbs share: a workspace with plugins, and `conjure` with arguments.

use conjure_kit::{Cli, Model, Output, Workspace};
use serde_json::Value;

/// The package of the local executor.
pub(crate) const LOCAL: &str = "conjure-backend-local";
/// The package of the log fetcher.
pub(crate) const FETCHER: &str = "conjure-skill-log-fetcher";
/// The package of the cache manager.
pub(crate) const CACHE: &str = "conjure-skill-cache-manager";

/// A workspace with these plugins in its plugin directory.
pub(crate) fn workspace(plugins: &[&str]) -> Workspace {
    let workspace = Workspace::new().unwrap();
    for plugin in plugins {
        workspace.add_plugin(plugin).unwrap();
    }
    workspace
}

/// `conjure` in a workspace; the arguments are separated by blanks.
pub(crate) fn conjure(workspace: &Workspace, args: &str) -> Cli {
    conjure_kit::cli(args.split_whitespace()).workspace(workspace)
}

/// `conjure run` or `conjure chat` with a model; the last argument may hold blanks.
pub(crate) fn asks(workspace: &Workspace, model: &Model, args: &str, question: &str) -> Cli {
    let mut all = vec!["--provider", "anthropic", "--model", "a-model"];
    let mut given: Vec<&str> = args.split_whitespace().collect();
    let verb = given.remove(0);
    all.insert(0, verb);
    all.extend(given);
    if !question.is_empty() {
        all.push(question);
    }
    conjure_kit::cli(all).workspace(workspace).model(model)
}

/// What a program printed as JSON.
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", output.stdout, output.stderr))
}

/// What a program printed as JSON lines.
pub(crate) fn json_lines(output: &Output) -> Vec<Value> {
    output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}
