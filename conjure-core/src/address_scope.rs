//! Where an address of the internet protocol leads: how near that is, as far as the address says so.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    /// To any machine.
    Internet,
    /// To a machine of the network that this one is in.
    Network,
    /// To this machine.
    Machine,
    /// To a network for measurements (RFC 2544), which proxies give out for names that they look up
    /// themselves.
    Benchmark,
    /// Nowhere that anybody should be sent to, such as the data of a cloud's machine.
    Nowhere,
}

impl AddressScope {
    /// Where this address leads. One of the newer kind that stands for one of the older leads where that
    /// does.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => scope_v4(address),
            IpAddr::V6(address) => scope_v6(address),
        }
    }
}

/// Address of the metadata service of Alibaba's cloud; lies among addresses of networks.
const METADATA_V4: [u8; 4] = [100, 100, 100, 200];
/// Addresses of the metadata services of Amazon's and Google's clouds.
const METADATA_V6: [[u16; 8]; 2] = [
    [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254],
    [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254],
];

/// Whether a name of a host is one of this machine, whatever it is looked up as.
#[must_use]
pub fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

fn scope_v4(address: Ipv4Addr) -> AddressScope {
    if address.octets() == METADATA_V4 {
        return AddressScope::Nowhere;
    }
    let [first, second, ..] = address.octets();
    match (first, second) {
        (127, _) => AddressScope::Machine,
        (10, _) | (172, 16..=31) | (192, 168) | (100, 64..=127) => AddressScope::Network,
        (198, 18 | 19) => AddressScope::Benchmark,
        (0 | 224..=255, _) | (169, 254) => AddressScope::Nowhere,
        _ => AddressScope::Internet,
    }
}

fn scope_v6(address: Ipv6Addr) -> AddressScope {
    let within = |high: u16, low: u16| {
        let address = (u32::from(high) << 16) | u32::from(low);
        scope_v4(Ipv4Addr::from(address))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressScope::Machine,
        // Those that stand for one of the older kind.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => within(high, low),
        segments if METADATA_V6.contains(&segments) => AddressScope::Nowhere,
        [0xfc00..=0xfdff, ..] => AddressScope::Network,
        [0xfe80..=0xfebf | 0xff00..=0xffff, ..] | [0x2001, 0, ..] | [0x64, 0xff9b, 1, ..] => {
            AddressScope::Nowhere
        }
        _ => AddressScope::Internet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_how_near_it_is() {
        for (address, scope) in [
            ("1.1.1.1", AddressScope::Internet),
            ("2606:4700::1111", AddressScope::Internet),
            ("10.1.2.3", AddressScope::Network),
            ("192.168.0.1", AddressScope::Network),
            ("fd00::1", AddressScope::Network),
            ("64:ff9b::a00:1", AddressScope::Network),
            ("127.0.0.2", AddressScope::Machine),
            ("::1", AddressScope::Machine),
            ("::ffff:127.0.0.1", AddressScope::Machine),
            ("198.18.0.5", AddressScope::Benchmark),
            ("0.0.0.0", AddressScope::Nowhere),
            ("169.254.169.254", AddressScope::Nowhere),
            ("fe80::1", AddressScope::Nowhere),
            ("100.100.100.200", AddressScope::Nowhere),
            ("::ffff:100.100.100.200", AddressScope::Nowhere),
            ("100.100.100.201", AddressScope::Network),
            ("fd00:ec2::254", AddressScope::Nowhere),
            ("fd00:ec2::253", AddressScope::Network),
            ("fd20:ce::254", AddressScope::Nowhere),
        ] {
            assert_eq!(
                AddressScope::of(address.parse().unwrap()),
                scope,
                "{address}"
            );
        }
        assert!(is_localhost("LOCALHOST.") && is_localhost("a.localhost"));
        assert!(!is_localhost("localhost.example"));
    }
}
