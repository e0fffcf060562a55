//! The plugins: loaded and in which process, failed, with what each may do; upgraded, put back, loaded
//! again and removed. Adding one is `plugin_add.rs`.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use conjure_core::foreign_text::clean;
use futures_util::stream;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::form_error;
use crate::layout::{Nav, PageFrame, layout};
use crate::live::live;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces, toast};
use crate::saved::Sent;
use crate::sheet::{Confirmation, refused, sheet};
use crate::when::time;

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/plugins", get(show))
        .route("/plugins/live", get(follow))
        .route("/plugins/of/{plugin}/reload", post(reload))
        .route(
            "/plugins/of/{plugin}/rollback",
            get(ask_back).post(put_back),
        )
        .route("/plugins/of/{plugin}/remove", get(ask_remove).post(remove))
}

#[derive(Deserialize)]
struct PluginsInfo {
    generation: u64,
    plugins: Vec<PluginInfo>,
    failed: Vec<FailedPluginInfo>,
}

#[derive(Deserialize)]
struct PluginInfo {
    name: String,
    version: String,
    kind: String,
    description: String,
    state: String,
    reason: Option<String>,
    file: Option<String>,
    sha256: Option<String>,
    pinned: String,
    isolation: String,
    #[serde(default)]
    isolation_reason: String,
    worker_ends: u64,
    rustc: Option<String>,
    permissions: Map<String, Value>,
    tools: Vec<PluginToolInfo>,
}

#[derive(Deserialize)]
struct PluginToolInfo {
    name: String,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct FailedPluginInfo {
    file: String,
    reason: String,
    kept: Option<String>,
}

#[derive(Deserialize)]
struct PluginHistoryInfo {
    changes: Vec<PluginChangeInfo>,
}

/// A change of an installed plugin.
#[derive(Deserialize)]
struct PluginChangeInfo {
    at_ms: i64,
    action: String,
    plugin: String,
    from: Option<BuildInfo>,
    to: Option<BuildInfo>,
    #[serde(default)]
    altered: bool,
}

#[derive(Deserialize)]
struct BuildInfo {
    version: String,
}

async fn show(State(app): State<PageState>, request: PageRequest) -> Result<Response, PageFailure> {
    let plugins: PluginsInfo = app.api.get("/api/v1/plugins").await?;
    let body = html! {
        header."row spread" {
            h1 { "Plugins" }
            a.button.primary #plugin-new href="/plugins/new" data-dialog { "Add plugin" }
        }
        div data-stream={ "/plugins/live?generation=" (plugins.generation) } {
            (listed(&app, &plugins).await)
        }
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Plugins, "Plugins"),
        &body,
    ))
}

/// Everything that changes.
async fn listed(app: &PageState, plugins: &PluginsInfo) -> Markup {
    let history = app
        .api
        .get::<PluginHistoryInfo>("/api/v1/plugins/history")
        .await;
    let history = history.map(|history| history.changes).unwrap_or_default();
    let mut newest: BTreeMap<&str, &PluginChangeInfo> = BTreeMap::new();
    for change in &history {
        newest.insert(&change.plugin, change);
    }
    let is_installed = |name: &str| newest.get(name).is_some_and(|change| change.to.is_some());
    html! {
        div #plugins {
            @for failed in &plugins.failed {
                div.form-error role="alert" {
                    p { strong.break { (clean(&failed.file)) } " is not loaded: " (clean(&failed.reason)) }
                    @if let Some(kept) = &failed.kept { p { (kept) " stays in use." } }
                }
            }
            ul.cards { @for plugin in &plugins.plugins { (card(plugin, is_installed(&plugin.name))) } }
            p.empty { "No plugin is loaded." }
            @if !history.is_empty() { (changes(&history, &newest)) }
        }
    }
}

