//! How a browser is let in, which cannot send a token: by a link that is good once and for ten
//! minutes, and after that by a cookie.
//!
//! The cookie is `HttpOnly` and `SameSite=Strict`, ends after 30 days or when its browser is logged
//! out, and outlives a restart of the server. It is signed with the server's tokens: with other tokens
//! every browser is out. Browsers send it to every port of the host, so that whoever listens on
//! another one can use it until it ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::{IntoParams, ToSchema};

use super::ended_cookies::EndedCookies;
use super::operations::{Operations, routes};
use super::page_parts::wants_page;
use super::problem::Problem;
use super::state::App;

/// Where a link leads to.
pub(super) const LOGIN: &str = "/login";
/// What a browser sees after it was let in, where there is no page.
const FALLBACK_PATH: &str = "/api/v1/sessions";
/// Where the page begins.
const PAGE_PATH: &str = "/";
/// How long a link is good.
const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// How long a cookie is good.
const COOKIE_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The most links that wait to be opened; a further one takes the place of the oldest.
const MAX_LINKS: usize = 32;

/// The links that wait, and what cookies are signed with.
pub(super) struct Browsers {
    /// The server's own name for its cookies. Browsers send them to every port of a host.
    cookie: String,
    url: String,
    key: [u8; 32],
    has_page: bool,
    ended_cookies: EndedCookies,
    /// The hashes of codes, and when these end, in milliseconds since 1970.
    links: Mutex<BTreeMap<[u8; 32], u64>>,
}

/// A link that lets a browser in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BrowserLink {
    /// Address of the link. Opened once, it lets a browser in.
    pub(super) url: String,
    /// Time until which the link is good, in milliseconds since 1970.
    pub(super) expires_at_ms: u64,
}

/// What a link holds.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Code {
    /// The code of the link.
    code: String,
}

impl Browsers {
    /// For a server at this address, with a key that is its own.
    pub(super) fn new(
        address: SocketAddr,
        key: [u8; 32],
        has_page: bool,
        ended: EndedCookies,
    ) -> Self {
        Self {
            has_page,
            ended_cookies: ended,
            cookie: format!("conjure-{}", address.port()),
            url: conjure_http_server::url(address),
            key,
            links: Mutex::default(),
        }
    }

    /// A new link.
    pub(super) fn link(&self) -> BrowserLink {
        let code = uuid::Uuid::new_v4().simple().to_string();
        let expires_at_ms = now().saturating_add(millis(LINK_LIFETIME));
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() >= MAX_LINKS {
            let oldest = links.iter().min_by_key(|(_, end)| **end);
            if let Some(oldest) = oldest.map(|(code, _)| *code) {
                links.remove(&oldest);
            }
        }
        links.insert(hash(&code), expires_at_ms);
        BrowserLink {
            url: format!("{}{LOGIN}?code={code}", self.url),
            expires_at_ms,
        }
    }

    /// Takes the code of a link, which is good no more then.
    fn redeem(&self, code: &str) -> bool {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.remove(&hash(code)).is_some_and(|end| now() < end)
    }

    fn mac_of(&self, text: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(text.as_bytes());
        Some(mac)
    }

    /// A cookie for a browser that was let in.
    fn set_cookie(&self) -> Option<HeaderValue> {
        let end = now().saturating_add(millis(COOKIE_LIFETIME));
        // Of its own for each browser, so that one is logged out and no other.
        let text = format!("{end}.{}", uuid::Uuid::new_v4().simple());
        let signature = self.mac_of(&text)?.finalize().into_bytes();
        let signature: String = signature.iter().map(|b| format!("{b:02x}")).collect();
        let (name, age) = (&self.cookie, COOKIE_LIFETIME.as_secs());
        let cookie =
            format!("{name}={text}.{signature}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict");
        HeaderValue::from_str(&cookie).ok()
    }

    /// What takes the cookie away again.
    fn clear_cookie(&self) -> Option<HeaderValue> {
        let cookie = format!(
            "{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict",
            self.cookie
        );
        HeaderValue::from_str(&cookie).ok()
    }

    /// The cookie of a request, without its signature, if it comes from a browser that was let in, and
    /// of this server's own pages or by its person: pages of another port of this host are of the same
    /// site and another origin.
    pub(super) fn cookie_of(&self, headers: &HeaderMap) -> Option<String> {
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if !matches!(site, None | Some(b"same-origin" | b"none")) {
            return None;
        }
        let mut good = self.valid_cookies(headers).map(|(text, _)| text);
        good.find(|text| !self.ended_cookies.has(text))
            .map(str::to_owned)
    }

