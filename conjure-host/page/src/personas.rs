//! Personas: the list, and dialogs that add one, change it and remove it. A session that chose one
//! has a copy of its own.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::get;
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::respond::go_to;
use crate::saved::{FormData, FormProblem, PersonaInfo, fetch_all};
use crate::sheet::{Confirmation, refused_sheet, sheet};
use crate::timestamps::time;

/// Characters of a persona's text that the list shows.
const MAX_SHOWN_CHARS: usize = 240;

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/personas", get(list).post(create))
        .route("/personas/new", get(new))
        .route("/personas/{persona}", get(edit).post(change))
        .route("/personas/{persona}/remove", get(ask).post(remove))
}

async fn list(State(app): State<PageState>, request: PageRequest) -> Result<Response, PageFailure> {
    let personas: Vec<PersonaInfo> = fetch_all(&app.api, "/api/v1/personas").await?;
    let body = html! {
        header."row spread" {
            h1 { "Personas" }
            a.button.primary #persona-new href="/personas/new" data-dialog { "New persona" }
        }
        p.muted { "Who the model is to be. A session that chooses one keeps a copy." }
        @if personas.is_empty() {
            p.empty { "There is no persona yet." }
        } @else {
            ul.cards #personas {
                @for persona in &personas { (card(persona)) }
            }
        }
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Personas, "Personas"),
        &body,
    ))
}

fn card(persona: &PersonaInfo) -> Markup {
    let at = format!("/personas/{}", segment(&persona.id));
    let (name, text) = (clean(&persona.name), clean(&persona.persona_text));
    let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let is_cut = shown.len() < text.len();
    html! {
        li.card id={ "persona-" (persona.id) } {
            h2 { (name) " " @if !persona.version.is_empty() { span.badge { (clean(&persona.version)) } } }
            p.said { (shown) @if is_cut { "…" } }
            p.muted { "Changed " (time(persona.updated_at_ms)) }
            div.row {
                a.button.small id={ "persona-edit-" (persona.id) } href=(at) data-dialog
                    aria-label={ "Edit " (name) } { "Edit" }
                a.button.small id={ "persona-remove-" (persona.id) } href={ (at) "/remove" } data-dialog
                    aria-label={ "Remove " (name) } { "Remove" }
            }
        }
    }
}

/// The fields of a persona, with ids that begin so. `in_session`: the form is a session's, which has a name of its own.
pub(crate) fn fields(
    prefix: &str,
    sent: &FormData,
    wrong: &FormProblem<'_>,
    in_session: bool,
) -> Markup {
    let [name, version, text] = ["name", "version", "text"].map(|what| format!("{prefix}-{what}"));
    let mut name =
        Field::new(&name, "persona_name", "Name").error(wrong.for_field(match in_session {
            true => "persona",
            false => "name",
        }));
    if !in_session {
        name = name.required();
    }
    html! {
        (name.input("text", &sent.text("persona_name")))
        (Field::new(&version, "persona_version", "Version").error(wrong.for_field("version"))
            .hint("Such as 1; nothing: 1").input("text", &sent.text("persona_version")))
        (Field::new(&text, "persona_text", "Text").error(wrong.for_field("persona_text"))
            .hint("What the model is told about who it is").textarea(6, &sent.text("persona_text")))
    }
}

/// What a form of these fields wants to save.
pub(crate) fn body(sent: &FormData) -> Value {
    let version = sent.line("persona_version");
    json!({
        "name": sent.line("persona_name"),
        "version": if version.is_empty() { "1".to_owned() } else { version },
        "persona_text": sent.text("persona_text"),
    })
}

fn form(action: &str, sent: &FormData, problem: Option<&ApiProblem>) -> Markup {
    let wrong = FormProblem::of(problem, &["name", "version", "persona_text"]);
    html! {
        form #persona-form method="post" action=(action) data-swap {
            (form_error(wrong.general()))
            (fields("persona", sent, &wrong, false))
            div.row { button.primary #persona-save { "Save" } }
        }
    }
}

async fn new(request: PageRequest) -> Response {
    let body = form("/personas", &FormData::default(), None);
    sheet(&request, Nav::Personas, "New persona", &body)
}

async fn create(
    State(app): State<PageState>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let wanted = body(&sent);
    let made = app
        .api
        .send::<Value>(Method::POST, "/api/v1/personas", &wanted);
    Ok(match made.await {
        Ok(_) => go_to(&request, "/personas"),
        Err(problem) => {
            let body = form("/personas", &sent, Some(&problem));
            refused_sheet(&request, Nav::Personas, "New persona", &body)
        }
    })
}

async fn edit(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let persona: PersonaInfo = app.api.get(&at(&id)).await?;
    let sent = FormData::from([
        ("persona_name", persona.name),
        ("persona_version", persona.version),
        ("persona_text", persona.persona_text),
    ]);
    let body = form(&format!("/personas/{}", segment(&id)), &sent, None);
    Ok(sheet(&request, Nav::Personas, "Edit persona", &body))
}

async fn change(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Response {
    match app
        .api
        .send::<Value>(Method::PATCH, &at(&id), &body(&sent))
        .await
    {
        Ok(_) => go_to(&request, "/personas"),
        Err(problem) => {
            let body = form(
                &format!("/personas/{}", segment(&id)),
                &sent,
                Some(&problem),
            );
            refused_sheet(&request, Nav::Personas, "Edit persona", &body)
        }
    }
}

async fn ask(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let persona: PersonaInfo = app.api.get(&at(&id)).await?;
    let question = Confirmation {
        title: "Remove persona",
        message: html! {
            p { "Remove the persona " strong { (clean(&persona.name)) } "? Sessions keep the copy that they have." }
        },
        action: format!("/personas/{}/remove", segment(&id)),
        button: "Remove",
        id: "persona-remove-yes",
        error: None,
    };
    Ok(question.ask(&request, Nav::Personas))
}

async fn remove(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    app.api
        .send_empty::<Value>(Method::DELETE, &at(&id))
        .await?;
    Ok(go_to(&request, "/personas"))
}

fn at(id: &str) -> String {
    format!("/api/v1/personas/{}", segment(id))
}
