//! The proxy on the way to a cluster, as `kubectl` has it: that of the kubeconfig, else that of the
//! environment, unless `NO_PROXY` names the cluster or it is on this machine.
//!
//! kube would ask whether `NO_PROXY` names the proxy.

use std::net::IpAddr;

use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::Kubeconfig;

/// The kinds of proxies that can be used.
const SCHEMES: [&str; 3] = ["http", "https", "socks5"];

/// Takes the proxy of the context's cluster out of a kubeconfig.
pub(crate) fn take_from(kubeconfig: &mut Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|named| named.name == context)?;
    let cluster = context.context.as_ref()?.cluster.clone();
    let mut clusters = kubeconfig.clusters.iter_mut();
    let named = clusters.find(|named| named.name == cluster)?;
    let proxy = named.cluster.as_mut()?.proxy_url.take();
    proxy.filter(|proxy| !proxy.is_empty())
}

/// Lets a configuration have the proxy of its kubeconfig, or else that of the environment, whose
/// variables `var` reads.
///
/// # Errors
/// When the proxy is none that can be used.
pub(crate) fn set(
    config: &mut Config,
    named: Option<String>,
    var: impl Fn(&str) -> Option<String>,
) -> Result<(), String> {
    config.proxy_url = None;
    let (proxy, place) = match (named, from_environment(config, var)) {
        (Some(proxy), _) => (proxy, "`proxy-url` of the kubeconfig"),
        (None, Some(proxy)) => (proxy, "HTTPS_PROXY or HTTP_PROXY"),
        (None, None) => return Ok(()),
    };
    // A login program may be told the whole cluster.
    let exec = config.auth_info.exec.as_mut();
    if let Some(cluster) = exec.and_then(|exec| exec.cluster.as_mut()) {
        cluster.proxy_url = Some(proxy.clone());
    }
    let address = match proxy.split_once("://") {
        // The proxy looks names up in any case.
        Some(("socks5h", rest)) => format!("socks5://{rest}"),
        Some(_) => proxy,
        None => format!("http://{proxy}"),
    };
    let is_known = address
        .split_once("://")
        .is_some_and(|(scheme, _)| SCHEMES.contains(&scheme));
    config.proxy_url = address.parse().ok().filter(|_| is_known);
    match config.proxy_url {
        Some(_) => Ok(()),
        None => Err(format!(
            "the proxy that {place} names cannot be used: it must be an address with http://, \
             https:// or socks5://, such as http://proxy.example.org:3128. NO_PROXY names the \
             clusters that need none"
        )),
    }
}

/// The proxy of the environment for a cluster.
fn from_environment(config: &Config, var: impl Fn(&str) -> Option<String>) -> Option<String> {
    let host = config.cluster_url.host()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = bare.parse::<IpAddr>().map_or_else(
        |_| bare.eq_ignore_ascii_case("localhost"),
        |ip| ip.is_loopback(),
    );
    if is_here {
        return None;
    }
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(&var);
        values.find(|value| !value.trim().is_empty())
    };
    let proxy = match config.cluster_url.scheme_str()? {
        "https" => first(["HTTPS_PROXY", "https_proxy"])?,
        "http" => first(["HTTP_PROXY", "http_proxy"])?,
        _ => return None,
    };
    let without = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let all = without.split(',').any(|entry| entry.trim() == "*");
    // Which proxy it is does not matter for whether the cluster is named.
    let matcher = Matcher::builder().all("http://proxy").no(without).build();
    (!all && matcher.intercept(&config.cluster_url).is_some()).then_some(proxy)
}

/// A proxy, for people: without who logs in there.
pub(crate) fn display_address(config: &Config) -> Option<String> {
    let url = config.proxy_url.as_ref()?;
    let port = url.port_u16().map(|port| format!(":{port}"));
    Some(format!(
        "{}{}",
        url.host().unwrap_or_default(),
        port.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The proxy that a cluster at this address gets.
    fn proxy(cluster: &str, named: Option<&str>, env: &[(&str, &str)]) -> Option<String> {
        let mut config = Config::new(cluster.parse().unwrap());
        let var = |name: &str| {
            let found = env.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        set(&mut config, named.map(str::to_owned), var).unwrap();
        display_address(&config)
    }

    #[test]
    fn no_proxy_is_about_the_cluster_and_not_about_the_proxy() {
        let https = ("HTTPS_PROXY", "http://me:word@127.0.0.1:3128");
        let of =
            |cluster: &str, without: &str| proxy(cluster, None, &[https, ("NO_PROXY", without)]);
        let found = Some("127.0.0.1:3128".to_owned());
        for without in ["", "127.0.0.1", "other.org,", "10.0.1.0/24"] {
            assert_eq!(of("https://10.0.0.1:6443", without), found, "{without}");
        }
        for without in ["10.0.0.1", "10.0.0.0/8, other.org", "*", "a,,10.0.0.1,"] {
            assert_eq!(of("https://10.0.0.1:6443", without), None, "{without}");
        }
        for without in ["example.org", ".example.org", "k8s.example.org"] {
            assert_eq!(of("https://k8s.example.org", without), None, "{without}");
        }
        // A proxy elsewhere reaches nothing of this machine.
        assert_eq!(of("https://127.0.0.1:6443", ""), None);
        assert_eq!(of("https://[::1]:6443", ""), None);
        assert_eq!(of("https://localhost:6443", ""), None);
        assert_eq!(of("http://10.0.0.1:8001", ""), None);
    }

    #[test]
    fn the_proxy_of_a_kubeconfig_goes_before_that_of_the_environment() {
        let env = [("https_proxy", "proxy:1"), ("no_proxy", "10.0.0.1")];
        let cluster = "https://10.0.0.1:6443";
        let named = proxy(cluster, Some("socks5h://own:2"), &env);
        assert_eq!(named, Some("own:2".to_owned()));
        let other = proxy("https://10.0.0.2", None, &env);
        assert_eq!(other, Some("proxy:1".to_owned()));
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused_without_its_password() {
        let mut config = Config::new("https://10.0.0.1".parse().unwrap());
        let named = Some("ftp://me:word@proxy".to_owned());
        let why = set(&mut config, named, |_| None).unwrap_err();
        assert!(
            why.contains("`proxy-url`") && !why.contains("word"),
            "{why}"
        );
    }

    #[test]
    fn the_contexts_proxy_is_taken_out_of_a_kubeconfig() {
        let read = || -> Kubeconfig {
            serde_json::from_value(json!({
                "current-context": "b",
                "contexts": [
                    { "name": "a", "context": { "cluster": "one", "user": "me" } },
                    { "name": "b", "context": { "cluster": "two", "user": "me" } },
                ],
                "clusters": [
                    { "name": "one", "cluster": { "server": "https://a", "proxy-url": "http://p:1" } },
                    { "name": "two", "cluster": { "server": "https://b", "proxy-url": "" } },
                ],
                "users": [],
            }))
            .unwrap()
        };
        let mut kubeconfig = read();
        assert_eq!(
            take_from(&mut kubeconfig, Some("a")).as_deref(),
            Some("http://p:1")
        );
        assert_eq!(take_from(&mut kubeconfig, Some("a")), None);
        assert_eq!(take_from(&mut read(), None), None);
    }
}
