//! MCP servers of another program's configuration, taken over from what a person pastes.

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::get;
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use crate::PageState;
use crate::client::ApiProblem;
use crate::forms::{Field, form_error};
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::saved::{FormData, McpServerInfo};
use crate::sheet::{refused_sheet, sheet};

const TITLE: &str = "Import MCP servers";

pub(crate) fn router() -> Router<PageState> {
    Router::new().route("/mcp/import", get(show).post(import))
}

async fn show(request: PageRequest) -> Response {
    sheet(&request, Nav::Mcp, TITLE, &form("", None))
}

fn form(text: &str, problem: Option<&ApiProblem>) -> Markup {
    html! {
        form #mcp-import-form method="post" action="/mcp/import" data-swap {
            (form_error(problem.map(|problem| problem.detail.as_str())))
            (Field::new("mcp-import-text", "text", "Configuration").required()
                .hint("A line “claude mcp add …” or “codex mcp add …”, JSON with mcpServers, Codex TOML, YAML, \
                       a registry’s server.json")
                .textarea(8, text))
            div.row { button.primary #mcp-import-save { "Import" } }
        }
    }
}

/// What was imported.
#[derive(Deserialize)]
struct McpImportInfo {
    servers: Vec<McpServerInfo>,
    secrets: Vec<MissingSecretInfo>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct MissingSecretInfo {
    secret: String,
    what: String,
    variable: String,
}

async fn import(State(app): State<PageState>, request: PageRequest, sent: FormData) -> Response {
    let text = sent.text("text");
    let body = json!({ "text": text });
    let made = app
        .api
        .send::<McpImportInfo>(Method::POST, "/api/v1/mcp-servers/import", &body);
    match made.await {
        Ok(imported) => sheet(&request, Nav::Mcp, "Imported", &import_result(&imported)),
        Err(problem) => refused_sheet(&request, Nav::Mcp, TITLE, &form(&text, Some(&problem))),
    }
}

fn import_result(imported: &McpImportInfo) -> Markup {
    html! {
        p { "Saved: " @for (at, server) in imported.servers.iter().enumerate() {
            @if at > 0 { ", " } strong { (clean(&server.name)) }
        } }
        @if !imported.secrets.is_empty() {
            h3 { "Secrets that have to be set" }
            ul {
                @for wanted in &imported.secrets {
                    li { code { (clean(&wanted.secret)) } ": " (clean(&wanted.what)) ". Save it as an auth of the provider "
                        code { "mcp" } " with this name, or set the variable " code { (wanted.variable) } "." }
                }
            }
        }
        @if !imported.notes.is_empty() {
            h3 { "Left out" }
            ul { @for note in &imported.notes { li { (clean(note)) } } }
        }
        p { a.button.primary #mcp-imported href="/mcp" { "Show all servers" } }
    }
}