fn card(plugin: &PluginInfo, is_installed: bool) -> Markup {
    let (name, at) = (
        &plugin.name,
        format!("/plugins/of/{}", segment(&plugin.name)),
    );
    let id = format!("{name}-{}", plugin.version);
    html! {
        li.card id={ "plugin-" (id) } {
            div."row spread" {
                h2 { (name) " " span.muted { (plugin.version) } }
                @match plugin.state.as_str() {
                    "loaded" => span.badge.good { "loaded" },
                    state => span.badge.bad { (state) },
                }
            }
            @if let Some(reason) = &plugin.reason { p.wrong { (clean(reason)) } }
            p.said { (clean(&plugin.description)) }
            p.muted {
                (plugin.kind) ", " (place(plugin))
                @if plugin.worker_ends > 0 { ", the worker ended " (plugin.worker_ends) " times" }
            }
            details id={ "plugin-may-" (id) } {
                summary { "May do" }
                @let asked = asked(&plugin.permissions);
                @if asked.is_empty() { p { "Nothing beside its session’s directories." } }
                ul { @for line in &asked { li { (line) } } }
            }
            details id={ "plugin-more-" (id) } {
                summary { "Tools and origin" }
                ul { @for tool in &plugin.tools { li { code { (clean(&tool.name)) } " " (clean(&tool.description)) } } }
                @if let Some(file) = &plugin.file { p.break { "File " code { (clean(file)) } } }
                @if let Some(sha256) = &plugin.sha256 { p.break { "SHA-256 " code { (sha256) } } }
                p { "Pinned: " (plugin.pinned) @if let Some(rustc) = &plugin.rustc { ", built by rustc " (rustc) } }
            }
            div.row {
                @if plugin.file.is_some() {
                    form method="post" action={ (at) "/reload" } data-swap {
                        button.small id={ "plugin-reload-" (id) } aria-label={ "Load again: " (name) } { "Load again" }
                    }
                }
                @if is_installed {
                    a.button.small id={ "plugin-rollback-" (id) } href={ (at) "/rollback" } data-dialog
                        aria-label={ "Roll back " (name) } { "Roll back" }
                    a.button.small id={ "plugin-remove-" (id) } href={ (at) "/remove" } data-dialog
                        aria-label={ "Remove " (name) } { "Remove" }
                }
            }
        }
    }
}

/// Where a plugin runs and why there, in words.
fn place(plugin: &PluginInfo) -> String {
    let place = match plugin.isolation.as_str() {
        "in-process" => "in the host’s process",
        "process" => "in a process of its own",
        other => other,
    };
    match plugin.isolation_reason.is_empty() {
        true => place.to_owned(),
        false => format!("{place} ({})", plugin.isolation_reason),
    }
}

/// What a plugin asks to be allowed, a line each.
fn asked(permissions: &Map<String, Value>) -> Vec<String> {
    let words = |name: &str| match name {
        "secrets" => "Read the secrets",
        "http" => "Reach the hosts",
        "sample" => "Ask the session’s model",
        "read" => "Read",
        "write" => "Read and change",
        "network" => "Open connections of its own",
        "commands" => "Start programs",
        _ => "Other",
    };
    let lines = permissions.iter().filter_map(|(name, value)| match value {
        Value::Bool(true) => Some(words(name).to_owned()),
        Value::Array(list) if !list.is_empty() => {
            let list: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            Some(format!("{}: {}", words(name), clean(&list.join(", "))))
        }
        _ => None,
    });
    lines.collect()
}

fn changes(history: &[PluginChangeInfo], newest: &BTreeMap<&str, &PluginChangeInfo>) -> Markup {
    let version = |build: &Option<BuildInfo>| build.as_ref().map(|build| build.version.clone());
    html! {
        section aria-labelledby="plugin-history" {
            h2 #plugin-history { "What was changed" }
            ul {
                @for change in history.iter().rev().take(50) {
                    li {
                        (time(change.at_ms)) " " strong { (change.plugin) } " "
                        @match change.action.as_str() { "add" => "added", "remove" => "removed", _ => "put back" }
                        @match (version(&change.from), version(&change.to)) {
                            (Some(from), Some(to)) => { ": " (from) " → " (to) },
                            (None, Some(to)) => { ": " (to) },
                            (Some(from), None) => { ": " (from) },
                            (None, None) => {},
                        }
                    }
                }
            }
            @for (name, change) in newest.iter().filter(|(_, change)| change.to.is_none() && !change.altered) {
                p {
                    (name) " " (version(&change.from).unwrap_or_default()) " is kept. "
                    a.button.small id={ "plugin-back-" (name) } href={ "/plugins/of/" (segment(name)) "/rollback" }
                        data-dialog aria-label={ "Put back " (name) } { "Put back" }
                }
            }
        }
    }
}

/// What the page shows already.
#[derive(Deserialize)]
struct PluginsStreamQuery {
    #[serde(default)]
    generation: u64,
}