    /// Waits until nobody is let in any more by a cookie that [`Self::cookie_of`] gave.
    pub(super) async fn wait_for_logout(&self, cookie: &str) {
        self.ended_cookies.wait_until_ended(cookie).await;
    }

    /// Ends the cookies that a browser sent, for whoever has them.
    fn end(&self, headers: &HeaderMap) -> std::io::Result<()> {
        let mut good = self.valid_cookies(headers);
        good.try_for_each(|(text, end)| self.ended_cookies.add(text, end, now()))
    }

    /// The cookies of this server that are signed and whose time is not over, without their signatures,
    /// and when they end.
    fn valid_cookies<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = (&'a str, u64)> {
        let all = headers.get_all(header::COOKIE).into_iter();
        let pairs = all.filter_map(|cookies| cookies.to_str().ok());
        let pairs = pairs.flat_map(|cookies| cookies.split(';'));
        let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
        let own = pairs.filter(move |(name, _)| *name == self.cookie);
        let own = own.filter_map(|(_, value)| value.rsplit_once('.'));
        own.filter_map(move |(text, signature)| Some((text, self.end_of(text, signature)?)))
    }

    /// When a cookie ends, if it is signed and that is not past. One of before there were names for
    /// browsers has its end only.
    fn end_of(&self, text: &str, signature: &str) -> Option<u64> {
        let end = text.split('.').next()?.parse::<u64>().ok();
        let end = end.filter(|end| now() < *end)?;
        let signed = self.mac_of(text)?;
        signed.verify_slice(&bytes_of(signature)?).ok()?;
        Some(end)
    }
}

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(create_link))
        .routes(routes!(login))
        .routes(routes!(logout))
}

/// Make a link that lets a browser in, once
#[utoipa::path(post, path = "/api/v1/browser-links", operation_id = "create_browser_link",
    tag = "server", responses((status = 201, description = "It is good once, for ten minutes",
        body = BrowserLink)))]
async fn create_link(State(app): State<App>) -> Response {
    (StatusCode::CREATED, Json(app.browsers.link())).into_response()
}

/// Let a browser in
#[utoipa::path(get, path = "/login", operation_id = "login", tag = "server", params(Code),
    responses((status = 303, description = "The browser has a cookie now",
        headers(("Location" = String, description = "What it sees first")))))]
async fn login(
    State(app): State<App>,
    method: Method,
    code: Result<Query<Code>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    // Programs look at links with HEAD before a person opens them: that uses none up.
    if method == Method::HEAD {
        return Ok(StatusCode::OK.into_response());
    }
    let is_good = code.is_ok_and(|Query(code)| app.browsers.redeem(&code.code));
    let Some(cookie) = app.browsers.set_cookie().filter(|_| is_good) else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "used-link",
            "this link is good no more: it lets a browser in once, within ten minutes; `conjure \
             serve --link` prints another one",
        ));
    };
    let first = if app.browsers.has_page {
        PAGE_PATH
    } else {
        FALLBACK_PATH
    };
    let said = [
        (header::SET_COOKIE, cookie),
        (header::LOCATION, HeaderValue::from_static(first)),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
    ];
    Ok((StatusCode::SEE_OTHER, said).into_response())
}

/// Take a browser's cookie away
#[utoipa::path(post, path = "/logout", operation_id = "logout", tag = "server",
    responses((status = 204, description = "The browser has no cookie any more"),
        (status = 303, description = "The same, for a form of the page",
            headers(("Location" = String, description = "Where the page begins")))))]
