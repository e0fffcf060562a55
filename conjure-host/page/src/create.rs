//! The dialog that creates a session, and the pieces that its choices and those of the configuration
//! depend on.

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::PageState;
use crate::chat_history::{self, ChatChoices};
use crate::client::ApiProblem;
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces};
use crate::saved::{FormData, FormProblem, SessionInfo};
use crate::session_form::{
    AuthFields, Choices, FIELDS, SessionDraft, memory, models, persona, working_dir,
};
use crate::sheet::{refused_sheet, sheet};

const TITLE: &str = "New session";
const PREFIX: &str = "new";

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/new", get(new).post(create))
        .route("/new/filter", post(filter))
        .route("/choices/{prefix}", get(choices))
        .route("/choices/{prefix}/models", get(refresh_models))
}

/// What was chosen so far.
#[derive(Default, Deserialize)]
struct CreateQuery {
    #[serde(default)]
    provider: String,
    #[serde(default)]
    auth: String,
}

async fn new(
    State(app): State<PageState>,
    request: PageRequest,
    Query(chosen): Query<CreateQuery>,
) -> Result<Response, PageFailure> {
    let sent = FormData::from([("provider", chosen.provider), ("auth", chosen.auth)]);
    let body = form(&app, &sent, None).await?;
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

/// The form with the saved auths of the provider that was chosen, for a browser without script.
async fn filter(
    State(app): State<PageState>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let body = form(&app, &sent, None).await?;
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

async fn form(
    app: &PageState,
    sent: &FormData,
    problem: Option<&ApiProblem>,
) -> Result<Markup, ApiProblem> {
    let choices = Choices::read(app).await?;
    if choices.has_no_auth() {
        return Ok(html! {
            p { "A session asks a model with a saved auth, and none is saved yet." }
            p { a.button.primary #new-needs-auth href="/auths/new" data-dialog { "Save an auth" } }
        });
    }
    let chats = ChatChoices::read(app).await?;
    let wrong = FormProblem::of(problem, &FIELDS);
    let (provider, auth, model) = (sent.text("provider"), sent.text("auth"), sent.text("model"));
    let fields = AuthFields {
        prefix: PREFIX,
        choices: &choices,
        provider: &provider,
        auth: &auth,
        model: &model,
        filter: "/new/filter",
    };
    Ok(html! {
        form #new-form method="post" action="/new" data-swap {
            (form_error(wrong.general()))
            (Field::new("new-name", "name", "Name").error(wrong.for_field("name"))
                .hint("Nothing: it is called by its id").input("text", &sent.text("name")))
            (fields.show(&wrong))
            (working_dir(PREFIX, &sent.text("working_dir"), &wrong))
            (chats.show(PREFIX, sent, None, &wrong))
            (persona(PREFIX, &choices, sent, None, &wrong))
            (memory(PREFIX, sent, &Map::new(), &wrong))
            div.row { button.primary #new-save { "Create session" } }
        }
    })
}

async fn create(
    State(app): State<PageState>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    match create_session(&app, &sent).await {
        Ok(session) => Ok(go_to(&request, &session.url())),
        Err(problem) => {
            let body = form(&app, &sent, Some(&problem)).await?;
            Ok(refused_sheet(&request, Nav::Sessions, TITLE, &body))
        }
    }
}

async fn create_session(app: &PageState, sent: &FormData) -> Result<SessionInfo, ApiProblem> {
    let chat = chat_history::thread_choice(sent, None)?;
    let mut members = SessionDraft::read(app, sent, None).await?.members;
    if let Some(chat) = chat {
        members.insert("thread".to_owned(), chat);
    }
    if sent.line("name").is_empty() {
        members.remove("name");
    }
    let body = Value::Object(members);
    app.api.send(Method::POST, "/api/v1/sessions", &body).await
}

/// Auth and model for a provider, in the dialog whose ids begin so.
async fn choices(
    State(app): State<PageState>,
    Path(prefix): Path<String>,
    Query(chosen): Query<CreateQuery>,
) -> Result<Response, PageFailure> {
    let choices = Choices::read(&app).await?;
    let fields = AuthFields {
        prefix: &prefix,
        choices: &choices,
        provider: &chosen.provider,
        auth: &chosen.auth,
        model: "",
        // Who asks for pieces has a script.
        filter: "",
    };
    let fresh = fields.show(&FormProblem::of(None, &[]));
    Ok(pieces(piece(
        Swap::Outer,
        &format!("{prefix}-auth-fields"),
        &fresh,
    )))
}

/// The models of an auth's provider.
async fn refresh_models(
    State(app): State<PageState>,
    Path(prefix): Path<String>,
    Query(chosen): Query<CreateQuery>,
) -> Response {
    let fresh = models(&app, &prefix, &chosen.auth).await;
    pieces(piece(Swap::Outer, &format!("{prefix}-model-list"), &fresh))
}
