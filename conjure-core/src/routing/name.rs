//! A tool's public name, and how one is derived from names that no provider would take.
//!
//! Derivation is a pure function of the raw name, so the same input gives the same name on
//! every machine. Nothing here takes a name apart again: look-up is by table only.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Longest public name, in characters (all ASCII).
pub const MAX_TOOL_NAME: usize = 64;

/// A tool's public name. Legal for every provider: `^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Takes a name that is legal as it is.
    ///
    /// # Errors
    /// [`ToolNameError`] when it is not.
    pub fn new(name: &str) -> Result<Self, ToolNameError> {
        if is_legal(name) {
            Ok(Self(name.into()))
        } else {
            Err(ToolNameError { name: name.into() })
        }
    }

    /// Makes a legal name of any text.
    ///
    /// A legal text is its own name. Anything else is altered: other characters become `-`, a
    /// letter is put in front where a digit or hyphen stands, the middle is cut out of what is
    /// too long, and `-` with the first 8 hex digits of the raw text's SHA-256 ends it. A text
    /// that already has such an end is altered as well, so that no name can be forged to meet
    /// an altered one.
    #[must_use]
    pub fn derive(raw: &str) -> Self {
        if is_legal(raw) && !ends_like_an_altered_name(raw) {
            return Self(raw.into());
        }
        let mut stem = String::with_capacity(raw.len() + 1 + HASH_DIGITS + 1);
        if !raw.starts_with(is_legal_start) {
            stem.push('t');
        }
        stem.extend(
            raw.chars()
                .map(|c| if is_legal_inside(c) { c } else { '-' }),
        );
        // ASCII only from here on, so every byte index is a character's.
        if stem.len() > STEM_LENGTH {
            stem.replace_range(HEAD_LENGTH..stem.len() - TAIL_LENGTH, "-");
        }
        stem.push('-');
        for byte in Sha256::digest(raw.as_bytes()).iter().take(HASH_DIGITS / 2) {
            stem.extend(
                [byte >> 4, byte & 15]
                    .map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')),
            );
        }
        Self(stem.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no legal public name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} cannot be the public name of a tool: use 1 to 64 ASCII letters, digits, `_` and `-`, and begin with a letter or `_`"
)]
pub struct ToolNameError {
    /// The text.
    pub name: String,
}

const HASH_DIGITS: usize = 8;
/// What is left of the limit beside `-` and the hash.
const STEM_LENGTH: usize = MAX_TOOL_NAME - HASH_DIGITS - 1;
/// The end of a long name is kept, because it says which tool of the skill it is.
const TAIL_LENGTH: usize = 24;
const HEAD_LENGTH: usize = STEM_LENGTH - TAIL_LENGTH - 1;

fn is_legal(name: &str) -> bool {
    name.len() <= MAX_TOOL_NAME
        && name.starts_with(is_legal_start)
        && name.chars().all(is_legal_inside)
}

fn is_legal_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_legal_inside(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn ends_like_an_altered_name(name: &str) -> bool {
    name.len()
        .checked_sub(HASH_DIGITS + 1)
        .and_then(|at| name.get(at..))
        .and_then(|end| end.strip_prefix('-'))
        .is_some_and(|hash| hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

impl fmt::Debug for ToolName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ToolName({:?})", self.as_str())
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for ToolName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for ToolName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ToolName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl Serialize for ToolName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::new(&name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_legal_name_stays_as_it_is() {
        for name in [
            "log-fetcher_execute",
            "_x",
            "A",
            "analyzer_bash_tool",
            &"a".repeat(64),
        ] {
            assert_eq!(ToolName::derive(name).as_str(), name);
        }
    }

    #[test]
    fn h3_names_are_legal_and_the_same_on_every_run() {
        let names: Vec<String> = [
            "a.b_execute".to_owned(),
            "a b_execute".into(),
            "анализ-логов_execute".into(),
            "日志_bash_tool".into(),
            format!("{}_code_execution", "s".repeat(64)),
            format!("{}_execute", "ß".repeat(64)),
            "2024-logs_execute".into(),
            "-x".into(),
            String::new(),
        ]
        .iter()
        .map(|raw| ToolName::derive(raw).to_string())
        .collect();
        insta::assert_snapshot!(names.join("\n"), @r##"
        a-b_execute-d82cf767
        a-b_execute-242c5c58
        t------------_execute-218af903
        t--_bash_tool-c9c2bd6c
        ssssssssssssssssssssssssssssss-sssssssss_code_execution-814d4a01
        t----------------------------------------------_execute-915c7be5
        t2024-logs_execute-c48f386e
        t-x-a4209624
        t-e3b0c442
        "##);
    }

    #[test]
    fn a_name_that_imitates_an_altered_one_stays_apart() {
        let altered = ToolName::derive("a.b");
        let imitated = ToolName::derive(altered.as_str());
        assert_ne!(altered, imitated);
    }

    #[test]
    fn only_legal_names_are_taken_as_they_are() {
        for bad in ["", "1a", "-a", "a.b", "a b", "é", "a\n", &"a".repeat(65)] {
            assert!(ToolName::new(bad).is_err(), "{bad:?}");
            assert!(
                serde_json::from_value::<ToolName>(bad.into()).is_err(),
                "{bad:?}"
            );
        }
    }

    fn raw_name() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-zA-Z_][a-zA-Z0-9_-]{0,80}",
            "[a-c._ -]{0,6}",
            "[а-яё日志ß.-]{0,70}_[a-z]{1,8}",
            ".{0,80}",
            "[ab.][0-9a-f.-]{0,3}-[0-9a-f]{8}",
        ]
    }

    proptest! {
        #[test]
        fn h3_every_derived_name_is_legal_and_stable(raw in raw_name()) {
            let name = ToolName::derive(&raw);
            prop_assert!(is_legal(name.as_str()), "{name}");
            prop_assert_eq!(&name, &ToolName::derive(&raw));
            prop_assert_eq!(ToolName::new(name.as_str()), Ok(name));
        }

        #[test]
        fn h3_different_raw_names_have_different_public_names(
            raws in proptest::collection::btree_set(raw_name(), 2..40)
        ) {
            let names: std::collections::BTreeSet<ToolName> = raws.iter().map(|raw| ToolName::derive(raw)).collect();
            prop_assert_eq!(names.len(), raws.len());
        }
    }
}
