//! What is wrong with a skill folder: which rule, where, and what to do.
//!
//! Rule ids are stable text that people grep and suppress by; messages may change. Knows
//! nothing about how a rule is checked.

use std::fmt;

use serde::{Serialize, Serializer};

/// One broken rule of one skill folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The rule; serialised as its stable id.
    pub rule: SkillRule,
    /// How bad it is for whoever asked: a load or a validation.
    pub severity: Severity,
    /// Line of `SKILL.md`, counted from 1, where one can be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What is wrong, with the value that was found.
    pub message: String,
    /// What the skill's author can do.
    pub help: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} [{}]", self.severity, self.rule)?;
        if let Some(line) = self.line {
            write!(out, " line {line}")?;
        }
        write!(out, ": {} {}", self.message, self.help)
    }
}

/// How bad a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Allowed, worth knowing.
    Hint,
    /// The skill works; something should be changed.
    Warning,
    /// Breaks the standard; in a load: the skill was not loaded.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $variant:ident = $id:literal,)+) => {
        /// A rule of the standard, of uploading, or of this host, with a stable id.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum SkillRule { $($(#[doc = $doc])+ $variant,)+ }

        impl SkillRule {
            /// Every rule, in the order in which they are checked.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable id, such as `name-length`.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)+ }
            }
        }
    };
}

rules! {
    /// `SKILL.md` is UTF-8 text.
    Utf8 = "utf8",
    /// `SKILL.md` has no byte order mark.
    Bom = "bom",
    /// `SKILL.md` begins with front matter.
    FrontMatterMissing = "front-matter-missing",
    /// The front matter is closed by a line `---`.
    FrontMatterUnclosed = "front-matter-unclosed",
    /// The front matter is not empty.
    FrontMatterEmpty = "front-matter-empty",
    /// The front matter is YAML.
    FrontMatterYaml = "front-matter-yaml",
    /// The front matter is a map of fields.
    FrontMatterMap = "front-matter-map",
    /// A value with a colon in it is quoted.
    UnquotedColon = "unquoted-colon",
    /// There is a name.
    NameRequired = "name-required",
    /// The name is text.
    NameType = "name-type",
    /// The name has at most 64 characters.
    NameLength = "name-length",
    /// The name has letters, digits and hyphens only.
    NameCharset = "name-charset",
    /// The name is lower-case.
    NameCase = "name-case",
    /// The name has no hyphen at either end.
    NameHyphenEnds = "name-hyphen-ends",
    /// The name has no two hyphens in a row.
    NameDoubleHyphen = "name-double-hyphen",
    /// The name is the directory's.
    NameDirectory = "name-directory",
    /// There is a description that is not blank.
    DescriptionRequired = "description-required",
    /// The description is text.
    DescriptionType = "description-type",
    /// The description has at most 1,024 characters.
    DescriptionLength = "description-length",
    /// The licence is text.
    LicenseType = "license-type",
    /// The compatibility note is text.
    CompatibilityType = "compatibility-type",
    /// The compatibility note has 1 to 500 characters.
    CompatibilityLength = "compatibility-length",
    /// The metadata is a map.
    MetadataType = "metadata-type",
    /// The metadata's values are text.
    MetadataValueType = "metadata-value-type",
    /// The allowed tools are one space-separated text.
    AllowedToolsType = "allowed-tools-type",
    /// Only fields of the standard are used.
    UnknownField = "unknown-field",
    /// The body has at most 500 lines.
    BodyLines = "body-lines",
    /// The body has fewer than 5,000 tokens.
    BodyTokens = "body-tokens",
    /// A resource's path stays inside the skill's directory.
    ResourcePath = "resource-path",
    /// A file that the body links to exists.
    LinkMissing = "link-missing",
    /// A file that the body links to is inside the skill's directory.
    LinkOutside = "link-outside",
    /// For uploading: no XML tags in the name.
    UploadNameXml = "upload-name-xml",
    /// For uploading: no XML tags in the description.
    UploadDescriptionXml = "upload-description-xml",
    /// For uploading: neither "anthropic" nor "claude" in the name.
    UploadNameReserved = "upload-name-reserved",
    /// No other skill of the same name hides this one.
    Hidden = "hidden",
}

impl fmt::Display for SkillRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.id())
    }
}

impl Serialize for SkillRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rule_ids_are_unique_and_kebab_case() {
        let ids: BTreeSet<&str> = SkillRule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), SkillRule::ALL.len());
        for id in ids {
            assert!(
                id.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "{id}"
            );
        }
    }

    #[test]
    fn a_diagnostic_serialises_with_the_rule_id() {
        let diagnostic = Diagnostic {
            rule: SkillRule::NameLength,
            severity: Severity::Warning,
            line: Some(2),
            message: "Too long.".into(),
            help: "Shorten it.".into(),
        };
        assert_eq!(
            serde_json::to_value(&diagnostic).unwrap(),
            serde_json::json!({
                "rule": "name-length", "severity": "warning", "line": 2,
                "message": "Too long.", "help": "Shorten it."
            })
        );
        assert_eq!(
            diagnostic.to_string(),
            "warning [name-length] line 2: Too long. Shorten it."
        );
    }
}
