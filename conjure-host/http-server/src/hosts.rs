//! The names by which a server may be asked: the allowed values of `Host`.
//!
//! Keeps pages out whose name was bound to this address after they were loaded (DNS rebinding). A
//! value is a name, or a name and a port, and nothing beside them.

use std::net::{IpAddr, Ipv6Addr};

/// The allowed values of `Host`.
#[derive(Debug, Clone)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Allows this machine's names, the address that is listened on, and more of them.
    pub fn new(listening: IpAddr, more: &[String]) -> Self {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        if !listening.is_unspecified() {
            hosts.push(listening.to_string());
        }
        hosts.extend_from_slice(more);
        Self(hosts)
    }

    /// Whether a server may be asked by this name, with or without a port.
    pub fn allows(&self, value: &str) -> bool {
        let is_known = |name: &str| self.0.iter().any(|known| known.eq_ignore_ascii_case(name));
        // One that was allowed with its port is allowed as it is.
        is_known(value) || name_of(value).is_some_and(is_known)
    }

    /// The origins of pages at these names, on the server's own port.
    pub fn origins(&self, port: u16) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(move |host| origin(host, port))
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// The name of a value that is `NAME`, `NAME:PORT`, `[IPV6]` or `[IPV6]:PORT` and nothing else.
fn name_of(value: &str) -> Option<&str> {
    let (name, port) = match value.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, port)
        }
        None => {
            let end = value.find(':').unwrap_or(value.len());
            let (name, port) = value.split_at(end);
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_plain) {
                return None;
            }
            (name, port)
        }
    };
    let is_port = match port.strip_prefix(':') {
        Some(number) => {
            matches!(number.len(), 1..=5) && number.bytes().all(|byte| byte.is_ascii_digit())
        }
        None => port.is_empty(),
    };
    is_port.then_some(name)
}

/// The origin of pages at a host, on the server's own port.
fn origin(host: &str, port: u16) -> Option<String> {
    if host.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("http://[{host}]:{port}"));
    }
    // One with a port is an authority of somebody else's, such as a proxy.
    (!host.contains(':')).then(|| format!("http://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_this_machines_the_address_and_what_is_named() {
        let named = ["mcp.example".to_owned()];
        let of = |ip: &str| AllowedHosts::new(ip.parse().unwrap(), &named);
        assert_eq!(
            of("0.0.0.0").names(),
            ["localhost", "127.0.0.1", "::1", "mcp.example"]
        );
        assert!(of("192.0.2.1").allows("192.0.2.1:80"));
        assert_eq!(origin("::1", 80).as_deref(), Some("http://[::1]:80"));
        assert_eq!(
            origin("localhost", 80).as_deref(),
            Some("http://localhost:80")
        );
        assert_eq!(origin("mcp.example:443", 80), None);
    }

    #[test]
    fn a_name_is_allowed_whole_and_nothing_beside_it() {
        let named = ["box.example:8443".to_owned()];
        let hosts = AllowedHosts::new("127.0.0.1".parse().unwrap(), &named);
        for good in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:7420",
            "[::1]",
            "[::1]:7420",
            "box.example:8443",
        ] {
            assert!(hosts.allows(good), "{good}");
        }
        for bad in [
            "",
            ":",
            "[::1]:",
            "localhost:",
            "[::1]evil",
            "[::1]evil:7420",
            "[::1]:7420evil",
            "[::1",
            "[::1]]",
            "localhost:evil",
            "localhost:123456",
            "localhost@evil",
            "user@localhost",
            "localhost/",
            "localhost.evil",
            "127.0.0.1.evil",
            "127.0.0.2",
            "box.example",
            "box.example:84430",
            "local host",
        ] {
            assert!(!hosts.allows(bad), "{bad}");
        }
    }
}
