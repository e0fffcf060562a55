//! What is sealed: a credential of one of the kinds that there are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::VaultError;

/// The kinds of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthKind {
    /// A key, sent in the way of its provider.
    ApiKey,
    /// A token, sent as `Authorization: Bearer`.
    BearerToken,
    /// Headers that are sent as they are.
    CustomHeaders,
    /// Only where a compatible server is; it asks for nothing.
    BaseUrl,
}

impl AuthKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::ApiKey,
        Self::BearerToken,
        Self::CustomHeaders,
        Self::BaseUrl,
    ];

    /// Word of the kind in the store, the API and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::BearerToken => "bearer_token",
            Self::CustomHeaders => "custom_headers",
            Self::BaseUrl => "base_url",
        }
    }
}

impl fmt::Display for AuthKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AuthKind {
    type Err = VaultError;

    /// Reads a kind; `-` counts as `_`.
    fn from_str(text: &str) -> Result<Self, VaultError> {
        let word = text.replace('-', "_");
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| VaultError::NoSuchKind {
            kind: text.to_owned(),
        })
    }
}

/// A credential, readable.
pub enum Credential {
    /// A key.
    ApiKey(SecretString),
    /// A token.
    BearerToken(SecretString),
    /// Headers by their names.
    CustomHeaders(BTreeMap<String, SecretString>),
    /// Nothing.
    BaseUrl,
}

