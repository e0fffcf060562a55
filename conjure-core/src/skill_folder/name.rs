//! A skill's name, in the two strengths that a host needs.
//!
//! Every [`SkillName`] is safe to show, to compare and to use as one path component. Whether
//! it also keeps the standard's rules is asked with [`SkillName::broken_rules`], because a
//! host loads names that break them. Does not make tool names: that is `routing::name`.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use unicode_normalization::UnicodeNormalization;

use super::SkillRule;

/// Longest name of the standard, in characters after NFKC.
pub const MAX_NAME_CHARS: usize = 64;

/// Longest name that is loaded at all, in characters.
const MAX_LOADED_CHARS: usize = 256;

/// A skill's name: NFKC, not blank, at most 256 characters, one path component.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillName(Arc<str>);

impl SkillName {
    /// Normalises `raw` (NFKC, outer white space removed) and takes it if it can be a name.
    ///
    /// # Errors
    /// [`SkillNameError`] for a name that is blank, longer than 256 characters, begins with a
    /// dot, or has a control character or a path separator in it.
    pub fn new(raw: &str) -> Result<Self, SkillNameError> {
        let name = normalised(raw);
        let reason = if name.is_empty() {
            "it is blank"
        } else if name.chars().count() > MAX_LOADED_CHARS {
            "it is longer than 256 characters"
        } else if name.starts_with('.') {
            "it begins with a dot"
        } else if name
            .chars()
            .any(|c| c.is_control() || matches!(c, '/' | '\\'))
        {
            "it has a control character or a path separator in it"
        } else {
            return Ok(Self(name.into()));
        };
        Err(SkillNameError { name, reason })
    }

    /// The normalised name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The rules of the standard that the name breaks; empty for a good name.
    #[must_use]
    pub fn broken_rules(&self) -> Vec<SkillRule> {
        broken_rules(self.as_str())
    }
}

