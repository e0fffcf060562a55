//! The login to an MCP server: it is begun here, goes on in a page of its own, and is asked about here.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::layout::Nav;
use crate::mcp;
use crate::request::PageRequest;
use crate::respond::{Swap, piece, pieces};
use crate::saved::{FormData, McpServerInfo};
use crate::sheet::{refused_sheet, sheet};

/// What a view of a login is in.
const BODY: &str = "mcp-login";
/// What of it asks for a change.
const WAITING: &str = "mcp-login-waiting";
/// How long a change of a login is waited for at a time.
const WAIT: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/mcp/servers/{server}/login", get(show).post(begin))
        .route("/mcp/servers/{server}/login/address", post(address))
        .route("/mcp/servers/{server}/login/changed", get(wait_for_change))
        .route("/mcp/servers/{server}/logout", post(logout))
}

/// State of a login, as the API answers it.
#[derive(Deserialize)]
struct McpLoginInfo {
    state: String,
    message: Option<String>,
    url: Option<String>,
    error: Option<String>,
}

impl McpLoginInfo {
    /// Tells this state of a login from another one, and this login from one that was begun later.
    fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.state, &self.url).hash(&mut hasher);
        hasher.finish()
    }

    fn is_under_way(&self) -> bool {
        matches!(self.state.as_str(), "starting" | "waiting")
    }
}

async fn show(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let server: McpServerInfo = app.api.get(&mcp::at(&id)).await?;
    let login = login_of(&app, &id).await?;
    Ok(sheet(
        &request,
        Nav::Mcp,
        &title(&server),
        &login_view(&server, login.as_ref(), None),
    ))
}

/// The login that was begun last, if any was.
async fn login_of(app: &PageState, id: &str) -> Result<Option<McpLoginInfo>, ApiProblem> {
    let path = format!("{}/login", mcp::at(id));
    match app.api.get::<McpLoginInfo>(&path).await {
        Ok(login) => Ok(Some(login)),
        Err(problem) if problem.status == 404 => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// What a view of a login shows of it.
#[derive(Deserialize)]
struct LoginChangeQuery {
    seen: u64,
}

/// Waits until the login is another one than was seen or [`WAIT`] is over, and shows it where it is:
/// whoever looks at a login that waits sees its end without asking.
async fn wait_for_change(
    State(app): State<PageState>,
    Path(id): Path<String>,
    Query(seen): Query<LoginChangeQuery>,
) -> Result<Response, PageFailure> {
    let until = Instant::now() + WAIT;
    let login = loop {
        let login = login_of(&app, &id).await?;
        let is_same = login.as_ref().is_some_and(|now| now.mark() == seen.seen);
        if !is_same || Instant::now() >= until {
            break login;
        }
        tokio::select! {
            // Nothing waits for a server that ends.
            () = app.shutdown.cancelled() => {
                return Ok(pieces(piece(Swap::Remove, WAITING, &html! {})));
            }
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    };
    let what = match &login {
        Some(same) if same.mark() == seen.seen => {
            piece(Swap::Outer, WAITING, &waiting(&mcp_page(&id), same))
        }
        login => {
            let server: McpServerInfo = app.api.get(&mcp::at(&id)).await?;
            piece(
                Swap::Outer,
                BODY,
                &login_view(&server, login.as_ref(), None),
            )
        }
    };
    Ok(pieces(what))
}

/// Asks for what becomes of a login, once it is seen.
fn waiting(at: &str, login: &McpLoginInfo) -> Markup {
    html! {
        div id=(WAITING) data-fetch={ (at) "/login/changed?seen=" (login.mark()) } {}
    }
}

/// Where the page has a server.
fn mcp_page(id: &str) -> String {
    format!("/mcp/servers/{}", segment(id))
}

fn title(server: &McpServerInfo) -> String {
    format!("Login to {}", clean(&server.name))
}

fn login_view(
    server: &McpServerInfo,
    login: Option<&McpLoginInfo>,
    problem: Option<&ApiProblem>,
) -> Markup {
    let at = mcp_page(&server.id);
    let state = login.map_or("", |login| login.state.as_str());
    let body = html! {
        (form_error(problem.map(|problem| problem.detail.as_str())))
        @match state {
            "" => p { "Nobody logged in to this server yet." },
            "starting" => p role="status" { "The login begins. Look again in a moment." },
            "waiting" => p role="status" { (login.and_then(|login| login.message.as_deref()).map_or_else(|| "The server waits for you.".into(), clean)) },
            "done" => p.good role="status" { "You are logged in." },
            "cancelled" => p role="status" { "The login was cancelled." },
            _ => p.wrong role="status" { (login.and_then(|login| login.error.as_deref()).map_or_else(|| "The login failed.".into(), clean)) },
        }
        @if let Some(url) = login.filter(|_| state == "waiting").and_then(|login| login.url.as_deref()) {
            // Only what a browser opens as a page: such an address comes from outside.
            @if url.starts_with("https://") || url.starts_with("http://") {
                p { a #mcp-login-open href=(url) target="_blank" rel="noopener noreferrer nofollow" { "Open the login page" } }
            }
            p.muted.break { (clean(url)) }
            form method="post" action={ (at) "/login/address" } data-swap {
                (Field::new("mcp-login-address", "address", "Where your browser ended").required()
                    .hint("Only where it runs on another machine than the server: the whole address")
                    .input("text", ""))
                div.row { button #mcp-login-send { "Send" } }
            }
        }
        div.row {
            form method="post" action={ (at) "/login" } data-swap {
                button.primary[state.is_empty()] #mcp-login-begin { "Log in" }
            }
            a.button #mcp-login-look href={ (at) "/login" } data-dialog { "Look again" }
            form method="post" action={ (at) "/logout" } data-swap {
                button #mcp-logout { "Forget the login" }
            }
        }
    };
    html! {
        div id=(BODY) {
            (body)
            @if let Some(login) = login.filter(|login| login.is_under_way()) {
                (waiting(&at, login))
            }
        }
    }
}

/// Does something of the login, and shows how it is then.
async fn done(
    app: &PageState,
    id: &str,
    request: &PageRequest,
    path: &str,
    body: Option<Value>,
) -> Result<Response, PageFailure> {
    let at = format!("{}/{path}", mcp::at(id));
    let answer = app.api.call(Method::POST, &at, &[], body.as_ref()).await;
    let server: McpServerInfo = app.api.get(&mcp::at(id)).await?;
    let login = app
        .api
        .get::<McpLoginInfo>(&format!("{}/login", mcp::at(id)))
        .await
        .ok();
    let body = login_view(&server, login.as_ref(), answer.as_ref().err());
    Ok(match answer {
        Ok(_) => sheet(request, Nav::Mcp, &title(&server), &body),
        Err(_) => refused_sheet(request, Nav::Mcp, &title(&server), &body),
    })
}

async fn begin(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    done(&app, &id, &request, "login", None).await
}

async fn address(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let body = json!({ "address": sent.line("address") });
    done(&app, &id, &request, "login/address", Some(body)).await
}

async fn logout(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    done(&app, &id, &request, "logout", None).await
}