async fn logout(State(app): State<App>, headers: HeaderMap) -> Result<Response, Problem> {
    let browsers = app.clone();
    let sent = headers.clone();
    let ended = tokio::task::spawn_blocking(move || browsers.browsers.end(&sent)).await;
    let ended = ended.map_err(|error| Problem::host(format!("it ended early: {error}")))?;
    ended.map_err(|error| {
        let detail = format!("the browser is not logged out, its cookie is good still: {error}");
        Problem::of_disk(&error, detail)
    })?;
    // A form of the page goes on to where it is said how to get in again.
    let mut response = if app.browsers.has_page && wants_page(&headers) {
        let first = [(header::LOCATION, HeaderValue::from_static(PAGE_PATH))];
        (StatusCode::SEE_OTHER, first).into_response()
    } else {
        StatusCode::NO_CONTENT.into_response()
    };
    if let Some(cookie) = app.browsers.clear_cookie() {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn hash(code: &str) -> [u8; 32] {
    Sha256::digest(code.as_bytes()).into()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn now() -> u64 {
    millis(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

/// Bytes in hex.
fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| {
        std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)
    });
    pairs
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of a directory that is nowhere.
    fn browsers(key: u8) -> Browsers {
        of_dir(key, std::path::Path::new("/nowhere/at/all"))
    }

    fn of_dir(key: u8, data_dir: &std::path::Path) -> Browsers {
        let address = "127.0.0.1:7420".parse().unwrap();
        Browsers::new(address, [key; 32], false, EndedCookies::of(data_dir))
    }

    fn knows(server: &Browsers, headers: &HeaderMap) -> bool {
        server.cookie_of(headers).is_some()
    }

    fn with(cookie: &str, site: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        if let Some(site) = site {
            headers.insert("sec-fetch-site", site.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_link_is_good_once() {
        let browsers = browsers(1);
        let link = browsers.link();
        let (_, code) = link.url.split_once("code=").unwrap();
        assert!(link.url.starts_with("http://127.0.0.1:7420/login?"));
        assert!(!browsers.redeem("0"));
        assert!(browsers.redeem(code));
        assert!(!browsers.redeem(code));
        let first = browsers.link();
        for _ in 0..MAX_LINKS {
            browsers.link();
        }
        assert!(browsers.links.lock().unwrap().len() <= MAX_LINKS);
        drop(first);
    }

    #[test]
    fn a_cookie_is_the_servers_own_and_for_its_own_pages() {
        let ours = browsers(1);
        let set = ours.set_cookie().unwrap();
        let set = set.to_str().unwrap();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(set.contains(part), "{set}");
        }
        let (cookie, _) = set.split_once(';').unwrap();
        assert!(knows(&ours, &with(cookie, None)));
        let among = format!("a=b; {cookie}");
        assert!(knows(&ours, &with(&among, Some("same-origin"))));
        assert!(knows(&ours, &with(cookie, Some("none"))));
        for site in ["same-site", "cross-site", ""] {
            assert!(!knows(&ours, &with(cookie, Some(site))), "{site}");
        }
        assert!(!knows(&browsers(2), &with(cookie, None)));
        let (name, value) = cookie.split_once('=').unwrap();
        let (text, signature) = value.rsplit_once('.').unwrap();
        let (end, browser) = text.split_once('.').unwrap();
        let later = end.parse::<u64>().unwrap() + 1;
        for wrong in [
            format!("{name}={later}.{browser}.{signature}"),
            format!("{name}={end}.0{browser}.{signature}"),
            format!("{name}={text}.{}", &signature[2..]),
            format!("{name}={end}.{signature}"),
            format!("{name}={end}."),
            format!("{name}={end}"),
            format!("{name}=1.{signature}"),
            format!("conjure-1={value}"),
        ] {
            assert!(!knows(&ours, &with(&wrong, None)), "{wrong}");
        }
    }

    #[test]
    fn a_cookie_that_was_logged_out_lets_nobody_in_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let ours = of_dir(1, dir.path());
        let cookie = || {
            let set = ours.set_cookie().unwrap();
            let (cookie, _) = set.to_str().unwrap().split_once(';').unwrap();
            cookie.to_owned()
        };
        let (one, other) = (cookie(), cookie());
        assert_ne!(one, other);
        // Of an earlier version, without a name for the browser.
        let end = (now() + 60_000).to_string();
        let signature = ours.mac_of(&end).unwrap().finalize().into_bytes();
        let signature: String = signature.iter().map(|b| format!("{b:02x}")).collect();
        let earlier = format!("conjure-7420={end}.{signature}");
        let knows = |server: &Browsers, cookie: &str| knows(server, &with(cookie, None));
        assert!(knows(&ours, &earlier) && knows(&ours, &one) && knows(&ours, &other));
        ours.end(&with(&one, None)).unwrap();
        ours.end(&with(&earlier, None)).unwrap();
        let later = of_dir(1, dir.path());
        for server in [&ours, &later] {
            assert!(!knows(server, &one) && !knows(server, &earlier) && knows(server, &other));
        }
    }
}
