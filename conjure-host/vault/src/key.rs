//! A key: 32 random bytes, and the name that what it seals calls it by.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Generate as _, Key};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::VaultError;

/// Bytes of a key.
pub(crate) const LENGTH: usize = 32;
/// Bytes of its name.
pub(crate) const ID_LENGTH: usize = 8;

/// What a key is called: the start of a hash of it, which tells nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub(crate) [u8; ID_LENGTH]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key. Its memory is wiped when it is dropped.
#[derive(Clone)]
pub(crate) struct MasterKey(Zeroizing<[u8; LENGTH]>);

impl MasterKey {
    /// A fresh one.
    pub(crate) fn fresh() -> Result<Self, VaultError> {
        let key = Key::<XChaCha20Poly1305>::try_generate();
        let key = key.map_err(|error| VaultError::NoRandomness {
            reason: error.to_string(),
        })?;
        Ok(Self(Zeroizing::new(key.into())))
    }

    /// Reads base64 or hex; nothing when it is neither.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bytes = match text.len() {
            64 if text.bytes().all(|b| b.is_ascii_hexdigit()) => Zeroizing::new(
                (0..LENGTH)
                    .map(|at| {
                        let digits = text.get(at * 2..at * 2 + 2)?;
                        u8::from_str_radix(digits, 16).ok()
                    })
                    .collect::<Option<Vec<u8>>>()?,
            ),
            _ => Zeroizing::new(BASE64.decode(text).ok()?),
        };
        let mut key = Zeroizing::new([0; LENGTH]);
        if bytes.len() != LENGTH {
            return None;
        }
        key.copy_from_slice(&bytes);
        Some(Self(key))
    }

    /// The key as base64.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64.encode(*self.0))
    }

    pub(crate) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    pub(crate) fn id(&self) -> KeyId {
        let mut hash = Sha256::new();
        hash.update(b"conjure key id\0");
        hash.update(*self.0);
        let hash = hash.finalize();
        let mut id = [0; ID_LENGTH];
        id.iter_mut()
            .zip(hash.iter())
            .for_each(|(to, from)| *to = *from);
        KeyId(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_in_both_ways_and_nothing_else_is() {
        let key = MasterKey::fresh().unwrap();
        let again = MasterKey::parse(&format!(" {}\n", &*key.to_text())).unwrap();
        assert_eq!(again.id(), key.id());
        let hex: String = key
            .bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(MasterKey::parse(&hex).unwrap().id(), key.id());
        assert_eq!(
            MasterKey::parse(&hex.to_uppercase()).unwrap().id(),
            key.id()
        );
        for text in [
            "",
            "a",
            "AAAA",
            &hex[..62],
            &"+1".repeat(32),
            &"é".repeat(32),
        ] {
            assert!(MasterKey::parse(text).is_none(), "{text}");
        }
        assert_ne!(MasterKey::fresh().unwrap().id(), key.id());
    }
}
