//! Call ids and tool names that providers take.
//!
//! Ids of other providers may hold anything; none here wants more than `[a-zA-Z0-9_-]`. The mapping
//! is a pure function, so a call and its result always meet, in every request alike. Nothing maps
//! it back: replies name no client call of an earlier message, and the log keeps the id as it was.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// The longest name of a tool that every provider takes.
const MAX_NAME_CHARS: usize = 64;

/// The id with at most `most` characters (at least 16): the same where it is legal, else its legal
/// characters and a hash of the whole, so that two ids never become one.
pub(super) fn legal_id(id: &str, most: usize) -> Cow<'_, str> {
    legal(id, "call", most)
}

/// A tool's name in a call of the past. Public names are legal; what a model made up may not be.
pub(super) fn legal_name(name: &str) -> Cow<'_, str> {
    legal(name, "tool", MAX_NAME_CHARS)
}

/// Whether a tool can be offered under this name everywhere.
pub(super) fn is_legal_name(name: &str) -> bool {
    name.len() <= MAX_NAME_CHARS
        && name.chars().all(is_legal)
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// An id of exactly `length` letters and digits (at most 64), for servers that want that.
pub(super) fn fixed_id(id: &str, length: usize) -> Cow<'_, str> {
    if id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let mut hash = hash(id, 32);
    hash.truncate(length);
    Cow::Owned(hash)
}

fn legal<'a>(text: &'a str, stem: &str, most: usize) -> Cow<'a, str> {
    if !text.is_empty() && text.len() <= most && text.chars().all(is_legal) {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub(8).min(40);
    let mut kept: String = text.chars().filter(|c| is_legal(*c)).take(room).collect();
    if kept.is_empty() {
        kept = stem.to_owned();
    }
    kept.push_str(&hash(text, 4));
    Cow::Owned(kept)
}

/// The first `bytes` of the hash, two digits each.
fn hash(text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let digits = digest.iter().take(bytes);
    digits.map(|byte| format!("{byte:02x}")).collect()
}

fn is_legal(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_ids_stay_and_others_become_legal_and_stay_apart() {
        let any = usize::MAX;
        assert_eq!(legal_id("toolu_01-a", any), "toolu_01-a");
        let altered = ["a.b", "a:b", "a b", "ü", "", "é"].map(|id| legal_id(id, any).into_owned());
        for id in &altered {
            assert!(!id.is_empty() && id.chars().all(is_legal), "{id}");
        }
        let apart: std::collections::HashSet<_> = altered.iter().collect();
        assert_eq!(apart.len(), altered.len(), "{altered:?}");
        assert_eq!(legal_name(&"n".repeat(65)).len(), 48);
        assert_eq!(legal_id(&"i".repeat(41), 40).len(), 40);
        assert_ne!(legal_id(&"i".repeat(41), 40), legal_id(&"i".repeat(42), 40));
    }

    #[test]
    fn ids_of_a_fixed_length_stay_where_they_fit() {
        assert_eq!(fixed_id("AbCdEf123", 9), "AbCdEf123");
        for id in ["", "call_1", "AbCdEf12-", "AbCdEf1234"] {
            let fixed = fixed_id(id, 9);
            assert_eq!(fixed.len(), 9);
            assert!(fixed.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
        assert_ne!(fixed_id("call_1", 9), fixed_id("call_2", 9));
    }
}
