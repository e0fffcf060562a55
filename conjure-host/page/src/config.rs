//! The configuration of a session: the fields of the dialog that creates one, its tools and its MCP
//! servers. Saves in place, and leads to another chat where one was chosen; while a reply streams the
//! person says when a change is to hold.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use axum::routing::{get, post};
use conjure_core::switch::{SwitchReport, describe};
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::PageState;
use crate::chat_history::{self, ChatChoices};
use crate::client::{ApiAnswer, ApiProblem};
use crate::failure::PageFailure;
use crate::forms::{Field, close_dialog, form_error};
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces, toast};
use crate::saved::{
    FormData, FormProblem, McpServerInfo, SessionInfo, fetch_all, invalid, invalid_at, session,
};
use crate::session_form::{
    AuthFields, Choices, FIELDS, SessionDraft, memory, persona, working_dir,
};
use crate::sheet::{refused_sheet, sheet};
use crate::tools_form::{mcps, mcps_of, tools, tools_of};

const PREFIX: &str = "config";

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/sessions/{session}/config", get(show).post(save))
        .route("/sessions/{session}/config/check", post(check))
        .route("/sessions/{session}/config/filter", post(filter))
}

/// A session, as a form of it is shown.
struct ConfigForm<'a> {
    session: &'a SessionInfo,
    sent: &'a FormData,
    problem: Option<&'a ApiProblem>,
    /// The version of the settings that the form began with.
    version: &'a str,
    /// The person has to say when the change is to hold.
    asks_apply_time: bool,
}

async fn show(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let (session, seen) = fetch_versioned(&app, &name).await?;
    let shown = ConfigForm {
        session: &session,
        sent: &FormData::default(),
        problem: None,
        version: &seen,
        asks_apply_time: false,
    };
    let body = form(&app, &shown).await?;
    Ok(sheet(&request, Nav::Sessions, &title(&session), &body))
}

/// The form with the saved auths of the provider that was chosen, for a browser without script.
async fn filter(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let (session, _) = fetch_versioned(&app, &name).await?;
    let shown = ConfigForm {
        session: &session,
        sent: &sent,
        problem: None,
        version: &sent.text("seen"),
        asks_apply_time: false,
    };
    let body = form(&app, &shown).await?;
    Ok(sheet(&request, Nav::Sessions, &title(&session), &body))
}

fn title(session: &SessionInfo) -> String {
    format!("Config of {}", session.shown_name())
}

/// A session with the version of its settings.
async fn fetch_versioned(app: &PageState, name: &str) -> Result<(SessionInfo, String), ApiProblem> {
    let path = format!("/api/v1/sessions/{}", crate::client::segment(name));
    versioned(app.api.call(Method::GET, &path, &[], None).await?)
}

/// A session with the version of its settings, of an answer that has them.
fn versioned(answer: ApiAnswer) -> Result<(SessionInfo, String), ApiProblem> {
    let version = answer
        .headers
        .get(header::ETAG)
        .and_then(|tag| tag.to_str().ok());
    let version = version.unwrap_or_default().to_owned();
    let session = serde_json::from_value(answer.body);
    let session = session.map_err(|error| invalid(error.to_string()))?;
    Ok((session, version))
}

