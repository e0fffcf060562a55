//! Files at addresses.

use std::time::Duration;

use conjure_config::env;
use conjure_config::error_chain::with_causes;
use reqwest::{NoProxy, Proxy, StatusCode, Url};

use crate::PackageError;

/// How long a server may say nothing.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long all of it may take, also from a server that says a little now and then.
pub(crate) const TOTAL_TIMEOUT: Duration = Duration::from_secs(3600);

/// The most addresses that one leads to after another.
const MAX_REDIRECTS: usize = 10;

/// What is on this machine, behind whatever else goes by no proxy.
const LOCAL_HOSTS: &str = ",localhost,127.0.0.0/8,::1";

/// Goes where an answer leads, but from an encrypted address only to another one, and from this machine
/// to another one only encrypted.
fn check_redirect(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    if attempt
        .previous()
        .iter()
        .any(|from| is_less_private(from, attempt.url()))
    {
        return attempt.error("it leads from an encrypted address to one that is not");
    }
    match attempt.previous().len() > MAX_REDIRECTS {
        true => attempt.error("it leads from one address to another without end"),
        false => attempt.follow(),
    }
}

/// Whether others can read what goes to one address, and not what goes to the one that led there.
pub(crate) fn is_less_private(from: &Url, to: &Url) -> bool {
    if to.scheme() == "https" {
        return false;
    }
    from.scheme() == "https" || (is_local(from) && !is_local(to))
}

/// Whether an address is one of this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A client that goes to no less private address than it began with, to this machine by no proxy, and
/// elsewhere by that of the environment, wherever an answer leads. `silence` is how long a server may say
/// nothing; while bytes are sent it says nothing either.
pub(crate) fn client(silence: Option<Duration>) -> Result<reqwest::Client, reqwest::Error> {
    let mut client = reqwest::Client::builder()
        .connect_timeout(IDLE_TIMEOUT)
        .timeout(TOTAL_TIMEOUT)
        .redirect(reqwest::redirect::Policy::custom(check_redirect))
        .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")));
    if let Some(silence) = silence {
        client = client.read_timeout(silence);
    }
    for proxy in proxies(env::var) {
        client = client.proxy(proxy);
    }
    client.build()
}

/// Makes the proxy of one name of an environment.
type ProxyKind = fn(String) -> reqwest::Result<Proxy>;

/// The proxies that an environment names, which nothing on this machine is asked by.
fn proxies(var: impl Fn(&str) -> Option<String>) -> Vec<Proxy> {
    let first = |names: [&str; 2]| names.into_iter().find_map(&var);
    let mut not = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    not.push_str(LOCAL_HOSTS);
    let kinds: [([&str; 2], ProxyKind); 3] = [
        (["HTTP_PROXY", "http_proxy"], Proxy::http::<String>),
        (["HTTPS_PROXY", "https_proxy"], Proxy::https::<String>),
        (["ALL_PROXY", "all_proxy"], Proxy::all::<String>),
    ];
    // Who asks a program of a web server could set the first one with a header.
    let is_served = var("REQUEST_METHOD").is_some();
    let kinds = kinds.into_iter().skip(usize::from(is_served));
    let named = kinds.filter_map(|(names, make)| make(first(names)?).ok());
    let named = named.map(|proxy| proxy.no_proxy(NoProxy::from_string(&not)));
    named.collect()
}

/// An address without the name and the password that may be in it.
pub(crate) fn redacted_url(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for addresses that can have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// A place as people may see it: a path, a name, or an address without the name and the password that
/// may be in it, also one that cannot be read as an address.
pub(crate) fn redacted_text(place: &str) -> String {
    let Some((scheme, rest)) = place.split_once("://") else {
        return place.to_owned();
    };
    match (rest.rsplit_once('@'), Url::parse(place)) {
        (None, _) => place.to_owned(),
        (Some(_), Ok(url)) => redacted_url(&url),
        (Some((_, rest)), Err(_)) => format!("{scheme}://{rest}"),
    }
}

/// What is to be done where a server gives this answer.
fn remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "Whoever may read it gives the password in the address, which is kept nowhere, so it has to \
             be given each time: `conjure plugin install https://NAME:PASSWORD@HOST/…`, and of an index \
             with `--index` or in CONJURE_PLUGIN_INDEX"
        }
        _ => "Check the address",
    }
}

/// What is at an address, at most so many bytes.
pub(crate) async fn get(url: &Url, limit: u64) -> Result<Vec<u8>, PackageError> {
    let failed = |reason: String| PackageError::Fetch {
        location: redacted_url(url),
        reason,
    };
    let client = client(Some(IDLE_TIMEOUT)).map_err(|error| failed(error.to_string()))?;
    let sent = client.get(url.clone()).send().await;
    let response = sent.map_err(|error| failed(with_causes(&error)))?;
    let status = response.status();
    if !status.is_success() {
        return Err(failed(format!(
            "the server answers {status}. {}",
            remedy(status)
        )));
    }
    read_body(response, limit).await.map_err(failed)
}

/// What an answer has, at most so many bytes.
///
/// # Errors
/// Why it cannot be had.
pub(crate) async fn read_body(
    mut response: reqwest::Response,
    limit: u64,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    loop {
        let piece = response.chunk().await;
        let Some(piece) = piece.map_err(|error| with_causes(&error))? else {
            return Ok(bytes);
        };
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > limit {
            return Err(format!("it has more than {limit} bytes"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        for (given, shown) in [
            ("https://ada:secret@h.example/p", "https://h.example/p"),
            ("https://ada@h.example/p?q=a@b", "https://h.example/p?q=a@b"),
            (
                "https://ada:secret@h.example:99999/p",
                "https://h.example:99999/p",
            ),
            ("https://ada:se/cret@h.example/p", "https://h.example/p"),
            ("http://ada:se@cret@h.example:x/", "http://h.example:x/"),
            ("https://h.example", "https://h.example"),
            ("ftp://ada:secret@h.example/p", "ftp://h.example/p"),
            ("HTTPS://ada:secret@h.example/p", "https://h.example/p"),
            ("./packages", "./packages"),
            ("weather@1.0.0", "weather@1.0.0"),
        ] {
            assert_eq!(redacted_text(given), shown);
        }
    }

    #[test]
    fn nothing_leads_to_where_others_can_read_it() {
        let url = |text: &str| Url::parse(text).unwrap();
        let leads = |from: &str, to: &str| is_less_private(&url(from), &url(to));
        for (from, to) in [
            ("https://a.example/", "http://a.example/"),
            ("https://a.example/", "http://127.0.0.1/"),
            ("http://localhost/", "http://a.example/"),
            ("http://[::1]/", "http://a.example/"),
        ] {
            assert!(leads(from, to), "{from} {to}");
        }
        for (from, to) in [
            ("https://a.example/", "https://b.example/"),
            ("http://a.example/", "http://b.example/"),
            ("http://localhost/", "http://127.0.0.2/"),
            ("http://localhost/", "https://a.example/"),
        ] {
            assert!(!leads(from, to), "{from} {to}");
        }
        assert!(!is_local(&url("http://127.0.0.1.example/")));
    }

    #[test]
    fn whoever_is_not_let_in_is_told_where_the_password_goes() {
        for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
            assert!(remedy(status).contains("--index"));
        }
        assert_eq!(remedy(StatusCode::NOT_FOUND), "Check the address");
    }
}
