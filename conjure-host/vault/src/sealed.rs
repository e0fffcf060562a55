//! The form of what is sealed: a byte that names the form, the key's id, a nonce, the ciphertext
//! with its tag.

use chacha20poly1305::aead::{Aead as _, Generate as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::key::{ID_LENGTH, MasterKey};
use crate::{KeyId, VaultError};

/// The form that is written.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Seals bytes for a place.
pub(crate) fn seal(key: &MasterKey, row_id: &str, plain: &[u8]) -> Result<Vec<u8>, VaultError> {
    let nonce = XNonce::try_generate().map_err(|error| VaultError::NoRandomness {
        reason: error.to_string(),
    })?;
    let head = head(key.id());
    let about = associated_data(&head, row_id);
    let payload = Payload {
        msg: plain,
        aad: &about,
    };
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    // Fails only for more bytes than there are.
    let hidden = cipher
        .encrypt(&nonce, payload)
        .map_err(|_| VaultError::Damaged)?;
    let mut sealed = Vec::with_capacity(head.len() + NONCE_BYTES + hidden.len());
    sealed.extend_from_slice(&head);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(&hidden);
    Ok(sealed)
}

/// The key that something was sealed with.
pub(crate) fn key_of(sealed: &[u8]) -> Result<KeyId, VaultError> {
    match sealed.split_first() {
        Some((&FORMAT, rest)) => {
            let id = rest.get(..ID_LENGTH).and_then(|id| id.try_into().ok());
            id.map(KeyId).ok_or(VaultError::Damaged)
        }
        Some((&form, _)) if form > FORMAT => Err(VaultError::Newer { form }),
        _ => Err(VaultError::Damaged),
    }
}

/// Reads what was sealed for a place.
pub(crate) fn open(
    key: &MasterKey,
    row_id: &str,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let rest = sealed.get(1 + ID_LENGTH..).unwrap_or_default();
    let Some((nonce, hidden)) = rest.split_first_chunk::<NONCE_BYTES>() else {
        return Err(VaultError::Damaged);
    };
    if hidden.len() < TAG_BYTES {
        return Err(VaultError::Damaged);
    }
    let about = associated_data(&head(key.id()), row_id);
    let payload = Payload {
        msg: hidden,
        aad: &about,
    };
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    let plain = cipher.decrypt(nonce.into(), payload);
    plain.map(Zeroizing::new).map_err(|_| VaultError::Damaged)
}

fn head(key: KeyId) -> [u8; 1 + ID_LENGTH] {
    let mut head = [FORMAT; 1 + ID_LENGTH];
    head.iter_mut()
        .skip(1)
        .zip(key.0)
        .for_each(|(to, from)| *to = from);
    head
}

/// Associated data: what the tag covers beside the secret.
fn associated_data(head: &[u8], row_id: &str) -> Vec<u8> {
    [head, row_id.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_counts_and_so_does_the_place() {
        let key = MasterKey::fresh().unwrap();
        let sealed = seal(&key, "row-1", b"sk-secret").unwrap();
        assert_eq!(&**open(&key, "row-1", &sealed).unwrap(), b"sk-secret");
        assert!(!sealed.windows(9).any(|bytes| bytes == b"sk-secret"));
        assert!(open(&key, "row-2", &sealed).is_err());
        for at in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[at / 8] ^= 1 << (at % 8);
            let read = key_of(&changed).and_then(|id| {
                if id == key.id() {
                    open(&key, "row-1", &changed)
                } else {
                    Err(VaultError::Damaged)
                }
            });
            assert!(read.is_err(), "bit {at}");
        }
        for length in 0..sealed.len() {
            assert!(open(&key, "row-1", &sealed[..length]).is_err(), "{length}");
        }
        assert_ne!(seal(&key, "row-1", b"sk-secret").unwrap(), sealed);
    }

    #[test]
    fn a_newer_form_is_said() {
        assert!(matches!(
            key_of(&[2; 64]),
            Err(VaultError::Newer { form: 2 })
        ));
        assert!(matches!(key_of(&[]), Err(VaultError::Damaged)));
    }
}
