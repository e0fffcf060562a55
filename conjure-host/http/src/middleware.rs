//! What every request has to get past: the right `Host`, no foreign `Origin`, a token or the cookie
//! of a browser. Counts what was answered.
//!
//! `Host` keeps pages out whose name was bound to this address after they were loaded (DNS
//! rebinding), `Origin` the scripts of all other pages.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;

use super::browsers::LOGIN;
use super::metrics::RequestLabels;
use super::page_parts::{ShowProblem, problem_page, wants_page};
use super::problem::Problem;
use super::state::App;
use conjure_http_server::{AccessTokens, AllowedHosts, ConnectionHandle};

/// Paths at which somebody asks who has no token: a supervisor, and a browser with a link.
pub(super) const OPEN_PATHS: [&str; 3] = ["/healthz", "/readyz", LOGIN];
/// Where the API's paths begin.
const API_PREFIX: &str = "/api/";
/// Styles and script of the page, which is also how whoever is not let in reads why.
const ASSETS_PREFIX: &str = "/assets/";
/// What a page of an allowed origin may send.
const ALLOWED_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id, range, \
                               if-range, if-match, if-none-match";
/// What it may read.
const EXPOSED_HEADERS: &str = "location, idempotency-replayed, content-range, etag, retry-after";

/// The name of the client's token. It is empty where no token is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ClientName(pub(super) Option<Arc<str>>);

/// A client that is let in.
#[derive(Default)]
struct AdmittedClient {
    name: ClientName,
    /// The browser's cookie, where it was that which let it in.
    cookie: Option<String>,
}

/// Rules of admission, and what a refused request is answered with.
pub(super) struct Middleware {
    pub(super) hosts: AllowedHosts,
    pub(super) origins: Vec<String>,
    pub(super) tokens: AccessTokens,
    pub(super) app: App,
    /// Shows problems to a browser, where there is a page.
    pub(super) problem: Option<ShowProblem>,
}

/// Lets a request in, and counts how it was answered.
pub(super) async fn admit(
    State(checks): State<Arc<Middleware>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("none", MatchedPath::as_str).to_owned();
    // Any text may be a method; the figures would never end.
    let method = match *request.method() {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS => request.method().to_string(),
        _ => "other".to_owned(),
    };
    // Programs read problems as data, also those of a browser's page.
    let show = checks
        .problem
        .as_ref()
        .filter(|_| wants_page(request.headers()) && !request.uri().path().starts_with(API_PREFIX));
    let asked_with = show.map(|_| request.headers().clone());
    let mut response = checks.answer(request, next).await;
    if let (Some(show), Some(headers)) = (show, asked_with) {
        response = problem_page(show, &headers, response);
    }
    let headers = response.headers_mut();
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers
        .entry(header::X_CONTENT_TYPE_OPTIONS)
        .or_insert(HeaderValue::from_static("nosniff"));
    let asked = RequestLabels {
        method,
        route,
        status: response.status().as_u16(),
    };
    tracing::debug!(
        method = asked.method,
        route = asked.route,
        status = asked.status,
        "answered"
    );
    checks
        .app
        .metrics
        .record(&asked, begun.elapsed().as_secs_f64());
    response
}

impl Middleware {
    async fn answer(&self, mut request: Request, next: Next) -> Response {
        if let Err(problem) = self.check_host(request.headers(), request.uri()) {
            return problem.into_response();
        }
        let origin = match self.check_origin(request.headers()) {
            Ok(origin) => origin,
            Err(problem) => return problem.into_response(),
        };
        let asks_first = request.method() == Method::OPTIONS
            && request
                .headers()
                .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        let mut response = if origin.is_some() && asks_first {
            may_call()
        } else {
            match self.client(&request) {
                Ok(client) => {
                    request.extensions_mut().insert(client.name);
                    let response = next.run(request).await;
                    match client.cookie.filter(|_| is_stream(&response)) {
                        Some(cookie) => self.until_logged_out(response, cookie),
                        None => response,
                    }
                }
                Err(problem) => problem.into_response(),
            }
        };
        if let Some(origin) = origin {
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(
                header::ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static(EXPOSED_HEADERS),
            );
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
        response
    }

    fn check_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let mut named = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else {
            return Err(Problem::malformed("a request has one `Host` header"));
        };
        let known = host.to_str().is_ok_and(|host| self.hosts.allows(host))
            && uri
                .authority()
                .is_none_or(|asked| self.hosts.allows(asked.as_str()));
        if known {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "unknown-host",
            "this server is not known by the name in `Host`; `conjure serve --allow-host NAME` \
             adds one",
        ))
    }

    /// The origin of the page that asks, where it may.
    fn check_origin(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
        let mut named = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = named.next() else {
            return Ok(None);
        };
        let known = |known: &String| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
        if named.next().is_none() && self.origins.iter().any(known) {
            return Ok(Some(origin.clone()));
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "foreign-origin",
            "pages of this origin may not call the server; `conjure serve --allow-origin ORIGIN` \
             lets one",
        ))
    }

    /// A stream goes on for as long as its reader likes, and no longer than the cookie that let it in.
    fn until_logged_out(&self, response: Response, cookie: String) -> Response {
        let app = self.app.clone();
        let logged_out = async move { app.browsers.wait_for_logout(&cookie).await };
        response.map(|body| {
            let events = body.into_data_stream();
            Body::from_stream(events.take_until(logged_out))
        })
    }

    fn client(&self, request: &Request) -> Result<AdmittedClient, Problem> {
        let path = request.uri().path();
        if OPEN_PATHS.contains(&path) || path.starts_with(ASSETS_PREFIX) {
            return Ok(AdmittedClient::default());
        }
        let has_token = request.headers().contains_key(header::AUTHORIZATION);
        let (known, cookie) = match self.tokens.name_of(request.headers()) {
            None if !has_token => {
                let cookie = self.app.browsers.cookie_of(request.headers());
                (cookie.as_ref().map(|_| Arc::from("browser")), cookie)
            }
            known => (known, None),
        };
        if let Some(name) = known {
            let visitor = request.extensions().get::<ConnectionHandle>();
            if visitor.is_some_and(|visitor| !visitor.identify(&name)) {
                return Err(Problem::unavailable(
                    "too-many-connections",
                    "this client has as many connections as it may: three quarters of \
                     what the others leave of `--max-connections`; close some, and try again",
                )
                .header(header::CONNECTION, HeaderValue::from_static("close")));
            }
            return Ok(AdmittedClient {
                name: ClientName(Some(name)),
                cookie,
            });
        }
        Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "no-token",
            "a token is needed: `Authorization: Bearer TOKEN`; that of the user who serves is in \
             the file `http-token` of the directory of data, and `conjure serve --link` prints a \
             link that lets a browser in",
        )
        .header(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"conjure\""),
        )
        // Whoever has none has nothing more to say on it.
        .header(header::CONNECTION, HeaderValue::from_static("close")))
    }
}

/// Whether a response is a stream of events, which has no end of its own.
fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// The answer to a browser that asks before it calls.
fn may_call() -> Response {
    let said = [
        (
            header::ACCESS_CONTROL_ALLOW_METHODS,
            "GET, HEAD, POST, PATCH, DELETE",
        ),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, said).into_response()
}
