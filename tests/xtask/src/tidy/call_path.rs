//! The way of a call: through which functions it goes, from the model's decoded reply to the plugin's
//! object. It is followed by name, so that the list cannot say less than the code does without a test
//! that fails.

use std::collections::BTreeSet;

use super::{
    Finding,
    tree::{File, Tree},
    words::occurrences,
};

/// The most functions that a call may go through.
pub(crate) const MAX_FUNCTIONS: usize = 20;
/// The most files that they may be in.
pub(crate) const MAX_FILES: usize = 10;

/// The functions in order, each with its file: a native skill's call on a thread of the pool, which is the
/// longest way.
const CALL_PATH: [(&str, &str); 19] = [
    ("conjure-host/runtime/src/session/open_thread.rs", "input"),
    ("conjure-core/src/turn/machine/mod.rs", "handle"),
    ("conjure-core/src/turn/machine/replies.rs", "accept_reply"),
    ("conjure-core/src/turn/machine/calls.rs", "begin_step"),
    ("conjure-core/src/turn/machine/calls.rs", "run_calls"),
    ("conjure-host/runtime/src/session/open_thread.rs", "perform"),
    (
        "conjure-host/runtime/src/session/open_thread.rs",
        "hand_over",
    ),
    ("conjure-host/runtime/src/session/running_calls.rs", "run"),
    ("conjure-host/runtime/src/session/routed_call.rs", "run"),
    ("conjure-host/runtime/src/backend/run.rs", "run"),
    ("conjure-host/runtime/src/backend/run.rs", "run_async"),
    ("conjure-host/runtime/src/backend/run.rs", "skill"),
    ("conjure-host/runtime/src/backend/run.rs", "tool_result"),
    ("conjure-host/runtime/src/backend/run.rs", "request"),
    ("conjure-host/plugins/src/instance.rs", "request"),
    ("conjure-host/plugins/src/link.rs", "request"),
    ("conjure-host/plugins/src/pool.rs", "run"),
    ("conjure-host/plugins/src/link.rs", "run"),
    ("conjure-host/plugins/src/link.rs", "enter"),
];

/// Hops that are not a call by name: an action that is carried out, one that waits for the log, a job that
/// was handed to a thread.
const NOT_BY_NAME: [(&str, &str); 3] = [
    ("run_calls", "perform"),
    ("perform", "hand_over"),
    ("run", "run"),
];

/// How many functions a call goes through, and in how many files.
pub(crate) fn length() -> (usize, usize) {
    let files: BTreeSet<&str> = CALL_PATH.iter().map(|(file, _)| *file).collect();
    (CALL_PATH.len(), files.len())
}

pub(crate) fn calls_go_the_listed_way(tree: &Tree) -> Vec<Finding> {
    // Trees of tests have no such crate.
    if !tree.has("conjure-host/runtime/Cargo.toml") {
        return Vec::new();
    }
    let mut findings = missing_functions(tree, &CALL_PATH);
    let (functions, files) = length();
    if functions > MAX_FUNCTIONS || files > MAX_FILES {
        let message = format!(
            "a call goes through {functions} functions in {files} files; at most {MAX_FUNCTIONS} in \
             {MAX_FILES}"
        );
        findings.push(Finding::new(
            "tests/xtask/src/tidy/call_path.rs".to_owned(),
            message,
        ));
    }
    findings
}

/// Functions of the way that are not where they are said to be, or that do not call the next one.
fn missing_functions(tree: &Tree, path: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, (file, function)) in path.iter().enumerate() {
        let found = tree.rust().find(|known| known.path == *file);
        let bodies = found.map_or(Vec::new(), |file| bodies(file, function));
        if bodies.is_empty() {
            let message = format!("has no `fn {function}`, which calls are said to go through");
            findings.push(Finding::new((*file).to_owned(), message));
            continue;
        }
        let Some((_, next)) = path.get(at + 1) else {
            continue;
        };
        let call = format!("{next}(");
        let is_by_name = !NOT_BY_NAME.contains(&(function, next));
        if is_by_name && !bodies.iter().any(|body| body.contains(&call)) {
            let message =
                format!("`fn {function}` does not call `{next}`, where calls are said to go");
            findings.push(Finding::new((*file).to_owned(), message));
        }
    }
    findings
}

/// The bodies of the functions of this name.
fn bodies<'f>(file: &'f File, name: &str) -> Vec<&'f str> {
    let starts = [format!("fn {name}("), format!("fn {name}<")];
    let starts = starts
        .iter()
        .flat_map(|start| occurrences(&file.shipped, start));
    starts
        .filter_map(|at| {
            let rest = file.text.get(at..)?;
            let line = file.text.get(..at)?.rsplit('\n').next()?;
            let indent = line.len() - line.trim_start().len();
            let end = rest.find(&format!("\n{}}}\n", " ".repeat(indent)))?;
            rest.get(..end)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_is_gone_or_calls_another_one_is_found() {
        let tree = Tree::of(&[
            (
                "a.rs",
                "//! A.\nfn one() {\n    two();\n}\nfn two() {\n    other();\n}\n",
            ),
            (
                "b.rs",
                "//! B.\nimpl B {\n    fn three(&self) {\n        1\n    }\n}\n",
            ),
        ]);
        let path = [("a.rs", "one"), ("a.rs", "two"), ("b.rs", "three")];
        let messages: Vec<String> = missing_functions(&tree, &path)
            .into_iter()
            .map(|f| f.message)
            .collect();
        assert_eq!(
            messages,
            ["`fn two` does not call `three`, where calls are said to go"]
        );
        let path = [("a.rs", "one"), ("b.rs", "two")];
        let messages: Vec<String> = missing_functions(&tree, &path)
            .into_iter()
            .map(|f| f.message)
            .collect();
        assert_eq!(
            messages,
            ["has no `fn two`, which calls are said to go through"]
        );
    }
}
