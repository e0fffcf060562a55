//! The addresses that a request to an authorization server may go to.
//!
//! The metadata of such a server says where it is, and may say anything: an address of this machine,
//! or of the network that the machine is in. Only a server that is there itself may name another
//! place there. rmcp's own requests keep to the same rule.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use conjure_core::address_scope::{AddressScope, is_localhost};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::{Host, Url};

/// Variables that name a proxy. Its name is looked up in place of those of the servers behind it.
const PROXY_VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// The addresses that a server may name.
#[derive(Debug, Clone)]
pub(super) struct AddressFilter {
    server_address: Option<IpAddr>,
    /// Where the server itself is, as far as its address says so.
    scope: Option<AddressScope>,
    proxies: Arc<[String]>,
}

impl AddressFilter {
    /// The filter for the server at this address.
    pub(super) fn of(url: &Url) -> Self {
        let own = literal(url);
        let is_localhost = url.host_str().is_some_and(is_localhost);
        let proxies = PROXY_VARIABLES.iter().filter_map(|name| {
            let proxy = std::env::var(name).ok()?;
            let scheme = if proxy.contains("://") { "" } else { "http://" };
            let url = Url::parse(&format!("{scheme}{proxy}")).ok()?;
            url.host_str().map(str::to_owned)
        });
        Self {
            server_address: own,
            scope: own
                .map(AddressScope::of)
                .or_else(|| is_localhost.then_some(AddressScope::Machine)),
            proxies: proxies.collect(),
        }
    }

    /// A client that goes nowhere else, as long as what it is asked for was looked at with
    /// [`Self::check`]. It follows no redirect.
    pub(super) fn client(self) -> reqwest::Result<reqwest::Client> {
        reqwest::Client::builder()
            .redirect(Policy::none())
            .dns_resolver(Arc::new(self))
            .build()
    }

    /// Whether an endpoint may be visited, as far as its address says so without being looked up.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn check(&self, endpoint: &str) -> Result<(), String> {
        let url = Url::parse(endpoint).map_err(|error| format!("its address is none: {error}"))?;
        match literal(&url) {
            Some(address) if !self.allows(address) => Err(refusal(&address.to_string())),
            _ => Ok(()),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        match AddressScope::of(address) {
            _ if self.server_address == Some(address) => true,
            AddressScope::Internet => true,
            there @ (AddressScope::Network | AddressScope::Machine) => self.scope == Some(there),
            AddressScope::Benchmark | AddressScope::Nowhere => false,
        }
    }
}

impl Resolve for AddressFilter {
    fn resolve(&self, name: Name) -> Resolving {
        let filter = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let is_proxy = filter.proxies.iter().any(|proxy| proxy == host);
            let found = tokio::net::lookup_host((host, 0)).await?;
            let fit: Vec<SocketAddr> = found
                .filter(|address| is_proxy || filter.allows(address.ip()))
                .collect();
            if fit.is_empty() {
                return Err(refusal(host).into());
            }
            Ok(Box::new(fit.into_iter()) as Addrs)
        })
    }
}

fn refusal(host: &str) -> String {
    format!("`{host}` is an address that the authorization server of this server may not name")
}

fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn filter(url: &str) -> AddressFilter {
        AddressFilter::of(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_server_elsewhere_names_no_address_of_this_machine_or_its_network() {
        let elsewhere = filter("https://mcp.example/mcp");
        for hostile in [
            "http://127.0.0.1:1/revoke",
            "http://[::1]:1/revoke",
            "https://10.1.2.3/revoke",
            "https://192.168.0.1/revoke",
            "https://169.254.169.254/revoke",
            "https://[fd00::1]/revoke",
            "https://[::ffff:127.0.0.1]/revoke",
            "https://[64:ff9b::a00:1]/revoke",
        ] {
            assert!(elsewhere.check(hostile).is_err(), "{hostile}");
        }
        for fit in ["https://as.example/revoke", "https://1.1.1.1/revoke"] {
            assert!(elsewhere.check(fit).is_ok(), "{fit}");
        }
        let here = filter("http://localhost:8000/mcp");
        assert!(here.check("http://127.0.0.1:1/revoke").is_ok());
        assert!(here.check("https://10.1.2.3/revoke").is_err());
        let near = filter("https://10.0.0.1/mcp");
        assert!(near.check("https://10.1.2.3/revoke").is_ok());
        assert!(near.check("http://127.0.0.1:1/revoke").is_err());
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_no_way_around_it() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = tokio::spawn(async move { listener.accept().await.is_ok() });
        let client = filter("https://mcp.example/mcp").client().unwrap();
        let sent = client.post(format!("http://localhost:{port}/revoke"));
        let error = crate::failure::chain(&sent.send().await.unwrap_err());
        assert!(error.contains("may not name"), "{error}");
        assert!(!accepted.is_finished());
    }
}
