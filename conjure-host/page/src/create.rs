//! The dialog that creates a session, and the pieces that its choices and those of the configuration
//! depend on.

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::PageState;
use crate::client::ApiProblem;
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces};
use crate::saved::{ListPage, Sent, SessionInfo, ThreadInfo, Wrong, first, invalid_at};
use crate::session_form::{
    AuthFields, Choices, FIELDS, SessionDraft, memory, models, persona, working_dir,
};
use crate::sheet::{refused, sheet};

const TITLE: &str = "New session";
const PREFIX: &str = "new";
/// How many chats there are to choose from, the newest first; about as many.
const THREADS: usize = 1_000;
/// What is said where there are more.
const OLDER: &str =
    "The newest ones. An older one is found by searching: open it, and fork it there";

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/new", get(new).post(create))
        .route("/new/filter", post(filter))
        .route("/choices/{prefix}", get(choices))
        .route("/choices/{prefix}/models", get(listed))
}

/// What was chosen so far.
#[derive(Default, Deserialize)]
struct Chosen {
    #[serde(default)]
    provider: String,
    #[serde(default)]
    auth: String,
}

async fn new(
    State(app): State<PageState>,
    request: PageRequest,
    Query(chosen): Query<Chosen>,
) -> Result<Response, PageFailure> {
    let sent = Sent::from([("provider", chosen.provider), ("auth", chosen.auth)]);
    let body = form(&app, &sent, None).await?;
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

/// The form with the saved auths of the provider that was chosen, for a browser without script.
async fn filter(
    State(app): State<PageState>,
    request: PageRequest,
    sent: Sent,
) -> Result<Response, PageFailure> {
    let body = form(&app, &sent, None).await?;
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

async fn form(
    app: &PageState,
    sent: &Sent,
    problem: Option<&ApiProblem>,
) -> Result<Markup, ApiProblem> {
    let choices = Choices::read(app).await?;
    if choices.has_no_auth() {
        return Ok(html! {
            p { "A session asks a model with a saved auth, and none is saved yet." }
            p { a.button.primary #new-needs-auth href="/auths/new" data-dialog { "Save an auth" } }
        });
    }
    let threads: ListPage<ThreadInfo> = first(&app.api, "/api/v1/threads", THREADS).await?;
    let wrong = Wrong::of(problem, &FIELDS);
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
            (form_error(wrong.elsewhere()))
            (Field::new("new-name", "name", "Name").error(wrong.at("name"))
                .hint("Nothing: it is called by its id").input("text", &sent.text("name")))
            (fields.show(&wrong))
            (working_dir(PREFIX, &sent.text("working_dir"), &wrong))
            (history(sent, &threads, &wrong))
            (persona(PREFIX, &choices, sent, None, &wrong))
            (memory(PREFIX, sent, &Map::new(), &wrong))
            div.row { button.primary #new-save { "Create session" } }
        }
    })
}

/// Which chat it begins with.
fn history(sent: &Sent, threads: &ListPage<ThreadInfo>, wrong: &Wrong<'_>) -> Markup {
    let kind = match sent.text("history") {
        kind if kind.is_empty() => "new".to_owned(),
        kind => kind,
    };
    let hint = match threads.next {
        Some(_) => OLDER,
        None => "",
    };
    let named = threads.items.iter().map(|one| {
        let words = format!("{} ({} entries)", one.shown_name(), one.last_seq);
        (one.id.clone(), words)
    });
    let named: Vec<(String, String)> = named.collect();
    html! {
        fieldset.history {
            legend { "Chat history" }
            div.row {
                @for (value, words) in [("new", "New"), ("existing", "Existing"), ("fork", "Fork")] {
                    label.choice {
                        input id={ "new-history-" (value) } type="radio" name="history" value=(value)
                            checked[kind == value] disabled[value != "new" && threads.items.is_empty()];
                        " " (words)
                    }
                }
            }
            div.of-thread {
                (Field::new("new-thread", "thread", "Chat").hint(hint).error(wrong.at("thread"))
                    .select(&sent.text("thread"), &named))
            }
            div.of-fork {
                (Field::new("new-upto", "upto", "Fork behind entry").hint("Nothing: behind the newest")
                    .input("number", &sent.text("upto")))
            }
        }
    }
}

/// The thread that a form chose.
fn thread_of(sent: &Sent) -> Result<Value, ApiProblem> {
    let kind = sent.text("history");
    let thread = sent.text("thread");
    if matches!(kind.as_str(), "existing" | "fork") && thread.is_empty() {
        return Err(invalid_at("thread", "`thread`: choose a chat"));
    }
    let upto = match sent.line("upto") {
        text if text.is_empty() || kind != "fork" => None,
        text => Some(
            text.parse::<u64>()
                .map_err(|_| invalid_at("thread", "`thread`: an entry is a number"))?,
        ),
    };
    Ok(match kind.as_str() {
        "existing" => json!({ "kind": "existing", "thread": thread }),
        "fork" => match upto {
            Some(upto) => json!({ "kind": "fork", "thread": thread, "upto": upto }),
            None => json!({ "kind": "fork", "thread": thread }),
        },
        _ => json!({ "kind": "new" }),
    })
}

async fn create(
    State(app): State<PageState>,
    request: PageRequest,
    sent: Sent,
) -> Result<Response, PageFailure> {
    match made(&app, &sent).await {
        Ok(session) => Ok(go_to(&request, &session.url())),
        Err(problem) => {
            let body = form(&app, &sent, Some(&problem)).await?;
            Ok(refused(&request, Nav::Sessions, TITLE, &body))
        }
    }
}

async fn made(app: &PageState, sent: &Sent) -> Result<SessionInfo, ApiProblem> {
    let thread = thread_of(sent)?;
    let mut members = SessionDraft::read(app, sent, None).await?.members;
    members.insert("thread".to_owned(), thread);
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
    Query(chosen): Query<Chosen>,
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
    let fresh = fields.show(&Wrong::of(None, &[]));
    Ok(pieces(piece(
        Swap::Outer,
        &format!("{prefix}-auth-fields"),
        &fresh,
    )))
}

/// The models of an auth's provider.
async fn listed(
    State(app): State<PageState>,
    Path(prefix): Path<String>,
    Query(chosen): Query<Chosen>,
) -> Response {
    let fresh = models(&app, &prefix, &chosen.auth).await;
    pieces(piece(Swap::Outer, &format!("{prefix}-model-list"), &fresh))
}
