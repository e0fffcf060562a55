//! Access rules of a server over HTTP: by which names, from which pages and with which tokens it may be
//! reached.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::hosts::AllowedHosts;

/// Access rules of a server over HTTP.
#[derive(Default)]
pub struct HttpAccess {
    /// Tokens, one a client. Without one there is no server: other users live on this machine.
    pub tokens: Vec<SecretString>,
    /// Names under which the server is reached, beside this machine's and the address that is
    /// listened on: the allowed values of `Host`.
    pub hosts: Vec<String>,
    /// Pages that may call the server from a browser: the allowed values of `Origin`. None by
    /// default.
    pub origins: Vec<String>,
}

impl HttpAccess {
    /// The allowed values of `Host` and of `Origin` where this address is listened on.
    pub fn names(&self, address: SocketAddr) -> (AllowedHosts, Vec<String>) {
        let hosts = AllowedHosts::new(address.ip(), &self.hosts);
        // A page of the server's own address is no stranger.
        let own = hosts.origins(address.port());
        let origins = own.chain(self.origins.iter().cloned()).collect();
        (hosts, origins)
    }

    /// The tokens, as they are compared.
    pub fn tokens(&self) -> AccessTokens {
        AccessTokens(self.tokens.iter().map(KnownToken::of).collect())
    }
}

/// The tokens that let clients in, as they are compared.
pub struct AccessTokens(Vec<KnownToken>);

struct KnownToken {
    hash: [u8; 32],
    /// What is written down where something is to belong to whoever has the token.
    name: Arc<str>,
}

impl KnownToken {
    fn of(token: &SecretString) -> Self {
        let hash = digest(token);
        // Half of another hash: what is written down says nothing about what is compared.
        let name = Sha256::new().chain_update(b"client\n").chain_update(hash);
        let name = name.finalize();
        let name: String = name.iter().take(16).map(|b| format!("{b:02x}")).collect();
        Self {
            hash,
            name: name.into(),
        }
    }
}

impl AccessTokens {
    /// A key that all tokens together give, for this purpose: with other tokens it is another one.
    pub fn key(&self, purpose: &str) -> [u8; 32] {
        let mut hashes: Vec<_> = self.0.iter().map(|known| known.hash).collect();
        hashes.sort_unstable();
        let hash = Sha256::new().chain_update(purpose.as_bytes());
        let hash = hashes.iter().fold(hash, sha2::Digest::chain_update);
        hash.finalize().into()
    }

    /// Number of the token that a request shows: `Authorization: Bearer TOKEN`.
    pub fn number_of(&self, headers: &HeaderMap) -> Option<usize> {
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = given.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let given = digest(&SecretString::from(token.trim()));
        // Every token is looked at whole, whichever fits.
        let mut found = None;
        for (number, known) in self.0.iter().enumerate() {
            if hashes_equal(&known.hash, &given) {
                found = Some(number);
            }
        }
        found
    }

    /// What the token of a request is known by: the same wherever it stands among others, and
    /// after a restart.
    pub fn name_of(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let known = self.0.get(self.number_of(headers)?)?;
        Some(Arc::clone(&known.name))
    }
}

fn digest(token: &SecretString) -> [u8; 32] {
    Sha256::digest(token.expose_secret().as_bytes()).into()
}

/// Compares in a time that does not depend on where two hashes differ.
fn hashes_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_itself_and_not_by_its_place() {
        let name = |tokens: &[&str], token: &str| {
            let tokens = tokens.iter().map(|token| SecretString::from(*token));
            let access = HttpAccess {
                tokens: tokens.collect(),
                ..HttpAccess::default()
            };
            let mut headers = HeaderMap::new();
            let value = format!("Bearer {token}").parse().unwrap();
            headers.insert(header::AUTHORIZATION, value);
            access.tokens().name_of(&headers)
        };
        let first = name(&["first", "second"], "first").unwrap();
        assert_eq!(name(&["new", "first"], "first").unwrap(), first);
        assert_ne!(name(&["new", "first"], "new").unwrap(), first);
        assert_eq!(name(&["first"], "second"), None);
        assert!(first.len() == 32 && !first.contains("first"));
    }

    #[test]
    fn a_token_is_the_same_or_not() {
        let access = HttpAccess {
            tokens: vec!["first".into(), "second".into()],
            ..HttpAccess::default()
        };
        let tokens = access.tokens();
        let number = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            tokens.number_of(&headers)
        };
        assert_eq!(number("Bearer second"), Some(1));
        assert_eq!(number("bearer first"), Some(0));
        for wrong in ["Bearer", "Bearer third", "Basic first", "first"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
