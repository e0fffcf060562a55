//! A skill folder's text: parsed leniently for use, validated strictly for its author.
//!
//! Follows the Agent Skills standard (agentskills.io). Pure functions over bytes and names:
//! walking directories, unpacking packages and trusting a project are the host's.

mod colon;
mod diagnostic;
pub mod discovery;
mod front_matter;
mod links;
mod name;
mod validate;
mod yaml;

use serde_json::{Map, Value};

pub use diagnostic::{Diagnostic, Severity, SkillRule};
pub use name::{MAX_NAME_CHARS, SkillName, SkillNameError, suffixed_name, suggested_name};
pub use validate::{
    MAX_BODY_LINES, MAX_BODY_TOKENS, MAX_COMPATIBILITY_CHARS, MAX_DESCRIPTION_CHARS,
    validate_strict, validate_upload,
};

/// A skill folder that can be used. Made by [`SkillFolder::parse`] only, so it always has a
/// usable name and a description.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SkillFolder {
    /// The name, or the directory's where the front matter has none that can be used.
    pub name: SkillName,
    /// What the skill does and when to use it, as written; never blank.
    pub description: String,
    /// The licence, as written.
    pub license: Option<String>,
    /// What the skill needs of its surroundings, as written.
    pub compatibility: Option<String>,
    /// Free pairs in the order written; numbers as they were written.
    pub metadata: Vec<(String, String)>,
    /// Tools that the skill wants allowed, as written.
    pub allowed_tools: Option<String>,
    /// Fields that the standard does not know, in the order written.
    pub extra: Map<String, Value>,
    /// The instructions: Markdown with LF line ends, outer blank lines removed.
    pub body: String,
}

/// What came out of reading one `SKILL.md`.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The skill, or `None` when it cannot be used; then a diagnostic of severity
    /// [`Severity::Error`] says why.
    pub folder: Option<SkillFolder>,
    /// Everything worth telling, in the order in which it was found.
    pub diagnostics: Vec<Diagnostic>,
}

impl SkillFolder {
    /// Reads a `SKILL.md` leniently: what can be used is used, and what is wrong is said.
    ///
    /// `dir_name` is the last component of the skill's directory. Does not load: text that is
    /// not UTF-8, front matter that cannot be read, a description that is missing, blank or not
    /// text, a name that is not text. All else that breaks the standard is a warning.
    #[must_use]
    pub fn parse(dir_name: &str, skill_md: &[u8]) -> Parsed {
        let (document, mut diagnostics) = front_matter::read(skill_md);
        if let Some(document) = &document {
            diagnostics.extend(validate::check(dir_name, document));
        }
        for diagnostic in &mut diagnostics {
            if diagnostic.severity == Severity::Error && !prevents_loading(diagnostic.rule) {
                diagnostic.severity = Severity::Warning;
            }
        }
        let refused = diagnostics
            .iter()
            .any(|found| found.severity == Severity::Error);
        let folder = match document {
            Some(document) if !refused => Self::from_document(dir_name, document, &mut diagnostics),
            _ => None,
        };
        Parsed {
            folder,
            diagnostics,
        }
    }

    fn from_document(
        dir_name: &str,
        document: front_matter::Document,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let line = document.line_of("name");
        let mut fields = document.fields;
        let written = text(fields.shift_remove("name"));
        let name = match written.as_deref().map(SkillName::new) {
            Some(Ok(name)) => name,
            // Missing, blank or unusable: already a warning, and the directory has a name.
            _ => match SkillName::new(dir_name) {
                Ok(name) => name,
                Err(error) => {
                    diagnostics.push(Diagnostic {
                        rule: SkillRule::NameRequired,
                        severity: Severity::Error,
                        line,
                        message: format!(
                            "Neither the front matter nor the directory gives a name: {error}"
                        ),
                        help: "Add `name: …` to the front matter.".into(),
                    });
                    return None;
                }
            },
        };
        let allowed_tools = fields.shift_remove("allowed-tools");
        fields.shift_remove("metadata");
        Some(Self {
            name,
            description: text(fields.shift_remove("description"))?,
            license: text(fields.shift_remove("license")),
            compatibility: text(fields.shift_remove("compatibility")),
            metadata: document.metadata,
            allowed_tools: allowed_tools.and_then(joined),
            extra: fields,
            body: document.body,
        })
    }
}

fn prevents_loading(rule: SkillRule) -> bool {
    matches!(
        rule,
        SkillRule::Utf8
            | SkillRule::FrontMatterMissing
            | SkillRule::FrontMatterUnclosed
            | SkillRule::FrontMatterEmpty
            | SkillRule::FrontMatterYaml
            | SkillRule::FrontMatterMap
            | SkillRule::NameType
            | SkillRule::DescriptionRequired
            | SkillRule::DescriptionType
    )
}

fn text(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// `allowed-tools` is one text; the list that some authors write instead is joined.
fn joined(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(items) => {
            let items: Vec<String> = items
                .into_iter()
                .filter_map(|item| text(Some(item)))
                .collect();
            (!items.is_empty()).then(|| items.join(" "))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
