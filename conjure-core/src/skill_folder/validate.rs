//! Every rule of the standard, one message a rule.
//!
//! [`validate_strict`] is for the author of a skill; the lenient load runs the same checks and
//! turns what can be lived with into warnings. [`validate_upload`] adds Anthropic's rules.

use serde_json::Value;

use super::front_matter::{self, Document};
use super::links;
use super::name::{broken_rules, normalised, suggested_name};
use super::{Diagnostic, MAX_NAME_CHARS, Severity, SkillFolder, SkillRule};

/// Longest description of the standard, in characters.
pub const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Longest compatibility note of the standard, in characters.
pub const MAX_COMPATIBILITY_CHARS: usize = 500;
/// Body lines beyond which the standard advises to split a skill.
pub const MAX_BODY_LINES: usize = 500;
/// Body tokens (bytes / 4) beyond which the standard advises to split a skill.
pub const MAX_BODY_TOKENS: usize = 5_000;

/// Checks every rule of the standard; an empty list means that the skill keeps them all.
///
/// `dir_name` is the last component of the skill's directory, `resources` the paths of all its
/// other files, relative to that directory with `/` between components.
#[must_use]
pub fn validate_strict(dir_name: &str, skill_md: &[u8], resources: &[&str]) -> Vec<Diagnostic> {
    let (document, mut diagnostics) = front_matter::read(skill_md);
    if let Some(document) = document {
        diagnostics.extend(check(dir_name, &document));
        diagnostics.extend(links::check_links(&document, resources));
    }
    diagnostics.extend(links::check_resources(resources));
    diagnostics
}

/// Checks the rules that uploading a skill to Anthropic adds to the standard's.
#[must_use]
pub fn validate_upload(folder: &SkillFolder) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut report = |rule, message: String, help: &str| {
        found.push(Diagnostic {
            rule,
            severity: Severity::Error,
            line: None,
            message,
            help: help.into(),
        });
    };
    let name = folder.name.as_str();
    if has_xml_tag(name) {
        report(
            SkillRule::UploadNameXml,
            format!("The name `{name}` has an XML tag in it."),
            "Remove the tag.",
        );
    }
    if has_xml_tag(&folder.description) {
        report(
            SkillRule::UploadDescriptionXml,
            "The description has an XML tag in it.".into(),
            "Remove the tag, or write it in words.",
        );
    }
    let lower = name.to_lowercase();
    for reserved in ["anthropic", "claude"] {
        if lower.contains(reserved) {
            report(
                SkillRule::UploadNameReserved,
                format!("The name `{name}` has the reserved word `{reserved}` in it."),
                "Choose a name without it.",
            );
        }
    }
    found
}

/// The checks that need nothing but `SKILL.md` and its directory's name.
pub(super) fn check(dir_name: &str, document: &Document) -> Vec<Diagnostic> {
    let mut check = Validation {
        document,
        diagnostics: Vec::new(),
    };
    check.name(dir_name);
    check.description();
    check.text_field("license", SkillRule::LicenseType);
    check.compatibility();
    check.metadata();
    check.allowed_tools();
    check.unknown_fields();
    check.body();
    check.diagnostics
}

