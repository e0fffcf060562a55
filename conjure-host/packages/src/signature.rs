//! Signatures, as minisign makes them.

use std::fmt;
use std::io::Cursor;

use serde::{Deserialize, Serialize};

use crate::PackageError;

/// A public key, as minisign writes it: 56 characters that begin with `RW`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SignerKey(String);

impl SignerKey {
    /// Reads a key, or the file of one, with the comment above it.
    ///
    /// # Errors
    /// [`PackageError::Key`].
    pub fn read(text: &str) -> Result<Self, PackageError> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let key = lines.find(|line| !line.starts_with("untrusted comment:"));
        let key = key.unwrap_or_default();
        match minisign_verify::PublicKey::from_base64(key) {
            Ok(_) => Ok(Self(key.to_owned())),
            Err(_) => Err(PackageError::Key(
                "a public key has 56 characters and begins with `RW`; it is the second line of a \
                 file that `conjure plugin key` or `minisign -G` made"
                    .to_owned(),
            )),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks a signature of some bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn verify(&self, bytes: &[u8], signature: &str) -> Result<(), String> {
        let key = minisign_verify::PublicKey::from_base64(&self.0);
        let key = key.map_err(|error| error.to_string())?;
        let signature = minisign_verify::Signature::decode(signature);
        let signature = signature.map_err(|error| error.to_string())?;
        // Only signatures of a digest, which every present minisign makes.
        key.verify(bytes, &signature, false)
            .map_err(|error| error.to_string())
    }
}

impl fmt::Display for SignerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SignerKey {
    type Error = PackageError;

    fn try_from(text: String) -> Result<Self, PackageError> {
        Self::read(&text)
    }
}

impl From<SignerKey> for String {
    fn from(key: SignerKey) -> Self {
        key.0
    }
}

/// A key that signs.
pub struct SigningKey {
    secret: minisign::SecretKey,
    public: minisign::PublicKey,
}

impl SigningKey {
    /// Makes a new one, and gives the text of its file, sealed with a password where there is one.
    ///
    /// # Errors
    /// [`PackageError::Key`].
    pub fn create(password: Option<&str>) -> Result<(Self, String), PackageError> {
        let pair = match password {
            Some(password) => {
                minisign::KeyPair::generate_encrypted_keypair(Some(password.to_owned()))
            }
            None => minisign::KeyPair::generate_unencrypted_keypair(),
        };
        let pair = pair?;
        let text = pair.sk.to_box(Some("a key that signs plugins"))?;
        let text = text.into_string();
        Ok((Self::open(&text, password)?, text))
    }

    /// Whether the text of a key's file opens only with a password.
    pub fn is_sealed(text: &str) -> bool {
        let key = minisign::SecretKeyBox::from_string(text);
        key.is_ok_and(|key| key.into_unencrypted_secret_key().is_err())
    }

    /// Opens the text of a key's file.
    ///
    /// # Errors
    /// [`PackageError::Key`].
    pub fn open(text: &str, password: Option<&str>) -> Result<Self, PackageError> {
        let sealed = minisign::SecretKeyBox::from_string(text)?;
        let secret = match password {
            Some(password) => sealed.into_secret_key(Some(password.to_owned())),
            None => sealed.into_unencrypted_secret_key(),
        };
        let secret = secret?;
        let public = minisign::PublicKey::from_secret_key(&secret)?;
        Ok(Self { secret, public })
    }

    /// The public key.
    ///
    /// # Errors
    /// [`PackageError::Key`].
    pub fn public(&self) -> Result<SignerKey, PackageError> {
        SignerKey::read(&self.public.to_base64())
    }

    /// Signs some bytes; the comment is part of what is signed.
    ///
    /// # Errors
    /// [`PackageError::Key`].
    pub(crate) fn sign(&self, bytes: &[u8], comment: &str) -> Result<String, PackageError> {
        let bytes = Cursor::new(bytes);
        let signature =
            minisign::sign(Some(&self.public), &self.secret, bytes, Some(comment), None);
        Ok(signature?.into_string())
    }
}

impl From<minisign::PError> for PackageError {
    fn from(error: minisign::PError) -> Self {
        Self::Key(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_implementation_signs_the_other_takes_and_nothing_else() {
        let (key, _) = SigningKey::create(None).unwrap();
        let signature = key.sign(b"text", "x 1.0.0").unwrap();
        let public = key.public().unwrap();
        public.verify(b"text", &signature).unwrap();
        public.verify(b"Text", &signature).unwrap_err();
        let commented = signature.replace("x 1.0.0", "y 1.0.0");
        public.verify(b"text", &commented).unwrap_err();
        let (other, _) = SigningKey::create(None).unwrap();
        let other = other.public().unwrap();
        other.verify(b"text", &signature).unwrap_err();
        assert_ne!(other, public);
    }

    #[test]
    fn a_sealed_key_opens_with_its_password_only() {
        let (key, text) = SigningKey::create(Some("secret")).unwrap();
        assert!(SigningKey::is_sealed(&text));
        assert!(SigningKey::open(&text, Some("Secret")).is_err());
        assert!(SigningKey::open(&text, None).is_err());
        let opened = SigningKey::open(&text, Some("secret")).unwrap();
        assert_eq!(opened.public().unwrap(), key.public().unwrap());
        let (_, plain) = SigningKey::create(None).unwrap();
        assert!(!SigningKey::is_sealed(&plain));
    }

    #[test]
    fn a_key_is_read_from_its_file_and_other_text_is_none() {
        let (key, _) = SigningKey::create(None).unwrap();
        let key = key.public().unwrap();
        let file = format!("untrusted comment: minisign public key 1\n{key}\n");
        assert_eq!(SignerKey::read(&file).unwrap(), key);
        for other in ["", "RWQ", "untrusted comment: x", &key.as_str()[1..]] {
            SignerKey::read(other).unwrap_err();
        }
    }
}
