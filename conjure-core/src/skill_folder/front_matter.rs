//! From the bytes of a `SKILL.md` to its fields and body, without judging them.
//!
//! Handles what real files have: a byte order mark, CRLF, an unquoted colon. What cannot be
//! read becomes a diagnostic, never a panic. Which fields are right is `validate`'s business.

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use serde_norway::Value as Yaml;

use super::colon::quote_colons;
use super::{Diagnostic, Rule, Severity};

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
                rule: Rule::Utf8,
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
                rule: Rule::Bom,
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
    let (yaml, value) = match parse_or_quote(source, diagnostics) {
        Ok(parsed) => parsed,
        Err(diagnostic) => {
            diagnostics.push(diagnostic);
            return None;
        }
    };
    let fields = match value {
        Yaml::Mapping(mapping) => mapping
            .into_iter()
            .map(|(key, value)| (key_text(&key), to_json(value)))
            .filter(|(_, value)| !value.is_null())
            .collect(),
        Yaml::Null => {
            diagnostics.push(unreadable(
                Rule::FrontMatterEmpty,
                Some(1),
                "The front matter is empty.",
            ));
            return None;
        }
        _ => {
            diagnostics.push(unreadable(
                Rule::FrontMatterMap,
                Some(FIRST_LINE),
                "The front matter is not a map of fields.",
            ));
            return None;
        }
    };
    Some(Document {
        metadata: metadata_text(&yaml, &fields),
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
            Rule::FrontMatterMissing,
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
        Rule::FrontMatterUnclosed,
        Some(1),
        "The front matter is not closed by a line `---`.",
    ))
}

/// Parses; when that fails, once more with values quoted that have a colon in them.
fn parse_or_quote(
    source: &str,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<(String, Yaml), Diagnostic> {
    let error = match serde_norway::from_str(source) {
        Ok(value) => return Ok((source.to_owned(), value)),
        Err(error) => error,
    };
    if let Some(quoted) = quote_colons(source)
        && let Ok(value) = serde_norway::from_str(&quoted.yaml)
    {
        for (field, index) in quoted.fields {
            diagnostics.push(Diagnostic {
                rule: Rule::UnquotedColon,
                severity: Severity::Error,
                line: Some(index + FIRST_LINE),
                message: format!("The value of `{field}` has a colon and is not quoted; it was read as if it were."),
                help: format!("Put the value of `{field}` in quotes."),
            });
        }
        return Ok((quoted.yaml, value));
    }
    let line = error
        .location()
        .map(|location| location.line() + FIRST_LINE - 1);
    Err(unreadable(
        Rule::FrontMatterYaml,
        line,
        &format!("The front matter is not YAML that can be read: {error}."),
    ))
}

fn unreadable(rule: Rule, line: Option<usize>, message: &str) -> Diagnostic {
    Diagnostic {
        rule,
        severity: Severity::Error,
        line,
        message: message.into(),
        help: "Begin the file with `---`, the fields `name: …` and `description: …`, and `---`."
            .into(),
    }
}

/// JSON is what the rest of the host speaks: tags are dropped, keys become text.
fn to_json(value: Yaml) -> Value {
    match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => Value::Bool(value),
        Yaml::Number(number) => serde_json::to_value(&number)
            .ok()
            .filter(Value::is_number)
            .unwrap_or_else(|| Value::String(number.to_string())),
        Yaml::String(text) => Value::String(text),
        Yaml::Sequence(items) => items.into_iter().map(to_json).collect(),
        Yaml::Mapping(mapping) => Value::Object(
            mapping
                .into_iter()
                .map(|(key, value)| (key_text(&key), to_json(value)))
                .collect(),
        ),
        Yaml::Tagged(tagged) => to_json(tagged.value),
    }
}

fn key_text(key: &Yaml) -> String {
    match key {
        Yaml::String(text) => text.clone(),
        other => match to_json(other.clone()) {
            Value::String(text) => text,
            other => other.to_string(),
        },
    }
}

/// The scalars of `metadata` as they were written.
///
/// The YAML library hands over a scalar's own text when it is asked for text, but fails as a
/// whole where a value is a list or a map; then numbers are printed from their value.
fn metadata_text(yaml: &str, fields: &Map<String, Value>) -> Vec<(String, String)> {
    let Some(Value::Object(metadata)) = fields.get("metadata") else {
        return Vec::new();
    };
    if let Ok(written) = serde_norway::from_str::<WrittenMetadata>(yaml) {
        return written.0;
    }
    metadata
        .iter()
        .filter_map(|(key, value)| match value {
            Value::String(text) => Some((key.clone(), text.clone())),
            Value::Number(_) | Value::Bool(_) => Some((key.clone(), value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        })
        .collect()
}

struct WrittenMetadata(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WrittenMetadata {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TopLevel).map(Self)
    }
}

struct TopLevel;

impl<'de> Visitor<'de> for TopLevel {
    type Value = Vec<(String, String)>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a map of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "metadata" {
                metadata = map.next_value::<TextPairs>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(metadata)
    }
}

struct TextPairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for TextPairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs).map(Self)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, String)>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a map of text to text")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry::<String, String>()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}
