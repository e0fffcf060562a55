//! The first page: the sessions as cards that stay up to date, what was used last first, and the saved
//! auths. Also the question before a session is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::get;
use conjure_core::foreign_text::clean;
use conjure_runtime::manager::{SessionChange, SessionChangeStream, SessionState};
use futures_util::stream;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::PageState;
use crate::auths;
use crate::client::{ApiClient, ApiProblem, segment};
use crate::failure::PageFailure;
use crate::layout::{Nav, PageFrame, layout};
use crate::live::live;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece};
use crate::saved::{AuthInfo, FormData, ListPage, SessionInfo, fetch_all, session};
use crate::sheet::Confirmation;
use crate::timestamps::time;

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/", get(show))
        .route("/live/sessions", get(follow))
        .route("/sessions/{session}/delete", get(ask).post(delete))
}

/// Cards of a page: with more of them nobody finds anything by looking.
const CARDS: usize = 48;

/// Query of the first page: the sessions that it shows.
#[derive(Debug, Clone, Default, Deserialize)]
struct SessionFilter {
    /// Words that every shown session has; empty for all sessions.
    #[serde(default)]
    q: String,
    /// Cursor of the page of sessions; empty for the first one.
    #[serde(default)]
    after: String,
}

impl SessionFilter {
    async fn page(&self, api: &ApiClient) -> Result<ListPage<SessionInfo>, ApiProblem> {
        let mut path = format!("/api/v1/sessions?order=used&limit={CARDS}");
        for (name, value) in [("q", self.q.trim()), ("cursor", &self.after)] {
            if !value.is_empty() {
                path.push_str(&format!("&{name}={}", segment(value)));
            }
        }
        api.get(&path).await
    }

    /// An address with the words, and with where its page begins.
    fn url(&self, base: &str, after: Option<&str>) -> String {
        let after = after.map(|after| format!("&after={}", segment(after)));
        format!(
            "{base}?q={}{}",
            segment(self.q.trim()),
            after.unwrap_or_default()
        )
    }
}

