//! What was left out: the lines `LEFT OUT: <what>: <why>` in the output of tests, and checks
//! whose tool is not installed.
//!
//! A test that needs something which is not here prints such a line and returns. On a
//! developer's machine that is said at the end; in CI it fails the run, since CI installs
//! what the tests need: only what [`EXPECTED_IN_CI`] names may be missing there.

use std::collections::BTreeMap;

/// What CI may leave out: the `<what>` of the line, and why that is right.
pub(crate) const EXPECTED_IN_CI: [(&str, &str); 3] = [
    (
        "cassettes",
        "recorded traffic is not part of the repository; CI uses it where it lies beside the checkout",
    ),
    ("live provider", "CI has no key of any provider"),
    (
        "fuzz targets",
        "CI runs them behind its tests, and a workflow each night",
    ),
];

/// Begins a line that says what a test left out.
pub(crate) const MARK: &str = "LEFT OUT: ";

/// Everything left out in one run, each with the number of tests that said so; none: a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut(BTreeMap<(String, String), usize>);

impl LeftOut {
    /// Takes a line of a test's output in, if it says that something was left out.
    pub(crate) fn take_line(&mut self, line: &str) {
        if let Some(rest) = line.trim_end().strip_prefix(MARK) {
            let (what, why) = rest.split_once(": ").unwrap_or((rest, "no reason given"));
            *self
                .0
                .entry((what.trim().to_owned(), why.trim().to_owned()))
                .or_default() += 1;
        }
    }

    /// Takes in what is no test.
    pub(crate) fn add_check(&mut self, what: &str, why: &str) {
        self.0.entry((what.to_owned(), why.to_owned())).or_default();
    }

    /// Takes in what the tests of a JUnit report printed.
    pub(crate) fn take_junit(&mut self, report: &str) {
        for output in ["system-out", "system-err"] {
            let (open, close) = (format!("<{output}>"), format!("</{output}>"));
            for part in report.split(open.as_str()).skip(1) {
                let text = part.split(close.as_str()).next().unwrap_or_default();
                unescape(text).lines().for_each(|line| self.take_line(line));
            }
        }
    }

    /// One line each: what, how many tests, why.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|((what, why), tests)| {
            let tests = match tests {
                0 => String::new(),
                1 => " (1 test)".to_owned(),
                _ => format!(" ({tests} tests)"),
            };
            format!("{what}{tests}: {why}")
        })
    }

    /// What should have run in CI. `cassettes_given`: CI was told where they are.
    pub(crate) fn not_expected_in_ci(&self, cassettes_given: bool) -> Vec<&str> {
        let mut names: Vec<_> = self.0.keys().map(|(what, _)| what.as_str()).collect();
        names.dedup();
        names.retain(|name| {
            let expected = EXPECTED_IN_CI.iter().any(|(what, _)| what == name);
            !expected || (*name == "cassettes" && cassettes_given)
        });
        names
    }
}

/// The five entities of XML.
pub(crate) fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_collected_from_text_and_from_a_junit_report() {
        let mut left_out = LeftOut::default();
        left_out.take_line("LEFT OUT: root: the test mounts a file system");
        left_out.take_line("something LEFT OUT: not at the start");
        left_out.take_junit(
            "<testcase name=\"a\"><system-out>LEFT OUT: cassettes: CONJURE_CASSETTES is not set\nmore\n</system-out>\
             <system-err>LEFT OUT: gawk: &lt;not installed&gt;</system-err></testcase>\
             <testcase name=\"b\"><system-out>LEFT OUT: cassettes: CONJURE_CASSETTES is not set</system-out></testcase>",
        );
        let lines: Vec<_> = left_out.lines().collect();
        assert_eq!(
            lines,
            [
                "cassettes (2 tests): CONJURE_CASSETTES is not set",
                "gawk (1 test): <not installed>",
                "root (1 test): the test mounts a file system",
            ]
        );
    }

    #[test]
    fn a_check_that_could_not_run_is_told_and_fails_ci() {
        let mut left_out = LeftOut::default();
        left_out.add_check("dependencies", "cargo-deny is not installed");
        let lines: Vec<_> = left_out.lines().collect();
        assert_eq!(lines, ["dependencies: cargo-deny is not installed"]);
        assert_eq!(left_out.not_expected_in_ci(false), ["dependencies"]);
    }

    #[test]
    fn in_ci_only_what_is_expected_may_be_left_out() {
        let mut left_out = LeftOut::default();
        left_out.take_line("LEFT OUT: cassettes: CONJURE_CASSETTES is not set");
        assert!(left_out.not_expected_in_ci(false).is_empty());
        assert_eq!(left_out.not_expected_in_ci(true), ["cassettes"]);
        left_out.take_line("LEFT OUT: rustc 1.85: CONJURE_RUSTC_185 is not set");
        assert_eq!(left_out.not_expected_in_ci(false), ["rustc 1.85"]);
    }
}
