//! What a request says beside its body: the theme that was chosen, and whether the module asks for
//! pieces of a page or a browser for a whole one. And what is refused: forms of other origins.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::problem_page;

/// The cookie with the theme.
pub(crate) const THEME_COOKIE: &str = "conjure-theme";
/// The header that the module sends where it takes pieces of a page.
const PIECES: &str = "x-conjure-pieces";
/// What it says where the form that is sent stands on a page of its own: the id of what holds it there.
pub(crate) const SHEET: &str = "sheet";

/// How a page looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    /// As the browser says.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        let all = [Self::System, Self::Light, Self::Dark];
        all.into_iter().find(|theme| theme.as_str() == word)
    }

    /// The one that a browser chose.
    pub(crate) fn chosen(headers: &HeaderMap) -> Self {
        let all = headers.get_all(header::COOKIE).into_iter();
        let pairs = all
            .filter_map(|cookies| cookies.to_str().ok())
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let mut own = pairs.filter(|(name, _)| *name == THEME_COOKIE);
        own.find_map(|(_, value)| Self::of(value))
            .unwrap_or_default()
    }
}

/// What a view needs to know of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageRequest {
    pub(crate) theme: Theme,
    /// The module asks, and takes pieces.
    pub(crate) pieces: bool,
    /// A form on a page of its own asks: what comes of it stands there, and not in a dialog.
    pub(crate) in_sheet: bool,
    /// The path and the query.
    pub(crate) target: String,
}

impl PageRequest {
    pub(crate) fn of(parts: &Parts) -> Self {
        let target = parts.uri.path_and_query();
        let pieces = parts.headers.get(PIECES);
        Self {
            theme: Theme::chosen(&parts.headers),
            pieces: pieces.is_some(),
            in_sheet: pieces.is_some_and(|asked| asked == SHEET),
            target: target.map_or("/", |target| target.as_str()).to_owned(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PageRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(parts))
    }
}

/// Refuses what changes something and comes from another origin. The cookie of a browser is not
/// sent from there, and the server refuses it again; this holds for whoever has a token too.
pub(crate) async fn refuse_foreign(request: Request, next: Next) -> Response {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_safe || is_own(request.headers()) {
        return next.run(request).await;
    }
    problem_page::of(
        StatusCode::FORBIDDEN,
        "foreign-origin",
        "Foreign origin",
        "this form was sent from another page; open the page itself and send it there",
        request.headers(),
    )
}

/// Whether a request comes from a page of this server.
fn is_own(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if !matches!(site, None | Some(b"same-origin")) {
        return false;
    }
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    match (text(header::ORIGIN), text(header::HOST)) {
        (Some(origin), Some(host)) => {
            let named = origin.split_once("://").map(|(_, named)| named);
            named.is_some_and(|named| named.eq_ignore_ascii_case(host))
        }
        // A program, which no page can make send anything.
        (None, _) => !headers.contains_key(header::ORIGIN),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_pages_of_this_server_send_forms() {
        let own = ("origin", "http://127.0.0.1:7420");
        let host = ("host", "127.0.0.1:7420");
        assert!(is_own(&headers(&[host])));
        assert!(is_own(&headers(&[host, own])));
        assert!(is_own(&headers(&[
            host,
            own,
            ("sec-fetch-site", "same-origin")
        ])));
        for foreign in [
            ("origin", "http://127.0.0.1:7421"),
            ("origin", "http://evil.example"),
            ("origin", "http://127.0.0.1:7420.evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
        ] {
            assert!(!is_own(&headers(&[host, foreign])), "{foreign:?}");
        }
    }

    #[test]
    fn a_theme_is_one_that_there_is() {
        let chosen = |cookie| Theme::chosen(&headers(&[("cookie", cookie)]));
        assert_eq!(chosen("a=b; conjure-theme=dark"), Theme::Dark);
        assert_eq!(chosen("conjure-theme=light"), Theme::Light);
        assert_eq!(chosen("conjure-theme=x\""), Theme::System);
    }
}
