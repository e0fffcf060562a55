//! Answers to a browser: whole pages, pieces that the module puts in place, and other addresses.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use crate::request::PageRequest;

/// What a page may load and do: what comes from this server, and images in its own words.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// Where the module is to go.
const GO_HEADER: HeaderName = HeaderName::from_static("x-conjure-go");

/// How pieces come into the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// In place of the target.
    Outer,
    /// In place of what is in it.
    Inner,
    /// Behind what is in it.
    Append,
    /// Before what is in it.
    Prepend,
    /// The target goes.
    Remove,
}

impl Swap {
    fn as_str(self) -> &'static str {
        match self {
            Self::Outer => "outer",
            Self::Inner => "inner",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Remove => "remove",
        }
    }
}

/// A piece for the element with this id. A piece for one that is not there does nothing.
pub(crate) fn piece(swap: Swap, target: &str, what: &Markup) -> Markup {
    html! { template data-swap=(swap.as_str()) data-target=(target) { (what) } }
}

/// Words that a person sees for a moment, and a screen reader says.
pub(crate) fn toast(words: &str) -> Markup {
    let what = html! { p.toast { (words) } };
    piece(Swap::Append, "toasts", &what)
}

/// A response of HTML.
pub(crate) fn html_response(status: StatusCode, what: Markup) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (status, kind, what.into_string()).into_response()
}

/// An answer of pieces.
pub(crate) fn pieces(what: Markup) -> Response {
    html_response(StatusCode::OK, what)
}

/// Leads elsewhere: a browser by a redirect, the module by a header.
pub(crate) fn go_to(request: &PageRequest, url: &str) -> Response {
    let Ok(url) = HeaderValue::from_str(url) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if request.pieces {
        (StatusCode::NO_CONTENT, [(GO_HEADER, url)]).into_response()
    } else {
        (StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response()
    }
}

/// Says to every answer what a browser may do with it.
pub(crate) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    secure(&mut response);
    response
}

/// Sets the headers that say what a browser may do with one answer.
pub(crate) fn secure(response: &mut Response) {
    let said = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Without the origin of its own pages, a browser would send forms as from nowhere.
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("permissions-policy"),
            "camera=(), microphone=(), geolocation=()",
        ),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in said {
        response
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
}
