//! The house rule about the security page: each promise on it names a test that there is.
//!
//! Looks at names and attributes only; whether the tests pass is for the tests.

use super::Finding;
use super::tree::Tree;

/// The page.
const PAGE: &str = "conjure-host/docs/security.md";

/// Every promise names a test, and every test that is named is there.
pub(super) fn promises_have_tests(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.files.iter().find(|file| file.path == PAGE) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        let Some(tests) = tests_of(line) else {
            continue;
        };
        let place = format!("{PAGE}:{number}");
        if tests.is_empty() {
            let message = "the promise names no test; write one and name it";
            findings.push(Finding::new(place.clone(), message));
        }
        for test in tests {
            let is_there =
                |file: &super::tree::File| file.path.ends_with(".rs") && has_test(&file.text, test);
            if !tree.files.iter().any(is_there) {
                let message = format!(
                    "there is no test `{test}` (a function under `#[test]` that is not ignored); \
                     name one that there is"
                );
                findings.push(Finding::new(place.clone(), message));
            }
        }
    }
    findings
}

/// Whether a file has a test of this name that runs: a function with an attribute that ends in
/// `test`, as those of tokio and of documentation do, and with none that leaves it out.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_function = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        let rest = line
            .strip_prefix("fn ")
            .and_then(|line| line.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with('('))
    };
    let found = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_function(line));
    found.into_iter().any(|(at, _)| {
        let above = lines.get(..at).unwrap_or_default().iter().rev();
        let attributes = above
            .take_while(|line| !line.is_empty() && !line.ends_with('}') && !line.ends_with(';'))
            .filter_map(|line| line.strip_prefix("#["));
        let (mut is_test, mut is_ignored) = (false, false);
        for attribute in attributes {
            let path = attribute
                .split(['(', ']', ' ', '='])
                .next()
                .unwrap_or_default();
            is_test |= path.rsplit("::").next() == Some("test");
            is_ignored |= path == "ignore";
        }
        is_test && !is_ignored
    })
}

/// The tests in the last cell of a row of a table of promises; nothing for other lines.
fn tests_of(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    let (promise, tests) = row.rsplit_once('|')?;
    let is_head = promise.trim() == "promise" || promise.trim().trim_matches('-').is_empty();
    (!is_head).then(|| tests.split('`').skip(1).step_by(2).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(page: &str) -> Vec<String> {
        let test = "#[test]\nfn it_holds() {}\n\n/// It stays.\n#[tokio::test(start_paused = true)]\n\
            #[cfg(unix)]\nasync fn it_stays() {}\n\nfn it_helps() {}\n\n#[test]\n\
            #[ignore = \"slow\"]\nfn it_waits() {}\n";
        let tree = Tree::of(&[(PAGE, page), ("tests/a.rs", test)]);
        let findings = promises_have_tests(&tree).into_iter();
        findings.map(|finding| finding.message).collect()
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        let head = "| promise | test |\n|---|---|\n";
        assert!(places(&format!("{head}| It holds | `it_holds` |\n")).is_empty());
        let none = places(&format!("{head}| It holds | |\n"));
        assert!(none[0].contains("names no test"), "{none:?}");
        let gone = places(&format!("{head}| It holds | `it_holds`, `it_held` |\n"));
        assert_eq!(gone.len(), 1);
        assert!(gone[0].contains("`it_held`"), "{gone:?}");
        assert!(places(&format!("{head}| It stays | `it_stays` |\n")).is_empty());
        for none in ["it_helps", "it_waits"] {
            let found = places(&format!("{head}| It holds | `{none}` |\n"));
            assert_eq!(found.len(), 1, "{none}");
        }
    }
}
