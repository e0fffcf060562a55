//! Variables in values: `${workspaceFolder}`, `${CACHE_DIR:-/tmp/c}`, and how a session file writes
//! them: `{ expand = "…" }` with `${workspaceFolder}`, `${userHome}`, `${env:NAME}` and
//! `${env:NAME:-default}`.

use super::secret_value::REFERENCE;

/// Known to the other program only, and not variables of any environment.
const FOREIGN_VARIABLES: &[&str] = &[
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_PLUGIN_DATA",
    "cwd",
    "execPath",
    "extensionPath",
    "file",
    "fileBasename",
    "fileBasenameNoExtension",
    "fileDirname",
    "fileExtname",
    "fileWorkspaceFolder",
    "lineNumber",
    "relativeFile",
    "relativeFileDirname",
    "selectedText",
    "workspaceFolderBasename",
];

/// The variables of a value.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    /// The value as a session file has it.
    pub(crate) expand: String,
    /// Variables of the environment.
    pub(crate) names: Vec<String>,
    /// Variables that have no meaning here, as they are written.
    pub(crate) unknown: Vec<String>,
    /// Variables that have a meaning here, as they are written.
    pub(crate) known: Vec<String>,
    pub(crate) has_default: bool,
    /// Whether a `${` in it is closed nowhere: a session file would take it for a variable.
    pub(crate) is_open: bool,
    /// Whether the value is one variable and nothing else.
    pub(crate) is_whole: bool,
}

/// A piece of a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextPiece<'a> {
    Text(&'a str),
    /// What stands between the braces of a variable: its name, and a default behind `:-`.
    Variable(&'a str),
}

/// The variables of a value; nothing when it has none.
pub(crate) fn of(value: &str) -> Option<Variables> {
    let pieces = pieces(value);
    let mut found = Variables::default();
    for piece in &pieces {
        match piece {
            TextPiece::Text(text) => {
                found.is_open |= text.contains("${");
                found.expand.push_str(text);
            }
            TextPiece::Variable(inner) => found.add(inner),
        }
    }
    found.is_whole = matches!(pieces.as_slice(), [TextPiece::Variable(_)]);
    let mut pieces = pieces.iter();
    let has_one = pieces.any(|piece| matches!(piece, TextPiece::Variable(_)));
    has_one.then_some(found)
}

/// A value in its pieces.
pub(crate) fn pieces(value: &str) -> Vec<TextPiece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = value;
    // OpenCode writes `{env:NAME}`.
    while let Some((before, after)) = next(rest) {
        let Some(end) = end(after) else { break };
        let (inner, after) = after.split_at(end);
        if !before.is_empty() {
            pieces.push(TextPiece::Text(before));
        }
        pieces.push(TextPiece::Variable(inner));
        rest = after.get(1..).unwrap_or_default();
    }
    if !rest.is_empty() {
        pieces.push(TextPiece::Text(rest));
    }
    pieces
}

/// The name of a variable, and its default.
pub(crate) fn name_and_default(inner: &str) -> (&str, Option<&str>) {
    match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    }
}

/// A value with something in place of its variables, so that what stands around them can be judged:
/// a default as it is, [`REFERENCE`] for a variable that `is_elsewhere` and for one that is none of
/// the environment, and a letter for any other.
pub(crate) fn with_placeholders(value: &str, is_elsewhere: &dyn Fn(&str) -> bool) -> String {
    let mut out = String::new();
    for piece in pieces(value) {
        match piece {
            TextPiece::Text(text) => out.push_str(text),
            TextPiece::Variable(inner) => {
                let (name, default) = name_and_default(inner);
                let of_environment = name.strip_prefix("env:").unwrap_or(name);
                match default.filter(|default| !default.is_empty()) {
                    Some(default) => out.push_str(&with_placeholders(default, is_elsewhere)),
                    None if is_elsewhere(name) || !is_of_environment(of_environment) => {
                        out.push(REFERENCE);
                    }
                    None => out.push('x'),
                }
            }
        }
    }
    out
}

/// Whether a variable is one of the environment.
fn is_of_environment(variable: &str) -> bool {
    is_name(variable) && !is_own(variable) && !FOREIGN_VARIABLES.contains(&variable)
}

