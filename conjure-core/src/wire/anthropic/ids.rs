//! Call ids and tool names that this API takes.
//!
//! Ids of other providers may hold anything; this one wants `^[a-zA-Z0-9_-]+$`. The mapping is a
//! pure function, so a call and its result always meet, in every request alike. Nothing maps it
//! back: replies name no client call of an earlier message.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// The id as this API takes it: the same where it is legal, else its legal characters and a hash
/// of the whole, so that two ids never become one.
pub(super) fn legal_id(id: &str) -> Cow<'_, str> {
    legal(id, "call")
}

/// A tool's name as this API takes it in a call of the past. Public names are legal; what a model
/// made up may not be.
pub(super) fn legal_name(name: &str) -> Cow<'_, str> {
    if name.len() > 64 {
        return Cow::Owned(altered(name, "tool"));
    }
    legal(name, "tool")
}

fn legal<'a>(text: &'a str, stem: &str) -> Cow<'a, str> {
    if !text.is_empty() && text.chars().all(is_legal) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(altered(text, stem))
}

fn altered(text: &str, stem: &str) -> String {
    let mut kept: String = text.chars().filter(|c| is_legal(*c)).take(40).collect();
    if kept.is_empty() {
        kept = stem.to_owned();
    }
    let digest = Sha256::digest(text.as_bytes());
    for byte in digest.iter().take(4) {
        kept.push_str(&format!("{byte:02x}"));
    }
    kept
}

fn is_legal(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_ids_stay_and_others_become_legal_and_stay_apart() {
        assert_eq!(legal_id("toolu_01-a"), "toolu_01-a");
        let altered = ["a.b", "a:b", "a b", "ü", "", "é"].map(|id| legal_id(id).into_owned());
        for id in &altered {
            assert!(!id.is_empty() && id.chars().all(is_legal), "{id}");
        }
        let apart: std::collections::HashSet<_> = altered.iter().collect();
        assert_eq!(apart.len(), altered.len(), "{altered:?}");
        assert_eq!(legal_name(&"n".repeat(65)).len(), 48);
    }
}
