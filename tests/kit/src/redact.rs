//! Replacing what differs from run to run, so that an output can be a snapshot.
//!
//! Knows paths, times, durations, ids, hashes and ports by their shape; hides nothing else.

use regex::Regex;

use crate::{Workspace, repo_root};

/// A list of replacements, applied in order.
#[derive(Clone, Debug)]
pub struct Redactor {
    rules: Vec<(Regex, String)>,
}

/// Shapes that differ from run to run, the longer before what is contained in it.
const SHAPES: &[(&str, &str)] = &[
    (
        r"\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?(\[[\w/]+\])?",
        "[TIME]",
    ),
    (
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
        "[UUID]",
    ),
    (r"\b[0-9a-f]{32,128}\b", "[HASH]"),
    (r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+\b", "$1:[PORT]"),
    (r"\b\d+(\.\d+)? ?(ns|µs|us|ms|s|min)\b", "[DURATION]"),
];

impl Default for Redactor {
    fn default() -> Self {
        let mut redactor = Self { rules: Vec::new() };
        redactor = redactor.literal(&repo_root().to_string_lossy(), "[REPO]");
        for (pattern, replacement) in SHAPES {
            redactor = redactor.pattern(pattern, replacement);
        }
        redactor
    }
}

impl Redactor {
    /// The default rules, and the workspace's paths.
    #[must_use]
    pub fn for_workspace(workspace: &Workspace) -> Self {
        let mut redactor =
            Self { rules: Vec::new() }.literal(&workspace.root().to_string_lossy(), "[WORKSPACE]");
        redactor.rules.extend(Self::default().rules);
        redactor
    }

    /// Replaces a text as it is.
    #[must_use]
    pub fn literal(self, text: &str, replacement: &str) -> Self {
        self.pattern(&regex::escape(text), &replacement.replace('$', "$$"))
    }

    /// Replaces what fits a pattern; `$1` in the replacement stands for its first group.
    ///
    /// # Panics
    /// When the pattern is no regular expression, which is a mistake in the test.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "patterns are constants of tests, and a test is told at once"
    )]
    pub fn pattern(mut self, pattern: &str, replacement: &str) -> Self {
        let regex = Regex::new(pattern).expect("a redaction pattern is a regular expression");
        self.rules.push((regex, replacement.to_owned()));
        self
    }

    /// The text with everything replaced.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        self.rules
            .iter()
            .fold(text.to_owned(), |text, (pattern, replacement)| {
                pattern
                    .replace_all(&text, replacement.as_str())
                    .into_owned()
            })
    }

    /// The rules as pairs of pattern and replacement, for the filters of insta.
    #[must_use]
    pub fn filters(&self) -> Vec<(&str, &str)> {
        self.rules
            .iter()
            .map(|(pattern, replacement)| (pattern.as_str(), replacement.as_str()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_replaced_and_the_rest_stays() {
        let workspace = Workspace::new().unwrap();
        let text = format!(
            "{}/work/a.txt {}/README.md at 2026-01-02T03:04:05.678Z and 2026-01-02 03:04:05 took 1.5 ms, 12ms, 3 s; \
             id 01890a5d-ac96-774b-bcce-b302099a8057 sha {} port http://127.0.0.1:40123/x; 5 messages, v1.2.3, a1b2c3d4",
            workspace.root().display(),
            repo_root().display(),
            "0123456789abcdef".repeat(4),
        );
        assert_eq!(
            Redactor::for_workspace(&workspace).apply(&text),
            "[WORKSPACE]/work/a.txt [REPO]/README.md at [TIME] and [TIME] took [DURATION], [DURATION], [DURATION]; \
             id [UUID] sha [HASH] port http://127.0.0.1:[PORT]/x; 5 messages, v1.2.3, a1b2c3d4"
        );
    }

    #[test]
    fn a_test_adds_its_own() {
        let redactor = Redactor::default()
            .literal("$HOME", "[$]")
            .pattern(r"seq (\d)\.\d+", "seq $1.[N]");
        assert_eq!(redactor.apply("$HOME seq 1.42"), "[$] seq 1.[N]");
        assert!(
            redactor
                .filters()
                .contains(&(r"seq (\d)\.\d+", "seq $1.[N]"))
        );
    }
}