async fn form(app: &PageState, shown: &ConfigForm<'_>) -> Result<Markup, ApiProblem> {
    let ConfigForm { session, sent, .. } = shown;
    let choices = Choices::read(app).await?;
    let chats = ChatChoices::read(app).await?;
    let servers: Vec<McpServerInfo> = fetch_all(&app.api, "/api/v1/mcp-servers").await?;
    let kinds = crate::tools_form::kinds(app).await?;
    let wrong = FormProblem::of(shown.problem, &[&FIELDS[..], &["tools", "mcps"]].concat());
    let was_sent = sent.has("auth");
    let text = |name: &str, now: &str| {
        if was_sent {
            sent.text(name)
        } else {
            now.to_owned()
        }
    };
    let at = session.url();
    let fields = AuthFields {
        prefix: PREFIX,
        choices: &choices,
        provider: &text("provider", &session.auth.provider),
        auth: &text("auth", &session.auth.id),
        model: &text("model", &session.model),
        filter: &format!("{at}/config/filter"),
    };
    Ok(html! {
        form #config-form method="post" action={ (at) "/config" } data-swap {
            (version_field(shown.version))
            (form_error(wrong.general()))
            (Field::new("config-name", "name", "Name").error(wrong.for_field("name"))
                .input("text", &text("name", session.name.as_deref().unwrap_or(""))))
            (fields.show(&wrong))
            (working_dir(PREFIX, &text("working_dir", &session.working_dir), &wrong))
            (chats.show(PREFIX, sent, Some(session), &wrong))
            (persona(PREFIX, &choices, sent, Some(&session.persona), &wrong))
            (memory(PREFIX, sent, &session.memory, &wrong))
            (tools(sent, &session.tools, &kinds, &wrong))
            (mcps(sent, &session.mcps, &servers, &wrong))
            div #config-report role="status" {}
            (buttons(session, shown.asks_apply_time))
        }
    })
}

