//! Who may reach a server over HTTP: by which names, from which pages, with which tokens.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// Who may reach a server over HTTP.
#[derive(Default)]
pub struct HttpAccess {
    /// Tokens, one a client. Without one only this machine may be listened on.
    pub tokens: Vec<SecretString>,
    /// Names under which the server is reached, beside this machine's and the address that is
    /// listened on: the allowed values of `Host`.
    pub hosts: Vec<String>,
    /// Pages that may call the server from a browser: the allowed values of `Origin`. None by
    /// default.
    pub origins: Vec<String>,
}

impl HttpAccess {
    /// Whether an address may be listened on: one that other machines reach needs a token.
    pub(crate) fn is_enough_for(&self, address: SocketAddr) -> bool {
        address.ip().is_loopback() || !self.tokens.is_empty()
    }

    /// The allowed values of `Host` and of `Origin` where this address is listened on.
    pub(crate) fn names(&self, address: SocketAddr) -> (Vec<String>, Vec<String>) {
        let hosts = hosts(address.ip(), &self.hosts);
        // A page of the server's own address is no stranger.
        let own = hosts.iter().filter_map(|host| origin(host, address.port()));
        let origins = own.chain(self.origins.iter().cloned()).collect();
        (hosts, origins)
    }

    /// The tokens, as they are compared.
    pub(crate) fn tokens(&self) -> Tokens {
        Tokens(self.tokens.iter().map(Known::of).collect())
    }
}

/// The tokens that let clients in, as they are compared.
pub(crate) struct Tokens(Vec<Known>);

struct Known {
    hash: [u8; 32],
    /// What is written down where something is to belong to whoever has the token.
    name: Arc<str>,
}

impl Known {
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

impl Tokens {
    /// Whether none is needed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which token a request has: `Authorization: Bearer TOKEN`.
    pub(crate) fn number_of(&self, headers: &HeaderMap) -> Option<usize> {
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = given.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let given = digest(&SecretString::from(token.trim()));
        // Every token is looked at whole, whichever fits.
        let mut found = None;
        for (number, known) in self.0.iter().enumerate() {
            if same(&known.hash, &given) {
                found = Some(number);
            }
        }
        found
    }

    /// What the token of a request is known by: the same wherever it stands among others, and
    /// after a restart.
    pub(crate) fn name_of(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let known = self.0.get(self.number_of(headers)?)?;
        Some(Arc::clone(&known.name))
    }
}

/// The allowed values of `Host`.
fn hosts(listening: IpAddr, more: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if !listening.is_unspecified() {
        hosts.push(listening.to_string());
    }
    hosts.extend_from_slice(more);
    hosts
}

/// The origin of pages at a host, on the server's own port.
fn origin(host: &str, port: u16) -> Option<String> {
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!("http://[{host}]:{port}"));
    }
    // One with a port is an authority of somebody else's, such as a proxy.
    (!host.contains(':')).then(|| format!("http://{host}:{port}"))
}

fn digest(token: &SecretString) -> [u8; 32] {
    Sha256::digest(token.expose_secret().as_bytes()).into()
}

/// Compares in a time that does not depend on where two hashes differ.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_this_machines_the_address_and_what_is_named() {
        let named = ["mcp.example".to_owned()];
        let of = |ip: &str| hosts(ip.parse().unwrap(), &named);
        assert_eq!(
            of("0.0.0.0"),
            ["localhost", "127.0.0.1", "::1", "mcp.example"]
        );
        assert!(of("192.0.2.1").contains(&"192.0.2.1".to_owned()));
        assert_eq!(origin("::1", 80).as_deref(), Some("http://[::1]:80"));
        assert_eq!(
            origin("localhost", 80).as_deref(),
            Some("http://localhost:80")
        );
        assert_eq!(origin("mcp.example:443", 80), None);
    }

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
