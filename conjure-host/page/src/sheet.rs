//! Views that are a dialog where the module asks, and a page of their own else.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use crate::forms::dialog;
use crate::layout::{Nav, PageFrame, layout};
use crate::request::{PageRequest, SHEET};
use crate::respond::{Swap, piece, pieces};

/// Shows it as the request takes it.
pub(crate) fn sheet(request: &PageRequest, nav: Nav, title: &str, body: &Markup) -> Response {
    let page = html! { h1 { (title) } (body) };
    if request.in_sheet {
        return pieces(piece(Swap::Inner, SHEET, &page));
    }
    if request.pieces {
        return pieces(piece(Swap::Inner, "dialog", &dialog(title, body)));
    }
    let page = html! { div.narrow id=(SHEET) { (page) } };
    layout(request, &PageFrame::new(nav, title), &page)
}

/// Like [`sheet`], for a form that was refused: a page of its own says so by its status.
pub(crate) fn refused_sheet(
    request: &PageRequest,
    nav: Nav,
    title: &str,
    body: &Markup,
) -> Response {
    let mut response = sheet(request, nav, title, body);
    if !request.pieces {
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    }
    response
}

/// A question before something is done for good: its words, and a form that does it.
pub(crate) struct Confirmation<'a> {
    pub(crate) title: &'a str,
    pub(crate) message: Markup,
    /// Where the form is sent.
    pub(crate) action: String,
    /// What the button says.
    pub(crate) button: &'a str,
    /// The id of the button.
    pub(crate) id: &'a str,
    /// Why it was not done.
    pub(crate) error: Option<&'a str>,
}

impl Confirmation<'_> {
    pub(crate) fn ask(&self, request: &PageRequest, nav: Nav) -> Response {
        let body = html! {
            form method="post" action=(self.action) data-swap {
                (crate::forms::form_error(self.error))
                (self.message)
                div.row { button.danger id=(self.id) { (self.button) } }
            }
        };
        match self.error {
            Some(_) => refused_sheet(request, nav, self.title, &body),
            None => sheet(request, nav, self.title, &body),
        }
    }
}
