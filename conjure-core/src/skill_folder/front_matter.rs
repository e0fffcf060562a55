//! From the bytes of a `SKILL.md` to its fields and body, without judging them.
//!
//! Handles what real files have: a byte order mark, CRLF, an unquoted colon. What cannot be
//! read becomes a diagnostic, never a panic. Which fields are right is `validate`'s business.

use serde_json::{Map, Value};

use super::colon::quote_colons;
use super::yaml::{self, Yaml, YamlError};
use super::{Diagnostic, Severity, SkillRule};

/// A `SKILL.md` that could be read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    /// All fields in the order written; a field without a value is left out.
    pub(super) fields: Map<String, Value>,
    /// The scalars of `metadata` as text, as they were written (`1.10`, not `1.1`).
    pub(super) metadata: Vec<(String, String)>,
    /// What follows the front matter, with LF line ends, outer blank lines removed.
    pub(super) body: String,
    /// The front matter's lines, for finding a field's line.
    source: String,
}

impl Document {
    /// Line of `SKILL.md` on which a top-level field stands, counted from 1.
    pub(super) fn line_of(&self, field: &str) -> Option<usize> {
        self.source
            .lines()
            .position(|line| {
                line.trim_start_matches(['"', '\''])
                    .strip_prefix(field)
                    .is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
            })
            .map(|index| index + FIRST_LINE)
    }
}

/// The front matter's first line is the second of the file.
const FIRST_LINE: usize = 2;

/// Reads a `SKILL.md`. Diagnostics have the severity of a strict validation.
pub(super) fn read(bytes: &[u8]) -> (Option<Document>, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let document = read_into(bytes, &mut diagnostics);
    (document, diagnostics)
}

fn read_into(bytes: &[u8], diagnostics: &mut Vec<Diagnostic>) -> Option<Document> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            diagnostics.push(Diagnostic {
                rule: SkillRule::Utf8,
                severity: Severity::Error,
                line: Some(1 + good.iter().filter(|byte| **byte == b'\n').count()),
                message: format!(
                    "SKILL.md is not UTF-8 text: byte {} is not valid.",
                    error.valid_up_to()
                ),
                help: "Save the file as UTF-8.".into(),
            });
            return None;
        }
    };
    let text = match text.strip_prefix('\u{feff}') {
        None => text,
        Some(rest) => {
            diagnostics.push(Diagnostic {
                rule: SkillRule::Bom,
                severity: Severity::Warning,
                line: Some(1),
                message: "SKILL.md begins with a byte order mark, which other hosts stumble over."
                    .into(),
                help: "Save the file as UTF-8 without a byte order mark.".into(),
            });
            rest
        }
    };
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (source, body) = match split(&text) {
        Ok(parts) => parts,
        Err(diagnostic) => {
            diagnostics.push(diagnostic);
            return None;
        }
    };
    let value = match parse_or_quote(source, diagnostics) {
        Ok(parsed) => parsed,
        Err(diagnostic) => {
            diagnostics.push(diagnostic);
            return None;
        }
    };
    let (metadata, fields) = match value {
        Yaml::Map(pairs) => (
            metadata_text(&pairs),
            pairs
                .into_iter()
                .map(|(key, value)| (key.key(), value.into_json()))
                .filter(|(_, value)| !value.is_null())
                .collect(),
        ),
        Yaml::Scalar {
            value: Value::Null, ..
        } => {
            diagnostics.push(unreadable(
                SkillRule::FrontMatterEmpty,
                Some(1),
                "The front matter is empty.",
            ));
            return None;
        }
        _ => {
            diagnostics.push(unreadable(
                SkillRule::FrontMatterMap,
                Some(FIRST_LINE),
                "The front matter is not a map of fields.",
            ));
            return None;
        }
    };
    Some(Document {
        metadata,
        fields,
        body: body.trim_start_matches('\n').trim_end().to_owned(),
        source: source.to_owned(),
    })
}

/// Splits into front matter and body; both without the `---` lines.
fn split(text: &str) -> Result<(&str, &str), Diagnostic> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_end() != "---" {
        return Err(unreadable(
            SkillRule::FrontMatterMissing,
            Some(1),
            "SKILL.md does not begin with a line `---`, so it has no front matter.",
        ));
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let source = rest.get(..end).unwrap_or_default();
            let body = rest.get(end + line.len()..).unwrap_or_default();
            return Ok((source, body));
        }
        end += line.len();
    }
    Err(unreadable(
        SkillRule::FrontMatterUnclosed,
        Some(1),
        "The front matter is not closed by a line `---`.",
    ))
}

/// Parses; when that fails, once more with values quoted that have a colon in them.
fn parse_or_quote(source: &str, diagnostics: &mut Vec<Diagnostic>) -> Result<Yaml, Diagnostic> {
    let error = match yaml::read(source) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    // What is too much is not looked at again.
    let quoted = match &error {
        YamlError::TooMuch { .. } => None,
        _ => quote_colons(source),
    };
    if let Some(quoted) = quoted
        && let Ok(value) = yaml::read(&quoted.yaml)
    {
        for (field, index) in quoted.fields {
            diagnostics.push(Diagnostic {
                rule: SkillRule::UnquotedColon,
                severity: Severity::Error,
                line: Some(index + FIRST_LINE),
                message: format!("The value of `{field}` has a colon and is not quoted; it was read as if it were."),
                help: format!("Put the value of `{field}` in quotes."),
            });
        }
        return Ok(value);
    }
    let line = Some(error.line() + FIRST_LINE - 1);
    Err(unreadable(
        SkillRule::FrontMatterYaml,
        line,
        &format!("The front matter is not YAML that can be read: {error}."),
    ))
}

fn unreadable(rule: SkillRule, line: Option<usize>, message: &str) -> Diagnostic {
    Diagnostic {
        rule,
        severity: Severity::Error,
        line,
        message: message.into(),
        help: "Begin the file with `---`, the fields `name: …` and `description: …`, and `---`."
            .into(),
    }
}

/// The scalars of `metadata` as they were written.
fn metadata_text(fields: &[(Yaml, Yaml)]) -> Vec<(String, String)> {
    let metadata = fields.iter().find(|(key, _)| key.key() == "metadata");
    let Some((_, Yaml::Map(pairs))) = metadata else {
        return Vec::new();
    };
    pairs
        .iter()
        .filter_map(|(key, value)| match value {
            Yaml::Scalar {
                value,
                source_text: written,
            } if !value.is_null() => Some((key.key(), written.clone())),
            _ => None,
        })
        .collect()
}