/// Splits a text at its next variable: what is before it, and what follows its brace.
fn next(text: &str) -> Option<(&str, &str)> {
    let of_shell = text.find("${").map(|at| (at, at + 2));
    let own = text.find("{env:").map(|at| (at, at + 1));
    let first = match (of_shell, own) {
        (Some(a), Some(b)) => Some(if a.0 < b.0 { a } else { b }),
        (a, b) => a.or(b),
    };
    let (at, behind) = first?;
    Some((text.get(..at)?, text.get(behind..)?))
}

/// Position of the brace that closes a variable.
fn end(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

impl Variables {
    /// Whether a session file cannot say what the value means, so that it stays as it is.
    pub(crate) fn is_untranslatable(&self) -> bool {
        self.is_open || !self.unknown.is_empty()
    }

    fn add(&mut self, name: &str) {
        let (variable, default) = name_and_default(name);
        let variable = variable.strip_prefix("env:").unwrap_or(variable);
        if !FOREIGN_VARIABLES.contains(&variable) && (is_own(variable) || is_name(variable)) {
            self.known.push(format!("${{{name}}}"));
        }
        match variable {
            // Both are the project that is worked on.
            "workspaceFolder" | "workspaceRoot" | "CLAUDE_PROJECT_DIR" => {
                self.expand.push_str("${workspaceFolder}");
            }
            "userHome" => self.expand.push_str("${userHome}"),
            "pathSeparator" | "/" => self.expand.push('/'),
            variable if FOREIGN_VARIABLES.contains(&variable) || !is_name(variable) => {
                self.unknown.push(format!("${{{name}}}"));
            }
            variable => {
                self.names.push(variable.to_owned());
                self.expand.push_str("${env:");
                self.expand.push_str(variable);
                if let Some(default) = default {
                    self.has_default = true;
                    self.expand.push_str(":-");
                    match of(default) {
                        Some(inner) => {
                            self.expand.push_str(&inner.expand);
                            self.names.extend(inner.names);
                            self.unknown.extend(inner.unknown);
                        }
                        None => self.expand.push_str(default),
                    }
                }
                self.expand.push('}');
            }
        }
    }
}

/// Whether a variable is none of the environment and means something here all the same.
fn is_own(variable: &str) -> bool {
    matches!(
        variable,
        "workspaceFolder"
            | "workspaceRoot"
            | "CLAUDE_PROJECT_DIR"
            | "userHome"
            | "pathSeparator"
            | "/"
    )
}

/// Whether a variable of an environment may be called so.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_their_meaning() {
        for (value, expand) in [
            ("${CACHE_DIR:-/tmp/c}", "${env:CACHE_DIR:-/tmp/c}"),
            ("${workspaceFolder}/a", "${workspaceFolder}/a"),
            ("${CLAUDE_PROJECT_DIR:-.}", "${workspaceFolder}"),
            ("x${userHome}${/}y", "x${userHome}/y"),
            ("${env:A}-${B}", "${env:A}-${env:B}"),
            ("{env:A}", "${env:A}"),
            ("${A:-${userHome}/c}", "${env:A:-${userHome}/c}"),
        ] {
            assert_eq!(of(value).unwrap().expand, expand, "{value}");
        }
        assert!(of("${A}").unwrap().is_whole && !of("a${A}").unwrap().is_whole);
        assert_eq!(of("$A {x} ${open"), None);
        let open = of("${A}/${open").unwrap();
        assert!(open.is_untranslatable() && open.unknown.is_empty());
        assert!(!of("${A}/{env:open").unwrap().is_untranslatable());
        let unknown = of("${file}:${config:a.b}").unwrap().unknown;
        assert_eq!(unknown, ["${file}", "${config:a.b}"]);
    }

    #[test]
    fn what_stands_around_variables_can_be_judged() {
        let is_elsewhere = |name: &str| name == "OWN";
        for (value, judged) in [
            ("a", "a"),
            ("a${X}b{env:Y}", "axbx"),
            ("${X:-a${Y:-b}}", "ab"),
            ("k=${X:-}", "k=x"),
            ("${OWN}:${env:OWN}", "*:x"),
            ("${workspaceFolder}/${file}/${input:a}", "*/*/*"),
        ] {
            let judged = judged.replace('*', &REFERENCE.to_string());
            assert_eq!(with_placeholders(value, &is_elsewhere), judged, "{value}");
        }
    }
}
