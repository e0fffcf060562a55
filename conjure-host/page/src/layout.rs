//! The frame of every page: navigation, theme, shortcuts, log-out, the places for toasts and for a
//! dialog, and what a screen reader is told.

use axum::http::StatusCode;
use axum::response::Response;
use conjure_core::foreign_text::clean;
use maud::{DOCTYPE, Markup, html};

use crate::assets;
use crate::request::{PageRequest, Theme};
use crate::respond::html_response;
use crate::search;

/// Where in the navigation a page stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nav {
    None,
    Sessions,
    Mcp,
    Plugins,
    Auths,
    Personas,
    Usage,
}

/// The navigation: where it leads, its words, the id of the link, its keys.
const LINKS: [(Nav, &str, &str, &str, &str); 6] = [
    (Nav::Sessions, "/", "Sessions", "nav-sessions", "g d"),
    (Nav::Auths, "/auths", "Auths", "nav-auths", "g a"),
    (
        Nav::Personas,
        "/personas",
        "Personas",
        "nav-personas",
        "g p",
    ),
    (Nav::Mcp, "/mcp", "MCP servers", "nav-mcp", "g m"),
    (Nav::Plugins, "/plugins", "Plugins", "nav-plugins", "g l"),
    (Nav::Usage, "/usage", "Usage", "nav-usage", "g u"),
];

/// What a page is, beside its body.
pub(crate) struct PageFrame<'a> {
    pub(crate) nav: Nav,
    pub(crate) title: &'a str,
    /// What stands in the sidebar under the navigation.
    pub(crate) side: Option<Markup>,
    /// A class of the body, such as `conversation`, for styles.
    pub(crate) class: &'a str,
    /// Further keys with what they do, for the overlay.
    pub(crate) keys: &'a [(&'a str, &'a str)],
}

impl<'a> PageFrame<'a> {
    pub(crate) fn new(nav: Nav, title: &'a str) -> Self {
        Self {
            nav,
            title,
            side: None,
            class: "",
            keys: &[],
        }
    }
}

/// A whole page. The body's first element is what `h1` names.
pub(crate) fn layout(request: &PageRequest, view: &PageFrame<'_>, body: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" data-theme=(request.theme.as_str()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (clean(view.title)) " – Conjure" }
                link rel="icon" href=(assets::icon_url()) type="image/svg+xml";
                link rel="stylesheet" href=(assets::style_url());
                script type="module" src=(assets::script_url()) {}
            }
            body class=[(!view.class.is_empty()).then_some(view.class)] {
                a.skip #skip href="#main" { "Skip to content" }
                (sidebar(request, view))
                main #main tabindex="-1" { (body) }
                p #announce.unseen role="status" aria-live="polite" {}
                p #lost role="alert" { "Connection lost. It is tried again; nothing is lost." }
                div #toasts popover="manual" role="status" aria-live="polite" {}
                dialog #dialog aria-label="Dialog" {}
                (shortcuts(view))
            }
        }
    };
    html_response(StatusCode::OK, page)
}

fn sidebar(request: &PageRequest, view: &PageFrame<'_>) -> Markup {
    html! {
        header.top {
            button.plain #menu-open type="button" popovertarget="menu" aria-label="Menu" { "☰" }
            a.brand #brand-top href="/" { "Conjure" }
            a.button.plain #search-open href="/search" data-key="g s" { "Search" }
        }
        aside #menu popover aria-label="Menu" {
            a.brand #brand href="/" { "Conjure" }
            form role="search" aria-label="Search all chats" method="get" action="/search" {
                input #search type="search" name="q" required maxlength=(search::MAX_QUERY_CHARS) data-key="g s"
                    placeholder="Search" aria-label="Search all chats" autocomplete="off";
                button #menu-search-go { "Go" }
            }
            nav aria-label="Main" {
                ul {
                    @for (nav, url, words, id, keys) in LINKS {
                        li {
                            a id=(id) href=(url) data-key=(keys)
                                aria-current=[(nav == view.nav).then_some("page")] { (words) }
                        }
                    }
                }
            }
            @if let Some(side) = &view.side { (side) }
            footer.side-foot {
                (themes(request))
                button.plain #shortcuts-open type="button" data-open="shortcuts" data-key="?" { "Shortcuts" }
                form method="post" action="/logout" {
                    button.plain #logout { "Log out" }
                }
            }
        }
    }
}

fn themes(request: &PageRequest) -> Markup {
    let next = match request.theme {
        Theme::System => Theme::Dark,
        Theme::Dark => Theme::Light,
        Theme::Light => Theme::System,
    };
    html! {
        form method="post" action="/preferences/theme" {
            input type="hidden" name="back" value=(request.target);
            button.plain #theme name="theme" value=(next.as_str())
                title={ "Change to " (next.as_str()) } { "Theme: " (request.theme.as_str()) }
        }
    }
}

fn shortcuts(view: &PageFrame<'_>) -> Markup {
    let general: [(&str, &str); 4] = [
        ("?", "This list"),
        ("Esc", "Close what is open"),
        ("/", "Go to the message"),
        ("g s", "Search all chats"),
    ];
    html! {
        dialog #shortcuts closedby="any" aria-labelledby="shortcuts-title" {
            h2 #shortcuts-title { "Shortcuts" }
            table.keys {
                tbody {
                    @for (keys, words) in view.keys.iter().chain(&general) {
                        tr { th scope="row" { kbd { (keys) } } td { (words) } }
                    }
                    @for (_, _, words, _, keys) in LINKS {
                        tr { th scope="row" { kbd { (keys) } } td { (words) } }
                    }
                }
            }
            form method="dialog" { button #shortcuts-close { "Close" } }
        }
    }
}