/// Why a text cannot be a skill's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the skill name {name:?} cannot be used: {reason}. Use lower-case letters, digits and hyphens."
)]
pub struct SkillNameError {
    /// The name after normalisation.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Debug for SkillName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SkillName({:?})", self.as_str())
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl AsRef<str> for SkillName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for SkillName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl Serialize for SkillName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The form in which names are kept and compared.
pub(super) fn normalised(raw: &str) -> String {
    raw.trim().nfkc().collect()
}

/// The rules of the standard that a normalised name breaks, except the directory's.
pub(super) fn broken_rules(name: &str) -> Vec<SkillRule> {
    let mut broken = Vec::new();
    if name.is_empty() {
        return vec![SkillRule::NameRequired];
    }
    if name.chars().count() > MAX_NAME_CHARS {
        broken.push(SkillRule::NameLength);
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '-') {
        broken.push(SkillRule::NameCharset);
    }
    if name.to_lowercase() != name {
        broken.push(SkillRule::NameCase);
    }
    if name.starts_with('-') || name.ends_with('-') {
        broken.push(SkillRule::NameHyphenEnds);
    }
    if name.contains("--") {
        broken.push(SkillRule::NameDoubleHyphen);
    }
    broken
}

/// A name that keeps every rule of the standard and is as near to this text as can be; none where
/// nothing of it can stand in a name.
#[must_use]
pub fn suggested_name(text: &str) -> Option<String> {
    let lower = normalised(text).to_lowercase();
    let parts = lower.split(|c: char| !c.is_alphanumeric());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let name: String = parts.join("-").chars().take(MAX_NAME_CHARS).collect();
    let name = name.trim_end_matches('-').to_owned();
    broken_rules(&name).is_empty().then_some(name)
}

/// Characters of a suffix that are kept.
const MAX_SUFFIX_CHARS: usize = 32;

/// Like [`suggested_name`], with a suffix, which stays where both together are too long; none where
/// nothing of one of them can stand in a name.
#[must_use]
pub fn suffixed_name(text: &str, suffix: &str) -> Option<String> {
    let (base, suffix) = (suggested_name(text)?, suggested_name(suffix)?);
    let suffix: String = suffix.chars().take(MAX_SUFFIX_CHARS).collect();
    let suffix = suffix.trim_end_matches('-');
    let room = MAX_NAME_CHARS.saturating_sub(suffix.chars().count() + 1);
    let base: String = base.chars().take(room).collect();
    let name = format!("{}-{suffix}", base.trim_end_matches('-'));
    broken_rules(&name).is_empty().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_normalised_with_nfkc() {
        assert_eq!(SkillName::new(" ﬁle-①\n").unwrap().as_str(), "file-1");
        let composed = SkillName::new("caf\u{e9}").unwrap();
        assert_eq!(SkillName::new("cafe\u{301}").unwrap(), composed);
    }

    #[test]
    fn a_name_is_one_path_component() {
        for bad in [
            "", "  ", "..", ".hidden", "a/b", "a\\b", "a\0b", "a\nb", "a／b", "℀",
        ] {
            assert!(SkillName::new(bad).is_err(), "{bad:?}");
        }
        assert!(SkillName::new(&"a".repeat(256)).is_ok());
        assert!(SkillName::new(&"a".repeat(257)).is_err());
    }

    #[test]
    fn a_suggested_name_is_always_a_legal_one() {
        for (text, expected) in [
            ("Bad_Name", Some("bad-name")),
            ("-Logs--of_today-", Some("logs-of-today")),
            ("log analyzer!", Some("log-analyzer")),
            ("Ärger", Some("ärger")),
            ("日志_2", Some("日志-2")),
            ("İx", Some("i-x")),
            ("___", None),
            ("", None),
        ] {
            assert_eq!(suggested_name(text).as_deref(), expected, "{text}");
        }
        let long = suggested_name(&"a_".repeat(60)).unwrap();
        assert_eq!(SkillName::new(&long).unwrap().broken_rules(), vec![]);
    }

    #[test]
    fn a_suffix_stays_however_long_the_name_is() {
        for (text, suffix, expected) in [
            ("notes", "2", "notes-2".to_owned()),
            (&"a".repeat(64), "2", format!("{}-2", "a".repeat(62))),
            (
                &"a".repeat(64),
                &"b".repeat(64),
                format!("{}-{}", "a".repeat(31), "b".repeat(32)),
            ),
            ("Bad_Name", "My Backend", "bad-name-my-backend".to_owned()),
        ] {
            assert_eq!(
                suffixed_name(text, suffix),
                Some(expected),
                "{text} {suffix}"
            );
        }
        assert_eq!(suffixed_name("___", "2"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_suggestion_illegal(text in ".{0,80}", suffix in ".{0,80}") {
            for name in [suggested_name(&text), suffixed_name(&text, &suffix)].into_iter().flatten() {
                proptest::prop_assert_eq!(broken_rules(&name), vec![]);
            }
        }
    }

    #[test]
    fn b17_each_rule_of_the_standard_is_told_apart() {
        let long = "é".repeat(65);
        for (name, rules) in [
            ("log-analyzer", vec![]),
            ("анализ-логов", vec![]),
            ("日志2", vec![]),
            (&"é".repeat(64), vec![]),
            (&long, vec![SkillRule::NameLength]),
            ("log_analyzer", vec![SkillRule::NameCharset]),
            ("log analyzer", vec![SkillRule::NameCharset]),
            ("Logs", vec![SkillRule::NameCase]),
            ("Ärger", vec![SkillRule::NameCase]),
            ("-logs", vec![SkillRule::NameHyphenEnds]),
            ("logs-", vec![SkillRule::NameHyphenEnds]),
            ("log--s", vec![SkillRule::NameDoubleHyphen]),
        ] {
            assert_eq!(
                SkillName::new(name).unwrap().broken_rules(),
                rules,
                "{name}"
            );
        }
    }
}