async fn follow(
    State(app): State<PageState>,
    Query(shown): Query<PluginsStreamQuery>,
    request: Request,
) -> Response {
    let generations = app.manager.host().registry().subscribe();
    let begin = (app.clone(), generations, shown.generation);
    let pieces = stream::unfold(begin, |(app, mut generations, seen)| async move {
        let now = *generations.wait_for(|now| *now != seen).await.ok()?;
        let fresh = match app.api.get::<PluginsInfo>("/api/v1/plugins").await {
            Ok(plugins) => piece(Swap::Outer, "plugins", &listed(&app, &plugins).await),
            Err(problem) => toast(&problem.detail),
        };
        Some((fresh, (app, generations, now)))
    });
    live(&app, request.extensions(), pieces)
}

fn at(name: &str, what: &str) -> String {
    format!("/api/v1/plugins/{}{what}", segment(name))
}

async fn reload(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    app.api
        .bare::<Value>(Method::POST, &at(&name, "/reload"))
        .await?;
    if !request.pieces {
        return Ok(go_to(&request, "/plugins"));
    }
    let plugins: PluginsInfo = app.api.get("/api/v1/plugins").await?;
    let fresh = listed(&app, &plugins).await;
    Ok(pieces(
        html! { (piece(Swap::Outer, "plugins", &fresh)) (toast("Loaded again")) },
    ))
}

async fn ask_back(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let form = back_form(&app, &name, "", None).await?;
    Ok(sheet(&request, Nav::Plugins, "Put a build back", &form))
}

async fn back_form(
    app: &PageState,
    name: &str,
    chosen: &str,
    problem: Option<&ApiProblem>,
) -> Result<Markup, ApiProblem> {
    let history: PluginHistoryInfo = app
        .api
        .get(&format!("{}?plugin={}", at("history", ""), segment(name)))
        .await?;
    let builds = history
        .changes
        .iter()
        .flat_map(|change| [&change.from, &change.to]);
    let mut versions: Vec<&str> = builds
        .flatten()
        .map(|build| build.version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let first = (String::new(), "What the last change took away".to_owned());
    let named = versions
        .into_iter()
        .map(|version| (version.to_owned(), version.to_owned()));
    let all: Vec<(String, String)> = std::iter::once(first).chain(named).collect();
    Ok(html! {
        form #plugin-rollback-form method="post" action={ "/plugins/of/" (segment(name)) "/rollback" } data-swap {
            (form_error(problem.map(|problem| problem.detail.as_str())))
            p { "A build of " strong { (name) } " that was installed before takes the place of the one that is there. Sessions move to it between two steps." }
            (crate::forms::Field::new("plugin-version", "version", "Version").select(chosen, &all))
            (crate::plugin_add::allowed(problem))
            div.row { button.primary #plugin-rollback-yes { "Put back" } }
        }
    })
}

async fn put_back(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: Sent,
) -> Result<Response, PageFailure> {
    let mut wish = Map::new();
    wish.insert("yes".to_owned(), sent.has("yes").into());
    let version = sent.text("version");
    if !version.is_empty() {
        wish.insert("version".to_owned(), version.clone().into());
    }
    let wish = Value::Object(wish);
    match app
        .api
        .send::<Value>(Method::POST, &at(&name, "/rollback"), &wish)
        .await
    {
        Ok(_) => Ok(go_to(&request, "/plugins")),
        Err(problem) => {
            let form = back_form(&app, &name, &version, Some(&problem)).await?;
            Ok(refused(&request, Nav::Plugins, "Put a build back", &form))
        }
    }
}

fn question(name: &str, error: Option<&str>, request: &PageRequest) -> Response {
    Confirmation {
        title: "Remove plugin",
        words: html! {
            p { "Remove the plugin " strong { (name) } "? Sessions lose its tools. It is kept and can be put back." }
        },
        action: format!("/plugins/of/{}/remove", segment(name)),
        button: "Remove",
        id: "plugin-remove-yes",
        error,
    }
    .ask(request, Nav::Plugins)
}

async fn ask_remove(Path(name): Path<String>, request: PageRequest) -> Response {
    question(&name, None, &request)
}

async fn remove(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Response {
    match app.api.bare::<Value>(Method::DELETE, &at(&name, "")).await {
        Ok(_) => go_to(&request, "/plugins"),
        Err(problem) => question(&name, Some(&problem.detail), &request),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn permissions_are_said_in_words() {
        let permissions = json!({ "http": ["a.example", "*.b.example"], "sample": true, "network": false, "read": [] });
        let lines = asked(permissions.as_object().unwrap());
        assert_eq!(
            lines,
            [
                "Reach the hosts: a.example, *.b.example",
                "Ask the session’s model"
            ]
        );
    }
}
