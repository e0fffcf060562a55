//! The SHA-256 of a file's bytes: the identity of a library.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Digest as _;

/// A SHA-256 digest. Shown as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The first 12 hex digits, enough for people.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut digest = [0; 32];
        let digits = text.as_bytes().chunks(2);
        let valid = text.len() == 64
            && digest.iter_mut().zip(digits).all(|(byte, digits)| {
                let parsed = std::str::from_utf8(digits)
                    .ok()
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                parsed.is_some_and(|parsed| {
                    *byte = parsed;
                    true
                })
            });
        valid
            .then_some(Self(digest))
            .ok_or_else(|| de::Error::custom("a SHA-256 has 64 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::Sha256;

    #[test]
    fn the_empty_digest_is_the_known_one() {
        assert_eq!(
            Sha256::of(b"").to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(Sha256::of(b"").short(), "e3b0c44298fc");
    }

    #[test]
    fn a_digest_reads_back_and_nothing_else_does() {
        let digest = Sha256::of(b"library");
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Sha256>(&json).unwrap(), digest);
        for other in ["\"\"", "\"e3\"", &json.replace(&json[1..3], "+1"), "7"] {
            assert!(serde_json::from_str::<Sha256>(other).is_err(), "{other}");
        }
    }
}