/// Form of a credential before it is sealed.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Plain<'a> {
    #[serde(borrow)]
    ApiKey(Cow<'a, str>),
    #[serde(borrow)]
    BearerToken(Cow<'a, str>),
    #[serde(borrow)]
    CustomHeaders(BTreeMap<Cow<'a, str>, Cow<'a, str>>),
    BaseUrl,
}

impl Credential {
    /// A credential as a person gives it: a key or a token as one line, headers as one `Name: value`
    /// a line, nothing for a server that asks for nothing.
    ///
    /// # Errors
    /// [`VaultError::BadSecret`] says what is wrong, and never what was given.
    pub fn read(kind: AuthKind, text: &SecretString) -> Result<Self, VaultError> {
        let text = text.expose_secret().trim();
        let bad = |reason: &str| VaultError::BadSecret {
            kind,
            reason: reason.to_owned(),
        };
        match kind {
            AuthKind::ApiKey | AuthKind::BearerToken => {
                if text.is_empty() {
                    return Err(bad("it is empty"));
                }
                if !is_header_value(text) {
                    return Err(bad("it has to be one line of ordinary characters"));
                }
                Ok(match kind {
                    AuthKind::ApiKey => Self::ApiKey(text.into()),
                    _ => Self::BearerToken(text.into()),
                })
            }
            AuthKind::CustomHeaders => {
                let mut headers = BTreeMap::new();
                for line in text.lines().filter(|line| !line.trim().is_empty()) {
                    let (name, value) = line
                        .split_once(':')
                        .ok_or_else(|| bad("each line has to be `Name: value`"))?;
                    let (name, value) = (name.trim(), value.trim());
                    if !is_header_name(name) {
                        return Err(bad("a name has letters, digits and `-` only"));
                    }
                    if value.is_empty() || !is_header_value(value) {
                        return Err(bad("a value has to be one line of ordinary characters"));
                    }
                    headers.insert(name.to_ascii_lowercase(), value.into());
                }
                if headers.is_empty() {
                    return Err(bad("there is no header"));
                }
                Ok(Self::CustomHeaders(headers))
            }
            AuthKind::BaseUrl if text.is_empty() => Ok(Self::BaseUrl),
            AuthKind::BaseUrl => Err(bad("it takes no secret; a key makes it an `api_key`")),
        }
    }

    /// Kind of the credential.
    #[must_use]
    pub fn kind(&self) -> AuthKind {
        match self {
            Self::ApiKey(_) => AuthKind::ApiKey,
            Self::BearerToken(_) => AuthKind::BearerToken,
            Self::CustomHeaders(_) => AuthKind::CustomHeaders,
            Self::BaseUrl => AuthKind::BaseUrl,
        }
    }

    pub(crate) fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let plain = match self {
            Self::ApiKey(key) => Plain::ApiKey(key.expose_secret().into()),
            Self::BearerToken(token) => Plain::BearerToken(token.expose_secret().into()),
            Self::CustomHeaders(headers) => Plain::CustomHeaders(
                headers
                    .iter()
                    .map(|(name, value)| (name.into(), value.expose_secret().into()))
                    .collect(),
            ),
            Self::BaseUrl => Plain::BaseUrl,
        };
        // Room for all of it: a buffer that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.capacity()));
        serde_json::to_writer(&mut *bytes, &plain).map_err(|_| VaultError::Damaged)?;
        Ok(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, VaultError> {
        let plain: Plain<'_> = serde_json::from_slice(bytes).map_err(|_| VaultError::Damaged)?;
        Ok(match plain {
            Plain::ApiKey(key) => Self::ApiKey(key.into_owned().into()),
            Plain::BearerToken(token) => Self::BearerToken(token.into_owned().into()),
            Plain::CustomHeaders(headers) => Self::CustomHeaders(
                headers
                    .into_iter()
                    .map(|(name, value)| (name.into_owned(), value.into_owned().into()))
                    .collect(),
            ),
            Plain::BaseUrl => Self::BaseUrl,
        })
    }

    /// More bytes than it takes when it is written.
    fn capacity(&self) -> usize {
        let text = |text: &SecretString| text.expose_secret().len();
        let bytes = match self {
            Self::ApiKey(secret) | Self::BearerToken(secret) => text(secret),
            Self::CustomHeaders(headers) => headers
                .iter()
                .map(|(name, value)| name.len() + text(value) + 8)
                .sum(),
            Self::BaseUrl => 0,
        };
        64 + bytes * 2
    }
}

/// Whether a text is legal as the value of an HTTP header.
fn is_header_value(text: &str) -> bool {
    text.bytes().all(|b| (b' '..=b'~').contains(&b))
}

fn is_header_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(kind: AuthKind, text: &str) -> Result<Credential, VaultError> {
        Credential::read(kind, &text.into())
    }

    #[test]
    fn what_cannot_be_a_secret_is_refused_and_not_repeated() {
        for (kind, text) in [
            (AuthKind::ApiKey, "  "),
            (AuthKind::ApiKey, "sk-two\nsk-lines"),
            (AuthKind::BearerToken, "sk-tab\tsk-"),
            (AuthKind::CustomHeaders, ""),
            (AuthKind::CustomHeaders, "sk-no colon"),
            (AuthKind::CustomHeaders, "sk- name: value"),
            (AuthKind::CustomHeaders, "x-sk-empty:"),
            (AuthKind::BaseUrl, "sk-too-much"),
        ] {
            let error = read(kind, text).err().unwrap().to_string();
            assert!(!error.contains("sk-"), "{error}");
            assert!(error.contains(kind.as_str()), "{error}");
        }
    }

    #[test]
    fn headers_are_one_a_line() {
        let read = read(AuthKind::CustomHeaders, "X-Team: red\n\n x-key:  a:b \n").unwrap();
        let Credential::CustomHeaders(headers) = read else {
            panic!("headers are headers");
        };
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose_secret()))
            .collect();
        assert_eq!(headers, [("x-key", "a:b"), ("x-team", "red")]);
    }

    #[test]
    fn a_kind_is_its_word() {
        for kind in AuthKind::ALL {
            assert_eq!(kind.as_str().parse::<AuthKind>().unwrap(), kind);
            assert_eq!(
                kind.as_str().replace('_', "-").parse::<AuthKind>().unwrap(),
                kind
            );
        }
        assert!("password".parse::<AuthKind>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_fits_its_room(key in "[ -~]{1,200}") {
            prop_assume!(!key.trim().is_empty());
            let credential = read(AuthKind::ApiKey, &key).unwrap();
            let bytes = credential.to_bytes().unwrap();
            prop_assert!(bytes.len() <= credential.capacity());
            let Credential::ApiKey(back) = Credential::from_bytes(&bytes).unwrap() else {
                panic!("a key is a key");
            };
            prop_assert_eq!(back.expose_secret(), key.trim());
        }
    }
}
