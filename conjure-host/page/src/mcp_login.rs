//! The login to an MCP server: it is begun here, goes on in a page of its own, and is asked about here.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::layout::Nav;
use crate::mcp;
use crate::request::PageRequest;
use crate::saved::{McpServerInfo, Sent};
use crate::sheet::{refused, sheet};

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/mcp/servers/{server}/login", get(show).post(begin))
        .route("/mcp/servers/{server}/login/address", post(address))
        .route("/mcp/servers/{server}/logout", post(logout))
}

/// How it is with a login.
#[derive(Deserialize)]
struct McpLoginInfo {
    state: String,
    message: Option<String>,
    url: Option<String>,
    error: Option<String>,
}

async fn show(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let server: McpServerInfo = app.api.get(&mcp::at(&id)).await?;
    let login = app
        .api
        .get::<McpLoginInfo>(&format!("{}/login", mcp::at(&id)))
        .await;
    let login = match login {
        Ok(login) => Some(login),
        Err(problem) if problem.status == 404 => None,
        Err(problem) => return Err(problem.into()),
    };
    Ok(sheet(
        &request,
        Nav::Mcp,
        &title(&server),
        &told(&server, login.as_ref(), None),
    ))
}

fn title(server: &McpServerInfo) -> String {
    format!("Login to {}", clean(&server.name))
}

fn told(
    server: &McpServerInfo,
    login: Option<&McpLoginInfo>,
    problem: Option<&ApiProblem>,
) -> Markup {
    let at = format!("/mcp/servers/{}", segment(&server.id));
    let state = login.map_or("", |login| login.state.as_str());
    html! {
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
    let body = told(&server, login.as_ref(), answer.as_ref().err());
    Ok(match answer {
        Ok(_) => sheet(request, Nav::Mcp, &title(&server), &body),
        Err(_) => refused(request, Nav::Mcp, &title(&server), &body),
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
    sent: Sent,
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