/// The version of the settings that the form began with.
fn version_field(seen: &str) -> Markup {
    html! { input #config-seen type="hidden" name="seen" value=(seen); }
}

fn buttons(session: &SessionInfo, asks_when: bool) -> Markup {
    html! {
        @if session.is_active() || asks_when {
            fieldset #config-when {
                legend { "A reply is streaming. When is the change to hold?" }
                div.row {
                    // The first one is what Enter in a field presses.
                    button.primary #config-next name="apply" value="next_turn" { "Apply on next turn (defer)" }
                    button #config-now name="apply" value="now" { "Apply now (restart stream)" }
                }
                p.hint { "Now: the stream is stopped, what came is kept, and the model is asked again. "
                    "With another chat, what streams stays in the chat that it began in." }
            }
        }
        div.row {
            @if !(session.is_active() || asks_when) { button.primary #config-save { "Save" } }
            button #config-check formaction={ (session.url()) "/config/check" } { "What will change?" }
        }
    }
}

/// What a form changes: the members that are other ones than the session has.
async fn changes(
    app: &PageState,
    session: &SessionInfo,
    sent: &FormData,
) -> Result<Map<String, Value>, ApiProblem> {
    let servers: Vec<McpServerInfo> = fetch_all(&app.api, "/api/v1/mcp-servers").await?;
    let mut members = SessionDraft::read(app, sent, Some(session)).await?.members;
    members.insert("tools".to_owned(), tools_of(sent, &session.tools)?.into());
    members.insert(
        "mcps".to_owned(),
        mcps_of(sent, &session.mcps, &servers)?.into(),
    );
    let before = |name: &str| -> Value {
        match name {
            "name" => session.name.clone().unwrap_or_default().into(),
            "auth" => session.auth.id.clone().into(),
            "model" => session.model.clone().into(),
            "working_dir" => session.working_dir.clone().into(),
            "persona" => session.persona.as_value(),
            "memory" => session.memory.clone().into(),
            "tools" => session.tools.clone().into(),
            "mcps" => session.mcps.clone().into(),
            _ => Value::Null,
        }
    };
    members.retain(|name, wanted| *wanted != before(name));
    Ok(members)
}

async fn save(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let (session, version) = fetch_versioned(&app, &name).await?;
    let refusal = match apply_changes(&app, &session, &version, &sent).await {
        Ok((changed, seen)) if request.pieces => {
            return Ok(saved_response(&session, &changed, &seen, &request));
        }
        Ok((changed, _)) => return Ok(go_to(&request, &changed.url())),
        Err(refusal) => refusal,
    };
    // As it is by now: settings may be saved already whose chat was refused.
    let (session, version) = fetch_versioned(&app, &session.id).await?;
    let (problem, seen) = (refusal.problem(), refusal.next_version(&sent, &version));
    let shown = ConfigForm {
        session: &session,
        sent: &sent,
        problem: Some(&problem),
        version: &seen,
        asks_apply_time: sent.has("apply"),
    };
    let body = form(&app, &shown).await?;
    Ok(refused_sheet(
        &request,
        Nav::Sessions,
        &title(&session),
        &body,
    ))
}

/// Why a form was not saved, or not all of it.
enum ConfigRefusal {
    /// The settings are another version than the form began with.
    Stale,
    /// A reply streams, and nobody said when the change is to hold.
    ApplyTimeNeeded,
    /// Something of it cannot be.
    Invalid(ApiProblem),
    /// The chat cannot be had. The settings are saved, and this version by that.
    Chat { problem: ApiProblem, seen: String },
}

impl ConfigRefusal {
    fn problem(&self) -> ApiProblem {
        match self {
            Self::Stale => invalid(
                "Somebody else changed this session meanwhile. Save again to put this over it",
            ),
            Self::ApplyTimeNeeded => {
                invalid("A reply began to stream meanwhile: say below when the change is to hold")
            }
            Self::Invalid(problem) | Self::Chat { problem, .. } => problem.clone(),
        }
    }

    /// The version that the form goes on with, where the newest one is `newest`. What somebody else
    /// saved is put over only where the person was told of it.
    fn next_version(&self, sent: &FormData, newest: &str) -> String {
        match self {
            Self::Stale => newest.to_owned(),
            Self::ApplyTimeNeeded | Self::Invalid(_) => sent.text("seen"),
            Self::Chat { seen, .. } => seen.clone(),
        }
    }
}

impl From<ApiProblem> for ConfigRefusal {
    fn from(problem: ApiProblem) -> Self {
        match problem.status {
            412 => Self::Stale,
            _ => Self::Invalid(problem),
        }
    }
}

/// Whether a form began with another version than this one.
fn is_stale(sent: &FormData, version: &str) -> bool {
    let seen = sent.text("seen");
    !seen.is_empty() && seen != version
}

/// Saves what is another one, and goes on with the chat that was chosen. `version` is the one of the
/// settings; the one that they have then is in the answer.
async fn apply_changes(
    app: &PageState,
    session: &SessionInfo,
    version: &str,
    sent: &FormData,
) -> Result<(SessionInfo, String), ConfigRefusal> {
    let chat = chat_history::thread_choice(sent, Some(session))?;
    let changes = changes(app, session, sent).await?;
    if is_stale(sent, version) && (chat.is_some() || !changes.is_empty()) {
        return Err(ConfigRefusal::Stale);
    }
    // A name says nothing to a model, and a reply comes to its end in the chat that it began in.
    let matters = changes.keys().any(|member| member != "name");
    if session.is_active() && !sent.has("apply") && matters {
        return Err(ConfigRefusal::ApplyTimeNeeded);
    }
    let (settled, seen) = match changes.is_empty() {
        true => (session.clone(), version.to_owned()),
        false => change(app, session, sent, changes).await?,
    };
    let Some(chat) = chat else {
        return Ok((settled, seen));
    };
    match continue_chat(app, &settled, &chat).await {
        Ok(settled) => Ok((settled, seen)),
        Err(problem) => Err(ConfigRefusal::Chat { problem, seen }),
    }
}

/// Goes on with a chat.
async fn continue_chat(
    app: &PageState,
    session: &SessionInfo,
    chat: &Value,
) -> Result<SessionInfo, ApiProblem> {
    let path = format!("{}/thread", session.api());
    let chosen = app.api.send(Method::POST, &path, chat).await;
    chosen.map_err(|problem: ApiProblem| invalid_at("thread", problem.detail))
}

async fn change(
    app: &PageState,
    session: &SessionInfo,
    sent: &FormData,
    changes: Map<String, Value>,
) -> Result<(SessionInfo, String), ApiProblem> {
    let apply = match sent.text("apply").as_str() {
        "now" => "now",
        _ => "next_turn",
    };
    let path = format!("{}?apply={apply}", session.api());
    let seen = HeaderValue::from_str(&sent.text("seen")).ok();
    let seen = seen
        .filter(|seen| !seen.is_empty())
        .map(|seen| (header::IF_MATCH, seen));
    let body = Value::Object(changes);
    let headers: Vec<_> = seen.into_iter().collect();
    let answer = app
        .api
        .call(Method::PATCH, &path, &headers, Some(&body))
        .await?;
    versioned(answer)
}

/// What a page shows of a session that was saved, in place; elsewhere where its address or its chat is
/// another one.
fn saved_response(
    before: &SessionInfo,
    now: &SessionInfo,
    seen: &str,
    request: &PageRequest,
) -> Response {
    let chat = |session: &SessionInfo| session.thread.as_ref().map(|thread| thread.id.clone());
    if before.url() != now.url() || chat(before) != chat(now) {
        return go_to(request, &now.url());
    }
    pieces(html! {
        // Where it is a page of its own, it goes on with what was saved.
        (piece(Swap::Outer, "config-seen", &version_field(seen)))
        (close_dialog())
        (piece(Swap::Outer, &format!("session-{}", now.id), &crate::dashboard::card(now)))
        (toast("Saved"))
    })
}

/// What a change would do to the conversation, before it is saved.
async fn check(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let session = session(&app.api, &name).await?;
    let report = report(&app, &session, &sent).await;
    let said = match &report {
        Ok(lines) => html! {
            h3 { "What will change" }
            ul { @for line in lines { li { (line) } } }
        },
        Err(problem) => form_error(Some(&problem.detail)),
    };
    if request.pieces {
        return Ok(pieces(piece(Swap::Inner, "config-report", &said)));
    }
    let body = html! { (said) p { a href={ (session.url()) "/config" } { "Back to the config" } } };
    Ok(sheet(&request, Nav::Sessions, "What will change", &body))
}

async fn report(
    app: &PageState,
    session: &SessionInfo,
    sent: &FormData,
) -> Result<Vec<String>, ApiProblem> {
    if sent.text("persona") == "new" {
        return Err(invalid(
            "Save first: the persona that is written here is not in the list yet",
        ));
    }
    let chat = chat_history::thread_choice(sent, Some(session))?;
    let changes = changes(app, session, sent).await?;
    let mut said: Vec<String> = Vec::new();
    if changes.is_empty() && chat.is_none() {
        said.push("Nothing: all fields are as the session has them".to_owned());
    }
    for member in changes.keys() {
        said.push(format!("{} is another one", member_label(member)));
    }
    if chat.is_some() {
        said.push("The chat is another one; what follows is told of the one it has now".to_owned());
    }
    let path = format!("{}/check", session.api());
    let report = app
        .api
        .send::<SwitchReport>(Method::POST, &path, &Value::Object(changes))
        .await?;
    said.push("With that the model would get:".to_owned());
    said.extend(describe(&report, None));
    Ok(said)
}

/// A member of a session in words.
fn member_label(member: &str) -> &str {
    match member {
        "name" => "The name",
        "auth" => "The saved auth",
        "model" => "The model",
        "working_dir" => "The working directory",
        "persona" => "The persona",
        "memory" => "The memory",
        "tools" => "The tools",
        "mcps" => "The choice of MCP servers",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_was_refused_goes_on_with_the_version_that_its_fields_are_of() {
        let sent = FormData::from([("seen", "\"1\"".to_owned())]);
        let unfit = ConfigRefusal::from(invalid_at("model", "`model`: it is empty"));
        for refusal in [unfit, ConfigRefusal::ApplyTimeNeeded] {
            assert_eq!(refusal.next_version(&sent, "\"3\""), "\"1\"");
        }
        let mut changed = invalid("it was changed");
        changed.status = 412;
        let stale = ConfigRefusal::from(changed);
        assert_eq!(stale.next_version(&sent, "\"3\""), "\"3\"");
        let chat = ConfigRefusal::Chat {
            problem: invalid_at("thread", "there is no such entry"),
            seen: "\"2\"".to_owned(),
        };
        assert_eq!(chat.next_version(&sent, "\"3\""), "\"2\"");
    }

    #[test]
    fn a_form_is_stale_where_it_began_with_another_version() {
        let sent = FormData::from([("seen", "\"1\"".to_owned())]);
        assert!(is_stale(&sent, "\"2\"") && !is_stale(&sent, "\"1\""));
        assert!(!is_stale(&FormData::default(), "\"2\""));
    }
}
