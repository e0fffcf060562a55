//! Saved auths: the list, and dialogs that save one, change it, try it and remove it. A secret goes
//! in and never comes out.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces};
use crate::saved::{AuthInfo, FormData, FormProblem, ProviderInfo, fetch_all, items, kind_label};
use crate::sheet::{Confirmation, refused_sheet, sheet};
use crate::timestamps::time;

const KINDS: [&str; 4] = ["api_key", "bearer_token", "custom_headers", "base_url"];
const FIELDS: [&str; 5] = ["name", "provider", "kind", "secret", "base_url"];

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/auths", get(list).post(create))
        .route("/auths/new", get(new))
        .route("/auths/{auth}", get(edit).post(change))
        .route("/auths/{auth}/test", post(test))
        .route("/auths/{auth}/remove", get(ask).post(remove))
}

async fn list(State(app): State<PageState>, request: PageRequest) -> Result<Response, PageFailure> {
    let auths: Vec<AuthInfo> = fetch_all(&app.api, "/api/v1/auths").await?;
    let body = html! {
        header."row spread" {
            h1 { "Saved auths" }
            a.button.primary #auth-new href="/auths/new" data-dialog { "New auth" }
        }
        p.muted { "A credential is encrypted where it is kept, and is never shown again." }
        (table(&auths))
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Auths, "Saved auths"),
        &body,
    ))
}

/// The saved auths with what can be done with each.
pub(crate) fn table(auths: &[AuthInfo]) -> Markup {
    html! {
        @if auths.is_empty() {
            p.empty #auths { "No auth is saved yet. A session asks its model with one." }
        } @else {
            section.scroll tabindex="0" aria-label="Saved auths" {
                table.table #auths {
                    thead { tr {
                        th scope="col" { "Name" } th scope="col" { "Provider" } th scope="col" { "Kind" }
                        th scope="col" { "Created" } th scope="col" { "Actions" }
                    } }
                    tbody { @for auth in auths { (row(auth)) } }
                }
            }
        }
    }
}

fn row(auth: &AuthInfo) -> Markup {
    let at = format!("/auths/{}", segment(&auth.id));
    html! {
        tr id={ "auth-" (auth.id) } {
            th scope="row" { (auth.name) }
            td { (auth.provider) @if let Some(url) = &auth.base_url { " " span.muted.break { (url) } } }
            td { (auth.kind_label()) }
            td { (time(auth.created_at_ms)) }
            td {
                div.row {
                    @if auth.is_for_models() {
                        form method="post" action={ (at) "/test" } data-swap {
                            button.small id={ "auth-test-" (auth.id) }
                                aria-label={ "Test " (auth.name) } { "Test" }
                        }
                    }
                    a.button.small id={ "auth-edit-" (auth.id) } href=(at) data-dialog
                        aria-label={ "Edit " (auth.name) } { "Edit" }
                    a.button.small id={ "auth-remove-" (auth.id) } href={ (at) "/remove" } data-dialog
                        aria-label={ "Remove " (auth.name) } { "Remove" }
                }
                div.status id={ "auth-status-" (auth.id) } role="status" {}
            }
        }
    }
}

async fn new(State(app): State<PageState>, request: PageRequest) -> Result<Response, PageFailure> {
    let body = new_form(&app, &FormData::default(), None).await?;
    Ok(sheet(&request, Nav::Auths, "New auth", &body))
}

async fn new_form(
    app: &PageState,
    sent: &FormData,
    problem: Option<&ApiProblem>,
) -> Result<Markup, ApiProblem> {
    let known: Vec<ProviderInfo> = items(&app.api, "/api/v1/providers").await?;
    let wrong = FormProblem::of(problem, &FIELDS);
    let kinds = KINDS.map(|kind| (kind.to_owned(), kind_label(kind).to_owned()));
    Ok(html! {
        form #auth-form method="post" action="/auths" data-swap {
            (form_error(wrong.general()))
            (Field::new("auth-name", "name", "Name").required().error(wrong.for_field("name"))
                .hint("3 to 50 of A-Z a-z 0-9 _ -").input("text", &sent.text("name")))
            (with_list(&Field::new("auth-provider", "provider", "Provider").required()
                .error(wrong.for_field("provider")).hint("One that is known, or the name of your own server"),
                &sent.text("provider"), &known))
            (Field::new("auth-kind", "kind", "Kind").error(wrong.for_field("kind"))
                .select(&sent.text("kind"), &kinds))
            (Field::new("auth-secret", "secret", "Secret").error(wrong.for_field("secret"))
                .hint("For custom headers: lines of “Name: value”. Nothing for a base URL alone")
                .input("password", ""))
            (Field::new("auth-base-url", "base_url", "Base URL").error(wrong.for_field("base_url"))
                .hint("Only for a compatible server").input("url", &sent.text("base_url")))
            div.row { button.primary #auth-save { "Save" } }
        }
    })
}