struct Validation<'a> {
    document: &'a Document,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Validation<'a> {
    fn report(&mut self, rule: SkillRule, field: &str, message: String, help: impl Into<String>) {
        let severity = match rule {
            SkillRule::UnknownField => Severity::Hint,
            SkillRule::BodyLines | SkillRule::BodyTokens => Severity::Warning,
            _ => Severity::Error,
        };
        self.diagnostics.push(Diagnostic {
            rule,
            severity,
            line: self.document.line_of(field),
            message,
            help: help.into(),
        });
    }

    /// The text of a field; a value of another type is reported under `rule`.
    fn text_field(&mut self, field: &str, rule: SkillRule) -> Option<&'a str> {
        let value = self.document.fields.get(field)?;
        if let Value::String(text) = value {
            return Some(text);
        }
        let kind = kind(value);
        self.report(
            rule,
            field,
            format!("`{field}` is {kind}, not text."),
            format!("Write it as text in quotes: `{field}: \"…\"`."),
        );
        None
    }

    fn name(&mut self, dir_name: &str) {
        if !self.document.fields.contains_key("name") {
            self.report(
                SkillRule::NameRequired,
                "name",
                "There is no `name`.".into(),
                match suggested_name(dir_name) {
                    Some(name) if name == dir_name => format!("Add `name: {name}`."),
                    Some(name) => {
                        format!("Add `name: {name}`, and call the directory `{name}` too.")
                    }
                    None => "Add `name: …` with lower-case letters, digits and hyphens.".into(),
                },
            );
            return;
        }
        let Some(written) = self.text_field("name", SkillRule::NameType) else {
            return;
        };
        let name = normalised(written);
        for rule in broken_rules(&name) {
            let message = match rule {
                SkillRule::NameRequired => "The `name` is blank.".into(),
                SkillRule::NameLength => format!(
                    "The name has {} characters; at most {MAX_NAME_CHARS} are allowed.",
                    name.chars().count()
                ),
                SkillRule::NameCharset => {
                    format!(
                        "The name `{name}` has characters other than letters, digits and hyphens."
                    )
                }
                SkillRule::NameCase => format!("The name `{name}` is not lower-case."),
                SkillRule::NameHyphenEnds => {
                    format!("The name `{name}` begins or ends with a hyphen.")
                }
                _ => format!("The name `{name}` has two hyphens in a row."),
            };
            let help = match suggested_name(&name) {
                Some(legal) => format!("Write `{legal}`."),
                None => {
                    "Use 1 to 64 lower-case letters and digits, with single hyphens between.".into()
                }
            };
            self.report(rule, "name", message, help);
        }
        if !name.is_empty() && name != normalised(dir_name) {
            self.report(
                SkillRule::NameDirectory,
                "name",
                format!("The name `{name}` is not that of its directory, `{dir_name}`."),
                "Rename one of the two.",
            );
        }
    }

    fn description(&mut self) {
        let help = "Say what the skill does and when to use it, in at most 1,024 characters.";
        if !self.document.fields.contains_key("description") {
            self.report(
                SkillRule::DescriptionRequired,
                "description",
                "There is no `description`.".into(),
                help,
            );
            return;
        }
        let Some(text) = self.text_field("description", SkillRule::DescriptionType) else {
            return;
        };
        let length = text.chars().count();
        if text.trim().is_empty() {
            self.report(
                SkillRule::DescriptionRequired,
                "description",
                "The `description` is blank.".into(),
                help,
            );
        } else if length > MAX_DESCRIPTION_CHARS {
            self.report(
                SkillRule::DescriptionLength,
                "description",
                format!("The description has {length} characters; at most {MAX_DESCRIPTION_CHARS} are allowed."),
                help,
            );
        }
    }

    fn compatibility(&mut self) {
        let Some(text) = self.text_field("compatibility", SkillRule::CompatibilityType) else {
            return;
        };
        let length = text.chars().count();
        if length == 0 || length > MAX_COMPATIBILITY_CHARS {
            self.report(
                SkillRule::CompatibilityLength,
                "compatibility",
                format!("The compatibility note has {length} characters; 1 to {MAX_COMPATIBILITY_CHARS} are allowed."),
                "Shorten it, or leave the field out.",
            );
        }
    }

    fn metadata(&mut self) {
        let pairs = match self.document.fields.get("metadata") {
            None => return,
            Some(Value::Object(pairs)) => pairs,
            Some(other) => {
                self.report(
                    SkillRule::MetadataType,
                    "metadata",
                    format!("`metadata` is {}, not a map; it was left out.", kind(other)),
                    "Write one `key: \"value\"` a line, indented under `metadata:`.",
                );
                return;
            }
        };
        let wrong: Vec<String> = pairs
            .iter()
            .filter(|(_, value)| !matches!(value, Value::String(_) | Value::Number(_)))
            .map(|(key, value)| format!("`{key}` is {}", kind(value)))
            .collect();
        if !wrong.is_empty() {
            self.report(
                SkillRule::MetadataValueType,
                "metadata",
                format!("Values of `metadata` are not text: {}.", wrong.join(", ")),
                "Write each value as text in quotes.",
            );
        }
    }

    fn allowed_tools(&mut self) {
        if let Some(value) = self.document.fields.get("allowed-tools")
            && !value.is_string()
        {
            self.report(
                SkillRule::AllowedToolsType,
                "allowed-tools",
                format!("`allowed-tools` is {}, not text.", kind(value)),
                "Write it as one text with spaces between: `allowed-tools: Bash(git:*) Read`.",
            );
        }
    }

    fn unknown_fields(&mut self) {
        let unknown: Vec<&str> = self
            .document
            .fields
            .keys()
            .map(String::as_str)
            .filter(|field| !KNOWN_FIELDS.contains(field))
            .collect();
        if let Some(first) = unknown.first() {
            self.report(
                SkillRule::UnknownField,
                first,
                format!(
                    "The standard does not know these fields: `{}`.",
                    unknown.join("`, `")
                ),
                "Other hosts may ignore or refuse them; `metadata` is the place for your own.",
            );
        }
    }

    fn body(&mut self) {
        let lines = self.document.body.lines().count();
        let tokens = self.document.body.len().div_ceil(4);
        let help = "Move details into files under `references/` and link them.";
        if lines > MAX_BODY_LINES {
            self.report(
                SkillRule::BodyLines,
                "",
                format!(
                    "The body has {lines} lines; the standard advises at most {MAX_BODY_LINES}."
                ),
                help,
            );
        }
        if tokens >= MAX_BODY_TOKENS {
            self.report(
                SkillRule::BodyTokens,
                "",
                format!("The body has about {tokens} tokens; the standard advises fewer than {MAX_BODY_TOKENS}."),
                help,
            );
        }
    }
}

const KNOWN_FIELDS: [&str; 6] = [
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
];

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// A `<` that a tag can follow, and a `>` behind it: `<b>`, `</b>`, `<br/>`, `<!-- -->`.
fn has_xml_tag(text: &str) -> bool {
    text.match_indices('<').any(|(at, _)| {
        let rest = text.get(at + 1..).unwrap_or_default();
        rest.starts_with(|c: char| c.is_alphabetic() || matches!(c, '/' | '!' | '?' | '_'))
            && rest.contains('>')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_not_an_xml_tag() {
        assert!(has_xml_tag("see <b>this</b>"));
        assert!(has_xml_tag("x </y> z"));
        assert!(has_xml_tag("<!-- hidden -->"));
        assert!(!has_xml_tag("sizes < 5 and > 3, a <- b -> c"));
        assert!(!has_xml_tag("a <b without end"));
    }
}
