//! Names of saved auths: in full, as sessions write them, and with the credential at hand.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use conjure_vault::{AuthKind, Credential};
use serde::{Deserialize, Serialize};

/// The name of a saved auth in full. Shown as `PROVIDER/KIND/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthName {
    /// The provider.
    pub provider: String,
    /// Such as `api_key`.
    pub kind: String,
    /// The name that a person gave it.
    pub name: String,
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.provider, self.kind, self.name)
    }
}

/// A saved auth as a session names it: `NAME`, or `PROVIDER/KIND/NAME` where several have the name.
/// A host puts the credential to it when a session opens; it is never written or printed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AuthRef {
    text: String,
    opened: Option<Arc<OpenAuth>>,
}

impl AuthRef {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The auth with its credential, once a host opened it.
    pub fn opened(&self) -> Option<&Arc<OpenAuth>> {
        self.opened.as_ref()
    }

    /// Whether this is it: by its name, by all three of its names.
    pub fn matches(&self, auth: &AuthName) -> bool {
        let mut parts = self.text.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, None) => auth.name == name,
            (Some(provider), Some(kind), Some(name)) => {
                let kind = kind.replace('-', "_");
                auth.provider == provider && auth.kind == kind && auth.name == name
            }
            _ => false,
        }
    }
}

impl From<AuthName> for AuthRef {
    fn from(name: AuthName) -> Self {
        Self {
            text: name.to_string(),
            opened: None,
        }
    }
}

impl From<OpenAuth> for AuthRef {
    fn from(auth: OpenAuth) -> Self {
        Self {
            text: auth.name.to_string(),
            opened: Some(Arc::new(auth)),
        }
    }
}

/// What was written is no name of a saved auth.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "`{text}` cannot be the name of a saved auth: a name is 3 to 50 letters, digits, `_` and `-`, \
     and in full PROVIDER/KIND/NAME"
)]
pub struct BadAuthName {
    /// What was written.
    pub text: String,
}

impl FromStr for AuthRef {
    type Err = BadAuthName;

    fn from_str(text: &str) -> Result<Self, BadAuthName> {
        let parts: Vec<&str> = text.split('/').collect();
        let right = match parts.as_slice() {
            [name] => is_auth_name(name),
            [provider, kind, name] => {
                is_provider_name(provider) && kind.parse::<AuthKind>().is_ok() && is_auth_name(name)
            }
            _ => false,
        };
        if !right {
            return Err(BadAuthName {
                text: text.to_owned(),
            });
        }
        Ok(Self {
            text: text.to_owned(),
            opened: None,
        })
    }
}

impl TryFrom<String> for AuthRef {
    type Error = BadAuthName;

    fn try_from(text: String) -> Result<Self, BadAuthName> {
        text.parse()
    }
}

impl From<AuthRef> for String {
    fn from(auth: AuthRef) -> Self {
        auth.text
    }
}

impl PartialEq for AuthRef {
    /// By name.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Without the credential.
impl fmt::Debug for AuthRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuthRef").field(&self.text).finish()
    }
}

/// A saved auth whose credential can be read.
pub struct OpenAuth {
    /// Full name of the auth.
    pub name: AuthName,
    /// Where the provider is, when not at its usual place.
    pub base_url: Option<String>,
    /// What is sent.
    pub credential: Credential,
}

/// What the store takes as a name.
pub fn is_auth_name(text: &str) -> bool {
    let letters = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (3..=50).contains(&text.len()) && text.bytes().all(letters)
}

/// A provider's name that can stand in front of a slash.
pub fn is_provider_name(text: &str) -> bool {
    let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(letters)
}
