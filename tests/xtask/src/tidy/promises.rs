//! The house rule about the security page: each promise on it names a test that there is.
//!
//! Looks at names only; whether the tests pass is for the tests.

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
            let definition = format!("fn {test}(");
            let is_there = |file: &super::tree::File| {
                file.path.ends_with(".rs") && file.text.contains(&definition)
            };
            if !tree.files.iter().any(is_there) {
                let message = format!("there is no test `{test}`; name one that there is");
                findings.push(Finding::new(place.clone(), message));
            }
        }
    }
    findings
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
        let test = "fn it_holds() {}";
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
    }
}
