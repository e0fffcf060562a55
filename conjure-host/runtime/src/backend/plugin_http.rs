//! The clients for what plugins send, and which addresses a name may lead to.
//!
//! A manifest names hosts, and whoever answers for such a name may let it lead to this machine, or to the
//! data of a cloud's machine. A permission for a host is none for those. Networks of a company are what
//! names lead to there, and stay.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use conjure_config::env;
use conjure_core::address_scope::{AddressScope, is_localhost};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::permission_check::PermissionCheck;

/// The clients for what plugins send, made at first use: they read the system's certificates.
#[derive(Default)]
pub(crate) struct LazyHttp {
    remote_only: OnceLock<reqwest::Client>,
    with_local: OnceLock<reqwest::Client>,
}

impl LazyHttp {
    /// The client for a request to this address, which the permissions allow.
    pub(super) fn client(
        &self,
        url: &Url,
        permissions: &PermissionCheck,
    ) -> reqwest::Result<&reqwest::Client> {
        // Connections are kept by name: what one plugin may reach by it another one may not.
        let here_too =
            url.host_str().is_some_and(is_localhost) || permissions.reaches_this_machine();
        let client = match here_too {
            true => &self.with_local,
            false => &self.remote_only,
        };
        if let Some(client) = client.get() {
            return Ok(client);
        }
        let made = AddressRule::new(here_too).client()?;
        Ok(client.get_or_init(|| made))
    }
}

/// The addresses that names may lead to. One that is named itself is not looked up.
#[derive(Debug, Clone)]
struct AddressRule {
    /// Whether those of this machine are among them.
    allows_local: bool,
    /// Hosts of proxies, whose names are looked up in place of others.
    proxies: Arc<[String]>,
}

impl AddressRule {
    fn new(allows_local: bool) -> Self {
        let proxies = env::PROXIES.iter().filter_map(|name| {
            let proxy = env::var(name)?;
            let scheme = if proxy.contains("://") { "" } else { "http://" };
            let url = Url::parse(&format!("{scheme}{proxy}")).ok()?;
            url.host_str().map(str::to_owned)
        });
        Self {
            allows_local,
            proxies: proxies.collect(),
        }
    }

    fn client(self) -> reqwest::Result<reqwest::Client> {
        reqwest::Client::builder()
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(self))
            .build()
    }

    fn allows(&self, address: IpAddr) -> bool {
        match AddressScope::of(address) {
            AddressScope::Internet | AddressScope::Network | AddressScope::Benchmark => true,
            AddressScope::Machine => self.allows_local,
            AddressScope::Nowhere => false,
        }
    }
}

impl Resolve for AddressRule {
    fn resolve(&self, name: Name) -> Resolving {
        let rule = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let is_proxy = rule.proxies.iter().any(|proxy| proxy == host);
            let found = tokio::net::lookup_host((host, 0)).await?;
            let (fit, unfit): (Vec<SocketAddr>, Vec<SocketAddr>) =
                found.partition(|address| is_proxy || rule.allows(address.ip()));
            if fit.is_empty() {
                let unfit: Vec<IpAddr> = unfit.iter().map(SocketAddr::ip).collect();
                return Err(refusal(host, &unfit).into());
            }
            Ok(Box::new(fit.into_iter()) as Addrs)
        })
    }
}

/// Why a name that leads to these addresses alone is not followed, and what to do.
fn refusal(host: &str, addresses: &[IpAddr]) -> String {
    let is_of_machine = |address: &IpAddr| AddressScope::of(*address) == AddressScope::Machine;
    if addresses.iter().any(is_of_machine) {
        return format!(
            "`{host}` leads to this machine, and the manifest's `permissions.http` names neither \
             `localhost` nor that address; if it is meant, the plugin's author declares it there"
        );
    }
    let Some(address) = addresses.first() else {
        return format!("`{host}` leads to no address; look whether its name is right");
    };
    format!(
        "`{host}` leads to `{address}`, and no name may lead there, whatever the manifest declares: it is \
         a link-local address, or one where a cloud's machine has its own data, or no server's at all; if \
         it is meant, the plugin's author declares the address itself in `permissions.http` and asks for \
         it instead of the name"
    )
}

#[cfg(test)]
mod tests {
    use conjure_config::error_chain::with_causes;
    use conjure_skill_sdk::protocol::Permissions;
    use tokio::net::TcpListener;

    use super::*;

    fn permissions(http: &[&str]) -> PermissionCheck {
        let asked = Permissions {
            http: http.iter().map(|host| (*host).to_owned()).collect(),
            ..Permissions::default()
        };
        PermissionCheck::new(&asked, None)
    }

    #[test]
    fn a_name_leads_to_the_internet_and_to_the_network_alone() {
        for (address, elsewhere, here_too) in [
            ("1.1.1.1", true, true),
            ("10.1.2.3", true, true),
            ("fd00::1", true, true),
            ("127.0.0.1", false, true),
            ("::1", false, true),
            ("::ffff:127.0.0.1", false, true),
            ("169.254.169.254", false, false),
            ("0.0.0.0", false, false),
            ("fe80::1", false, false),
        ] {
            let address = address.parse().unwrap();
            let allowed = [false, true].map(|here| AddressRule::new(here).allows(address));
            assert_eq!(allowed, [elsewhere, here_too], "{address}");
        }
    }

    #[test]
    fn a_refusal_says_what_helps_where_the_name_leads() {
        for (address, says_localhost) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("169.254.169.254", false),
            ("fd00:ec2::254", false),
        ] {
            let said = refusal("vm", &[address.parse().unwrap()]);
            assert_eq!(said.contains("localhost"), says_localhost, "{said}");
            assert_eq!(said.contains(address), !says_localhost, "{said}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_none_unless_the_manifest_names_that() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = tokio::spawn(async move { listener.accept().await.is_ok() });
        let here = format!("http://localhost:{port}/");
        let client = AddressRule::new(false).client().unwrap();
        let error = client.get(&here).send().await.unwrap_err();
        let error = with_causes(&error);
        assert!(error.contains("leads to this machine"), "{error}");
        assert!(!accepted.is_finished());
        let http = LazyHttp::default();
        let is_here = |url: &str, asked: &[&str]| {
            let client = http.client(&Url::parse(url).unwrap(), &permissions(asked));
            let here_too = http.with_local.get();
            here_too.is_some_and(|here_too| std::ptr::eq(here_too, client.unwrap()))
        };
        assert!(!is_here("http://vm/", &["vm"]));
        for asked in ["*", "localhost", "127.0.0.1", "[::1]"] {
            assert!(is_here("http://vm/", &["vm", asked]), "{asked}");
        }
        assert!(is_here(&here, &["*.localhost"]));
        let client = http.client(&Url::parse(&here).unwrap(), &permissions(&["localhost"]));
        // Whoever listens says nothing, and closes.
        let _ = client.unwrap().get(&here).send().await;
        assert!(accepted.await.unwrap());
    }
}
