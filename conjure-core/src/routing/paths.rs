//! Paths of rules and of calls, resolved by their text.
//!
//! `docs/../../x` is not below `docs`, whatever pattern it fits as text. Knows no file system, so a
//! symbolic link is what it says it is.

/// The path without `.`, `..` and empty parts, as far as its text says: `a/./b//../c` is `a/c`.
///
/// What goes above its beginning keeps its `..`; above the root there is nothing. A slash at the end
/// goes, because `a/` is `a` and not below it.
pub(super) fn resolved(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                Some(_) => parts.push(".."),
                None if is_absolute => {}
                None => parts.push(".."),
            },
            part => parts.push(part),
        }
    }
    let beginning = if is_absolute { "/" } else { "" };
    format!("{beginning}{}", parts.join("/"))
}

/// Whether a path goes above where it begins; a backslash is a separator too, for systems on which
/// it is one.
pub(super) fn escapes_start(resolved: &str) -> bool {
    resolved.split(['/', '\\']).any(|part| part == "..")
}

/// Whether a word looks like a path, or has one behind a `=`.
pub(super) fn is_path(word: &str) -> bool {
    word.contains('/') || escapes_start(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_by_its_text() {
        for (path, expected) in [
            ("docs/a", "docs/a"),
            ("docs//a", "docs/a"),
            ("./docs/./a", "docs/a"),
            ("docs/../docs/a", "docs/a"),
            ("docs/../../../etc/shadow", "../../etc/shadow"),
            ("docs/..", ""),
            ("docs/.", "docs"),
            ("docs/", "docs"),
            ("/data/../etc", "/etc"),
            ("/..", "/"),
            ("/", "/"),
            ("..", ".."),
            ("../..", "../.."),
            ("", ""),
            ("--file=docs/../../etc/shadow", "../etc/shadow"),
            ("a..b/c..", "a..b/c.."),
        ] {
            assert_eq!(resolved(path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_leaves_is_seen() {
        for path in ["..", "../a", "a\\..\\b"] {
            assert!(escapes_start(path), "{path}");
        }
        for path in ["a", "a/b..c", "..a", "/"] {
            assert!(!escapes_start(path), "{path}");
        }
    }
}
