//! The page for whoever is not let in, and for whatever else the server itself refuses: without
//! anything of what is behind it.

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use maud::{DOCTYPE, html};

use crate::assets;
use crate::request::Theme;
use crate::respond::{html_response, secure};

/// The page for a problem.
pub(crate) fn of(
    status: StatusCode,
    kind: &str,
    title: &str,
    detail: &str,
    headers: &HeaderMap,
) -> Response {
    let theme = Theme::chosen(headers);
    let is_login = kind == "no-token";
    let title = if is_login { "Log in" } else { title };
    let page = html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.as_str()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " – Conjure" }
                link rel="icon" href=(assets::icon_url()) type="image/svg+xml";
                link rel="stylesheet" href=(assets::style_url());
            }
            body.alone {
                main #main {
                    h1 { (title) }
                    @if is_login {
                        p { "This server lets in who has a link from it. Ask it for one where it runs:" }
                        pre.command { code { "conjure serve --link" } }
                        p { "The link is good once, for ten minutes. It leaves a cookie in this browser, for 30 days." }
                        p.muted { "You came from another site, and have been here before? " a href="/" { "Go on." } }
                    } @else {
                        p { (detail) }
                        p { a href="/" { "All sessions" } }
                    }
                }
            }
        }
    };
    let mut response = html_response(status, page);
    secure(&mut response);
    response
}