/// A line of text that known providers are proposed for.
fn with_list(field: &Field<'_>, value: &str, known: &[ProviderInfo]) -> Markup {
    let words = field.error.unwrap_or(field.hint);
    let said = format!("{}-words", field.id);
    html! {
        div.field {
            label for=(field.id) { (field.label) }
            input id=(field.id) name=(field.name) type="text" value=(value) list="known-providers"
                required autocomplete="off" aria-describedby=(said)
                autofocus[field.error.is_some()] aria-invalid=[field.error.map(|_| "true")];
            datalist #known-providers {
                @for provider in known {
                    option value=(provider.name) { (provider.base_url.as_deref().unwrap_or("")) }
                }
            }
            p.hint.wrong[field.error.is_some()] id=(said) { (words) }
        }
    }
}

async fn create(
    State(app): State<PageState>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let mut body = Map::new();
    for name in ["name", "provider", "kind"] {
        body.insert(name.to_owned(), sent.line(name).into());
    }
    // A secret is sent as it is.
    for (name, value) in [
        ("secret", sent.text("secret")),
        ("base_url", sent.line("base_url")),
    ] {
        if !value.is_empty() {
            body.insert(name.to_owned(), value.into());
        }
    }
    let body = Value::Object(body);
    match app
        .api
        .send::<Value>(Method::POST, "/api/v1/auths", &body)
        .await
    {
        Ok(_) => Ok(go_to(&request, "/auths")),
        Err(problem) => {
            let body = new_form(&app, &sent, Some(&problem)).await?;
            Ok(refused_sheet(&request, Nav::Auths, "New auth", &body))
        }
    }
}

async fn edit(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let auth: AuthInfo = app
        .api
        .get(&format!("/api/v1/auths/{}", segment(&id)))
        .await?;
    let body = edit_form(&auth, &auth.name, None);
    Ok(sheet(&request, Nav::Auths, "Edit auth", &body))
}

fn edit_form(auth: &AuthInfo, name: &str, problem: Option<&ApiProblem>) -> Markup {
    let wrong = FormProblem::of(problem, &["name", "secret"]);
    html! {
        form #auth-form method="post" action={ "/auths/" (segment(&auth.id)) } data-swap {
            (form_error(wrong.general()))
            p { (auth.provider) ", " (auth.kind_label()) }
            (Field::new("auth-name", "name", "Name").required().error(wrong.for_field("name"))
                .input("text", name))
            (Field::new("auth-secret", "secret", "Another secret").error(wrong.for_field("secret"))
                .hint("Nothing: it stays").input("password", ""))
            div.row { button.primary #auth-save { "Save" } }
        }
    }
}

async fn change(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let at = format!("/api/v1/auths/{}", segment(&id));
    let mut body = Map::new();
    body.insert("name".to_owned(), sent.line("name").into());
    let secret = sent.text("secret");
    if !secret.is_empty() {
        body.insert("secret".to_owned(), secret.into());
    }
    let body = Value::Object(body);
    match app.api.send::<Value>(Method::PATCH, &at, &body).await {
        Ok(_) => Ok(go_to(&request, "/auths")),
        Err(problem) => {
            let auth: AuthInfo = app.api.get(&at).await?;
            let body = edit_form(&auth, &sent.text("name"), Some(&problem));
            Ok(refused_sheet(&request, Nav::Auths, "Edit auth", &body))
        }
    }
}

async fn test(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let at = format!("/api/v1/auths/{}/test", segment(&id));
    let found: Value = app.api.send_empty(Method::POST, &at).await?;
    let works = found.get("works").and_then(Value::as_bool).unwrap_or(false);
    let words = match (works, found.get("models").and_then(Value::as_u64)) {
        (true, Some(1)) => "It works: the provider lists 1 model.".to_owned(),
        (true, Some(models)) => format!("It works: the provider lists {models} models."),
        (true, None) => "It works.".to_owned(),
        (false, _) => {
            let error = found.get("error").and_then(Value::as_str);
            error.unwrap_or("It does not work.").to_owned()
        }
    };
    let said = html! { p.good[works].wrong[!works] { (words) } };
    if request.pieces {
        return Ok(pieces(piece(
            Swap::Inner,
            &format!("auth-status-{id}"),
            &said,
        )));
    }
    let body = html! { (said) p { a href="/auths" { "Saved auths" } } };
    Ok(sheet(&request, Nav::Auths, "Test of an auth", &body))
}

async fn ask(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let auth: AuthInfo = app
        .api
        .get(&format!("/api/v1/auths/{}", segment(&id)))
        .await?;
    Ok(question(&auth, None, &request))
}

fn question(auth: &AuthInfo, error: Option<&str>, request: &PageRequest) -> Response {
    Confirmation {
        title: "Remove auth",
        message: html! { p { "Remove the auth " strong { (auth.name) } " for good?" } },
        action: format!("/auths/{}/remove", segment(&auth.id)),
        button: "Remove",
        id: "auth-remove-yes",
        error,
    }
    .ask(request, Nav::Auths)
}

async fn remove(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let at = format!("/api/v1/auths/{}", segment(&id));
    match app.api.send_empty::<Value>(Method::DELETE, &at).await {
        Ok(_) => Ok(go_to(&request, "/auths")),
        Err(problem) => {
            let auth: AuthInfo = app.api.get(&at).await?;
            Ok(question(&auth, Some(&problem.detail), &request))
        }
    }
}
