//! The first page: the sessions as cards that stay up to date, and the saved auths. Also the question
//! before a session is deleted.

use std::collections::HashSet;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::get;
use conjure_core::foreign_text::clean;
use conjure_runtime::manager::{SessionChange, SessionChangeStream, SessionState};
use futures_util::stream;
use maud::{Markup, html};
use serde_json::Value;

use crate::App;
use crate::auths;
use crate::client::segment;
use crate::failure::Failure;
use crate::layout::{Nav, View, layout};
use crate::live::live;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece};
use crate::saved::{Auth, Sent, Session, all, session};
use crate::sheet::Question;
use crate::when::time;

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/", get(show))
        .route("/live/sessions", get(follow))
        .route("/sessions/{session}/delete", get(ask).post(delete))
}

async fn show(State(app): State<App>, request: PageRequest) -> Result<Response, Failure> {
    let sessions: Vec<Session> = all(&app.api, "/api/v1/sessions").await?;
    let auths: Vec<Auth> = all(&app.api, "/api/v1/auths").await?;
    let body = html! {
        header."row spread" {
            h1 { "Sessions" }
            a.button.primary #session-new href="/new" data-dialog data-key="g n" { "New session" }
        }
        section aria-label="Sessions" data-stream="/live/sessions" {
            ul.cards #sessions { (cards(&sessions)) }
            p.empty { "There is no session yet." }
        }
        section {
            header."row spread" {
                h2 { "Saved auths" }
                a.button #auth-new href="/auths/new" data-dialog { "New auth" }
            }
            (auths::table(&auths))
        }
    };
    Ok(layout(
        &request,
        &View::new(Nav::Sessions, "Sessions"),
        &body,
    ))
}

fn cards(sessions: &[Session]) -> Markup {
    // The newest first: it is the one that a person comes for.
    html! { @for session in sessions.iter().rev() { (card(session)) } }
}

/// A session on the first page.
pub(crate) fn card(session: &Session) -> Markup {
    let (at, name) = (session.url(), session.shown_name());
    let id = &session.id;
    html! {
        li.card id={ "session-" (id) } {
            div."row spread" {
                h2 { a id={ "session-open-" (id) } href=(at) { (name) } }
                (badge(session))
            }
            p { (clean(&session.auth.provider)) " · " (clean(&session.model)) }
            p.muted {
                "Auth " (clean(&session.auth.name)) br;
                span.break { (clean(&session.working_dir)) } br;
                @match &session.thread {
                    Some(thread) if !thread.label.is_empty() => { "Chat “" (clean(&thread.label)) "”, " (turns(thread.turns)) },
                    Some(thread) => { (turns(thread.turns)) },
                    None => "No chat is chosen",
                }
            }
            p.muted { "Changed " (time(session.updated_at_ms)) }
            div.row {
                a.button.small id={ "session-config-" (id) } href={ (at) "/config" } data-dialog
                    aria-label={ "Config of " (name) } { "Config" }
                a.button.small id={ "session-routes-" (id) } href={ (at) "/routes" }
                    aria-label={ "Routes of " (name) } { "Routes" }
                a.button.small id={ "session-delete-" (id) } href={ (at) "/delete" } data-dialog
                    aria-label={ "Delete " (name) } { "Delete" }
            }
        }
    }
}

fn turns(turns: u64) -> String {
    match turns {
        0 => "nothing said yet".to_owned(),
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    }
}

/// How it is with a session, where anything is.
fn badge(session: &Session) -> Markup {
    html! {
        @match session.state {
            SessionState::Idle => {},
            SessionState::Running => span.badge.active { "ACTIVE" },
            SessionState::Waiting => { span.row { span.badge.active { "ACTIVE" } span.badge.warn { "waits for you" } } },
        }
        @if session.queued > 0 { span.badge { (session.queued) " queued" } }
    }
}

/// What a stream of the sessions knows.
struct Following {
    app: App,
    changes: SessionChangeStream,
    /// The cards that are on the page.
    shown: HashSet<String>,
    has_begun: bool,
}

async fn follow(State(app): State<App>, request: Request) -> Response {
    let following = Following {
        changes: app.manager.changes(),
        app: app.clone(),
        shown: HashSet::new(),
        has_begun: false,
    };
    let pieces = stream::unfold(following, |mut following| async move {
        let next = following.next().await?;
        Some((next, following))
    });
    live(&app, request.extensions(), pieces)
}

impl Following {
    /// The pieces for the next change.
    async fn next(&mut self) -> Option<Markup> {
        if !self.has_begun {
            self.has_begun = true;
            return Some(self.all_of_them().await);
        }
        match self.changes.next().await? {
            SessionChange::State { session, .. } | SessionChange::Saved { session } => {
                Some(self.one(&session).await)
            }
            SessionChange::Deleted { session } => {
                self.shown.remove(&session);
                Some(piece(
                    Swap::Remove,
                    &format!("session-{session}"),
                    &html! {},
                ))
            }
            SessionChange::Missed => Some(self.all_of_them().await),
        }
    }

    async fn all_of_them(&mut self) -> Markup {
        let Ok(sessions) = all::<Session>(&self.app.api, "/api/v1/sessions").await else {
            return html! {};
        };
        self.shown = sessions.iter().map(|session| session.id.clone()).collect();
        piece(Swap::Inner, "sessions", &cards(&sessions))
    }

    async fn one(&mut self, id: &str) -> Markup {
        // One that was deleted meanwhile is told of next.
        let Ok(session) = session(&self.app.api, id).await else {
            return html! {};
        };
        let card = card(&session);
        if self.shown.insert(session.id.clone()) {
            piece(Swap::Prepend, "sessions", &card)
        } else {
            piece(Swap::Outer, &format!("session-{}", session.id), &card)
        }
    }
}

async fn ask(
    State(app): State<App>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let session = session(&app.api, &name).await?;
    Ok(question(&session, None).ask(&request, Nav::Sessions))
}

fn question<'a>(session: &Session, error: Option<&'a str>) -> Question<'a> {
    Question {
        title: "Delete session",
        words: html! {
            p { "Delete the session " strong { (session.shown_name()) } "? What runs in it is ended first." }
            fieldset {
                legend { "Its chat" }
                label.choice {
                    input #delete-keep type="radio" name="chat" value="keep" checked;
                    " Keep the chat: another session can go on with it"
                }
                label.choice {
                    input #delete-chat type="radio" name="chat" value="delete";
                    " Delete the chat too, for good"
                }
            }
        },
        action: format!("{}/delete", session.url()),
        button: "Delete",
        id: "session-delete-yes",
        error,
    }
}

async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: Sent,
) -> Result<Response, Failure> {
    let session = session(&app.api, &name).await?;
    let chat = match sent.text("chat").as_str() {
        "delete" => "delete",
        _ => "keep",
    };
    let path = format!("/api/v1/sessions/{}?chat={chat}", segment(&session.id));
    Ok(match app.api.bare::<Value>(Method::DELETE, &path).await {
        Ok(_) => go_to(&request, "/"),
        Err(problem) => question(&session, Some(&problem.detail)).ask(&request, Nav::Sessions),
    })
}
