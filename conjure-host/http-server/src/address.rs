//! How programs of this machine reach a server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How programs of this machine reach an address.
pub fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}