async fn show(
    State(app): State<PageState>,
    Query(wanted): Query<SessionFilter>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let sessions = wanted.page(&app.api).await?;
    let auths: Vec<AuthInfo> = fetch_all(&app.api, "/api/v1/auths").await?;
    let is_first = wanted.after.is_empty();
    let is_searched = !wanted.q.trim().is_empty();
    let is_long = is_searched || !is_first || sessions.next.is_some();
    let body = html! {
        header."row spread" {
            h1 { "Sessions" }
            a.button.primary #session-new href="/new" data-dialog data-key="g n" { "New session" }
        }
        section aria-label="Sessions" data-stream=[is_first.then(|| wanted.url("/live/sessions", None))] {
            @if is_long {
                form.row.find role="search" method="get" action="/" {
                    input.grow #session-find type="search" name="q" value=(wanted.q.trim()) maxlength="200"
                        placeholder="Name, model, directory or chat" aria-label="Find a session" autocomplete="off";
                    button #session-find-go { "Find" }
                    @if is_searched { a.button #session-find-all href="/" { "Show all" } }
                }
            }
            ul.cards #sessions { (cards(&sessions.items)) }
            p.empty { @if is_searched { "No session has these words." } @else { "There is no session yet." } }
            @if is_long && (!is_first || sessions.next.is_some()) {
                nav.row.more aria-label="Pages of sessions" {
                    @if !is_first { a.button #sessions-first href=(wanted.url("/", None)) { "The latest sessions" } }
                    @if let Some(next) = &sessions.next {
                        a.button #sessions-more href=(wanted.url("/", Some(next))) { "More sessions" }
                    }
                }
            }
        }
        section {
            header."row spread" {
                h2 { "Saved auths" }
                a.button #auth-new href="/auths/new" data-dialog { "New auth" }
            }
            (auths::table(&auths))
        }
    };
    let mut view = PageFrame::new(Nav::Sessions, "Sessions");
    view.keys = &[("g n", "New session")];
    Ok(layout(&request, &view, &body))
}

fn cards(sessions: &[SessionInfo]) -> Markup {
    html! { @for session in sessions { (card(session)) } }
}

/// A session on the first page.
pub(crate) fn card(session: &SessionInfo) -> Markup {
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
            p.muted { "Used " (time(session.used_at_ms())) }
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

/// The state of a session, where it is not idle, and what waits.
fn badge(session: &SessionInfo) -> Markup {
    html! {
        @match session.state {
            SessionState::Idle => {},
            SessionState::Running => span.badge.active { "ACTIVE" },
            SessionState::Waiting => { span.row { span.badge.active { "ACTIVE" } span.badge.warn { "waits for you" } } },
        }
        @if session.queued > 0 { span.badge { (session.queued) " queued" } }
    }
}

/// For how long changes are gathered: each costs whoever looks a reading of the session.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// What a stream of the sessions knows.
struct DashboardStream {
    app: PageState,
    filter: SessionFilter,
    changes: SessionChangeStream,
    /// The sessions whose cards are on the page, by their ids.
    shown_sessions: BTreeMap<String, ShownSession>,
    has_begun: bool,
}

/// A session whose card is on the page.
#[derive(Debug, Clone, PartialEq)]
struct ShownSession {
    thread: Option<String>,
    used_at_ms: i64,
}

/// The sessions that changed while changes were gathered.
#[derive(Default)]
struct ChangedSessions {
    sessions: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// All of them are to be listed anew.
    is_list_stale: bool,
}

async fn follow(
    State(app): State<PageState>,
    Query(wanted): Query<SessionFilter>,
    request: Request,
) -> Response {
    let mut changes = app.manager.changes();
    changes.ready().await;
    let following = DashboardStream {
        filter: wanted,
        changes,
        app: app.clone(),
        shown_sessions: BTreeMap::new(),
        has_begun: false,
    };
    let pieces = stream::unfold(following, |mut following| async move {
        let next = following.next().await?;
        Some((next, following))
    });
    live(&app, request.extensions(), pieces)
}

impl DashboardStream {
    /// The pieces for what changes next.
    async fn next(&mut self) -> Option<Markup> {
        if !self.has_begun {
            self.has_begun = true;
            return Some(self.redraw_all().await);
        }
        let mut gathered = ChangedSessions::default();
        let mut change = self.changes.next().await?;
        let until = Instant::now() + GATHER_TIME;
        loop {
            self.gather(change, &mut gathered);
            match timeout_at(until, self.changes.next()).await {
                Ok(next) => change = next?,
                Err(_) => return Some(self.pieces(gathered).await),
            }
        }
    }

    fn gather(&self, change: SessionChange, gathered: &mut ChangedSessions) {
        match change {
            SessionChange::State { session, .. } | SessionChange::Saved { session } => {
                // One more card, or one that may have the words now.
                let is_searched = !self.filter.q.trim().is_empty();
                let is_more = !self.shown_sessions.contains_key(&session);
                gathered.is_list_stale |=
                    is_more && (is_searched || self.shown_sessions.len() >= CARDS);
                gathered.sessions.insert(session);
            }
            SessionChange::Deleted { session } => {
                gathered.sessions.remove(&session);
                gathered.removed.insert(session);
            }
            SessionChange::Thread { thread, .. } => {
                let is_its = |of: &ShownSession| of.thread.as_deref() == Some(thread.as_str());
                let shown = self.shown_sessions.iter().filter(|(_, of)| is_its(of));
                gathered.sessions.extend(shown.map(|(id, _)| id.clone()));
            }
            SessionChange::Missed => gathered.is_list_stale = true,
        }
    }

    async fn pieces(&mut self, gathered: ChangedSessions) -> Markup {
        if gathered.is_list_stale {
            return self.redraw_all().await;
        }
        let mut pieces = Vec::new();
        for id in gathered.removed {
            self.shown_sessions.remove(&id);
            pieces.push(piece(Swap::Remove, &format!("session-{id}"), &html! {}));
        }
        let mut changed: Vec<SessionInfo> = Vec::new();
        for id in gathered.sessions {
            // One that was deleted meanwhile is told of next.
            changed.extend(session(&self.app.api, &id).await);
        }
        // Each that was used since goes before the others: what was used last goes last.
        changed.sort_by_key(SessionInfo::used_at_ms);
        pieces.extend(changed.iter().map(|session| self.redraw_one(session)));
        html! { @for piece in &pieces { (piece) } }
    }

    async fn redraw_all(&mut self) -> Markup {
        let Ok(sessions) = self.filter.page(&self.app.api).await else {
            return html! {};
        };
        let sessions = sessions.items;
        self.shown_sessions = sessions
            .iter()
            .map(|it| (it.id.clone(), ShownSession::of(it)))
            .collect();
        piece(Swap::Inner, "sessions", &cards(&sessions))
    }

    fn redraw_one(&mut self, session: &SessionInfo) -> Markup {
        let card = card(session);
        let now = ShownSession::of(session);
        match self.shown_sessions.insert(session.id.clone(), now.clone()) {
            // One that was used since stands before the others.
            Some(before) if before.used_at_ms == now.used_at_ms => {
                piece(Swap::Outer, &format!("session-{}", session.id), &card)
            }
            _ => piece(Swap::Prepend, "sessions", &card),
        }
    }
}

impl ShownSession {
    fn of(session: &SessionInfo) -> Self {
        Self {
            thread: session.thread.as_ref().map(|thread| thread.id.clone()),
            used_at_ms: session.used_at_ms(),
        }
    }
}

async fn ask(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let session = session(&app.api, &name).await?;
    Ok(question(&session, None).ask(&request, Nav::Sessions))
}

fn question<'a>(session: &SessionInfo, error: Option<&'a str>) -> Confirmation<'a> {
    Confirmation {
        title: "Delete session",
        message: html! {
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
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let session = session(&app.api, &name).await?;
    let chat = match sent.text("chat").as_str() {
        "delete" => "delete",
        _ => "keep",
    };
    let path = format!("/api/v1/sessions/{}?chat={chat}", segment(&session.id));
    Ok(
        match app.api.send_empty::<Value>(Method::DELETE, &path).await {
            Ok(_) => go_to(&request, "/"),
            Err(problem) => question(&session, Some(&problem.detail)).ask(&request, Nav::Sessions),
        },
    )
}
