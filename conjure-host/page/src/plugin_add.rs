//! A plugin that is added, or a build that takes the place of another: the library is sent by the
//! browser. What it asks to be allowed beyond the build before is shown, and has to be said yes to.

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Multipart, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use maud::{Markup, html};
use serde_json::Value;

use crate::PageState;
use crate::client::ApiProblem;
use crate::forms::form_error;
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, piece, pieces};
use crate::saved::invalid;
use crate::sheet::{refused, sheet};

const TITLE: &str = "Add plugin";
/// The most bytes of a form with a library: what the API takes, and room for the rest.
const MOST: usize = 65 * 1024 * 1024;

pub(crate) fn router() -> Router<PageState> {
    let add = get(show).post(add).layer(DefaultBodyLimit::max(MOST));
    Router::new().route("/plugins/new", add)
}

async fn show(request: PageRequest) -> Response {
    sheet(&request, Nav::Plugins, TITLE, &form(None))
}

fn form(problem: Option<&ApiProblem>) -> Markup {
    html! {
        form #plugin-form method="post" action="/plugins/new" enctype="multipart/form-data" data-swap {
            p { "A library, or the bundle of a program. It is judged, loaded and tried before anything is changed." }
            div.field {
                label for="plugin-file" { "File" }
                input #plugin-file name="file" type="file" required;
            }
            (report(problem))
            div.row { button.primary #plugin-save { "Install" } }
        }
    }
}

/// Why it was not installed; the file stays chosen beside it.
fn report(problem: Option<&ApiProblem>) -> Markup {
    html! {
        div #plugin-report {
            (form_error(problem.map(|problem| problem.detail.as_str())))
            (allowed(problem))
        }
    }
}

/// What a build asks for beyond the one before, and the box that allows it.
pub(crate) fn allowed(problem: Option<&ApiProblem>) -> Markup {
    let more = problem
        .and_then(|problem| problem.more.get("more"))
        .and_then(Value::as_array);
    html! {
        @if let Some(more) = more {
            fieldset {
                legend { "It asks for what nobody has allowed yet" }
                ul { @for one in more.iter().filter_map(Value::as_str) { li { (one) } } }
                label.choice {
                    input #plugin-yes type="checkbox" name="yes" value="yes";
                    " It may"
                }
            }
        }
    }
}

async fn add(State(app): State<PageState>, request: PageRequest, mut sent: Multipart) -> Response {
    let made = match library(&mut sent).await {
        Ok((library, yes)) => {
            let path = format!("/api/v1/plugins?yes={yes}");
            let media_type = HeaderValue::from_static("application/octet-stream");
            app.api
                .hand_over(&path, media_type, Body::from(library))
                .await
        }
        Err(problem) => Err(problem),
    };
    match made {
        Ok(changed) => sheet(&request, Nav::Plugins, "Installed", &told(&changed)),
        Err(problem) if request.pieces => {
            pieces(piece(Swap::Outer, "plugin-report", &report(Some(&problem))))
        }
        Err(problem) => refused(&request, Nav::Plugins, TITLE, &form(Some(&problem))),
    }
}

/// The library of a form, and whether it may do more.
async fn library(sent: &mut Multipart) -> Result<(axum::body::Bytes, bool), ApiProblem> {
    let broken = |error: axum::extract::multipart::MultipartError| invalid(error.body_text());
    let (mut library, mut yes) = (None, false);
    while let Some(field) = sent.next_field().await.map_err(broken)? {
        match field.name() {
            Some("file") => library = Some(field.bytes().await.map_err(broken)?),
            Some("yes") => yes = true,
            _ => {}
        }
    }
    let library = library.filter(|library| !library.is_empty());
    library
        .map(|library| (library, yes))
        .ok_or_else(|| invalid("choose a file"))
}

/// What was installed, and what is different now.
fn told(changed: &Value) -> Markup {
    let name = changed
        .get("plugin")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let version = changed
        .pointer("/loaded/version")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let lines = [
        ("/difference/permissions/more", "May do now"),
        ("/difference/permissions/less", "May do no more"),
        ("/difference/tools/added", "New tools"),
        ("/difference/tools/changed", "Changed tools"),
        ("/difference/tools/removed", "Tools that are gone"),
    ];
    html! {
        p { @if changed.get("change").is_some_and(Value::is_null) { "This very build was installed already: " } @else { "Installed: " }
            strong { (name) } " " (version) }
        ul {
            @for (at, words) in lines {
                @let list = changed.pointer(at).and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
                @if !list.is_empty() {
                    li { (words) ": " (list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")) }
                }
            }
        }
        p { a.button.primary #plugin-installed href="/plugins" { "Show all plugins" } }
    }
}
