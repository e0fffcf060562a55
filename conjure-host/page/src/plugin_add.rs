//! A plugin that is added, or a build that takes the place of another: the library is sent by the
//! browser. What it asks to be allowed beyond the build before is shown, and has to be said yes to.

use axum::body::Body;
use axum::extract::{Multipart, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use conjure_runtime::uploads::ReceiveLimits;
use maud::{Markup, html};
use serde_json::Value;

use crate::PageState;
use crate::client::ApiProblem;
use crate::file_form;
use crate::forms::form_error;
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, piece, pieces};
use crate::sheet::{refused_sheet, sheet};

const TITLE: &str = "Add plugin";

pub(crate) fn router() -> Router<PageState> {
    file_form::route("/plugins/new", get(show).post(add))
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
            (consent_fields(problem))
        }
    }
}

/// What a build asks for beyond the one before, and the box that allows it.
pub(crate) fn consent_fields(problem: Option<&ApiProblem>) -> Markup {
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

async fn add(
    State(app): State<PageState>,
    Extension(limits): Extension<ReceiveLimits>,
    request: PageRequest,
    mut sent: Multipart,
) -> Response {
    let made = match app.file_forms.read(&mut sent, &limits).await {
        Ok(library) => {
            let path = format!("/api/v1/plugins?yes={}", library.is_ticked("yes"));
            let media_type = HeaderValue::from_static("application/octet-stream");
            let content = Body::from(library.content);
            app.api.upload(&path, None, media_type, content).await
        }
        Err(problem) => Err(problem),
    };
    match made {
        Ok(changed) => sheet(
            &request,
            Nav::Plugins,
            "Installed",
            &install_result(&changed),
        ),
        Err(problem) if request.pieces => {
            pieces(piece(Swap::Outer, "plugin-report", &report(Some(&problem))))
        }
        Err(problem) => refused_sheet(&request, Nav::Plugins, TITLE, &form(Some(&problem))),
    }
}

/// What was installed, and what is different now.
fn install_result(changed: &Value) -> Markup {
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
