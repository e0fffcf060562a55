//! The plugins: loaded, in which process and how many use them, failed, held, with what each may do;
//! upgraded, put back, loaded again and removed. One is `plugin_card.rs`, adding one `plugin_add.rs`.

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
use tokio::sync::watch;

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::form_error;
use crate::held_tools::{HeldToolInfo, HeldToolWatch, held_mark};
use crate::layout::{Nav, PageFrame, layout};
use crate::live::live;
use crate::plugin_card::{PluginHeldTools, PluginInfo, card, is_of};
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces, toast};
use crate::saved::FormData;
use crate::sheet::{Confirmation, refused_sheet, sheet};
use crate::timestamps::time;

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/plugins", get(show))
        .route("/plugins/live", get(follow))
        .route("/plugins/of/{plugin}/reload", post(reload))
        .route(
            "/plugins/of/{plugin}/rollback",
            get(rollback_dialog).post(roll_back),
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
    let held = app.held_tools.list().await;
    // What could not be read is news to the page when it can.
    let mark = held.as_deref().map_or(0, held_mark);
    let body = html! {
        header."row spread" {
            h1 { "Plugins" }
            div.row {
                // Workers and instances come and go without an event.
                a.button #plugins-look href="/plugins" { "Look again" }
                a.button.primary #plugin-new href="/plugins/new" data-dialog { "Add plugin" }
            }
        }
        div data-stream={ "/plugins/live?generation=" (plugins.generation) "&held=" (mark) } {
            (plugin_list(&app, &plugins, &held).await)
        }
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Plugins, "Plugins"),
        &body,
    ))
}

/// Everything that changes.
async fn plugin_list(
    app: &PageState,
    plugins: &PluginsInfo,
    held: &Result<Vec<HeldToolInfo>, ApiProblem>,
) -> Markup {
    let history = app
        .api
        .get::<PluginHistoryInfo>("/api/v1/plugins/history")
        .await;
    let history = history.map(|history| history.changes).unwrap_or_default();
    let mut newest: BTreeMap<&str, &PluginChangeInfo> = BTreeMap::new();
    for change in &history {
        newest.insert(&change.plugin, change);
    }
    let all = held.as_deref().unwrap_or_default();
    let approving = match all.is_empty() {
        true => None,
        false => approval_url(app).await,
    };
    let held_of = |plugin: &PluginInfo| PluginHeldTools {
        tools: all.iter().filter(|tool| is_of(plugin, tool)).count(),
        approval_url: approving.as_deref(),
    };
    let is_installed = |name: &str| newest.get(name).is_some_and(|change| change.to.is_some());
    html! {
        div #plugins {
            @for failed in &plugins.failed {
                div.form-error role="alert" {
                    p { strong.break { (clean(&failed.file)) } " is not loaded: " (clean(&failed.reason)) }
                    @if let Some(kept) = &failed.kept { p { (kept) " stays in use." } }
                }
            }
            @if let Err(problem) = held {
                p.form-error role="alert" { "Which tools are held could not be read: " (problem.detail) }
            }
            ul.cards {
                @for plugin in &plugins.plugins {
                    (card(plugin, is_installed(&plugin.name), &held_of(plugin)))
                }
            }
            p.empty { "No plugin is loaded." }
            @if !history.is_empty() { (changes(&history, &newest)) }
        }
    }
}

/// Where tools are approved that are held: in the session that was used last.
async fn approval_url(app: &PageState) -> Option<String> {
    let newest = app.manager.recent("", None, 1).await.ok()?;
    let (session, _) = newest.first()?;
    Some(format!(
        "/sessions/{}/routes#routes-held",
        segment(&session.id)
    ))
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
    /// What is held: see [`held_mark`].
    #[serde(default)]
    held: u64,
}

/// What a stream of the plugins knows.
struct PluginsStream {
    app: PageState,
    generations: watch::Receiver<u64>,
    /// The generation that the page shows.
    shown_generation: u64,
    held: HeldToolWatch,
}

impl PluginsStream {
    /// The plugins when they are others, or other tools are held; nothing at the end.
    async fn next(&mut self) -> Option<Markup> {
        let (generations, seen) = (&mut self.generations, self.shown_generation);
        let generation = async move {
            let now = generations.wait_for(|now| *now != seen).await;
            now.map(|now| *now)
        };
        let generation = tokio::select! {
            generation = generation => Some(generation),
            () = self.held.wait_for_change() => None,
        };
        if let Some(generation) = generation {
            self.shown_generation = generation.ok()?;
        }
        Some(
            match self.app.api.get::<PluginsInfo>("/api/v1/plugins").await {
                Ok(plugins) => {
                    let held = self.app.held_tools.list().await;
                    let fresh = plugin_list(&self.app, &plugins, &held).await;
                    piece(Swap::Outer, "plugins", &fresh)
                }
                Err(problem) => toast(&problem.detail),
            },
        )
    }
}

async fn follow(
    State(app): State<PageState>,
    Query(shown): Query<PluginsStreamQuery>,
    request: Request,
) -> Response {
    let following = PluginsStream {
        generations: app.manager.host().registry().subscribe(),
        shown_generation: shown.generation,
        held: app.held_tools.follow(shown.held),
        app: app.clone(),
    };
    let pieces = stream::unfold(following, |mut following| async move {
        let next = following.next().await?;
        Some((next, following))
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
        .send_empty::<Value>(Method::POST, &at(&name, "/reload"))
        .await?;
    if !request.pieces {
        return Ok(go_to(&request, "/plugins"));
    }
    let plugins: PluginsInfo = app.api.get("/api/v1/plugins").await?;
    let held = app.held_tools.list().await;
    let fresh = plugin_list(&app, &plugins, &held).await;
    Ok(pieces(
        html! { (piece(Swap::Outer, "plugins", &fresh)) (toast("Loaded again")) },
    ))
}

async fn rollback_dialog(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let form = rollback_form(&app, &name, "", None).await?;
    Ok(sheet(&request, Nav::Plugins, "Put a build back", &form))
}

async fn rollback_form(
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
            (crate::plugin_add::consent_fields(problem))
            div.row { button.primary #plugin-rollback-yes { "Put back" } }
        }
    })
}

async fn roll_back(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: FormData,
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
            let form = rollback_form(&app, &name, &version, Some(&problem)).await?;
            Ok(refused_sheet(
                &request,
                Nav::Plugins,
                "Put a build back",
                &form,
            ))
        }
    }
}

fn question(name: &str, error: Option<&str>, request: &PageRequest) -> Response {
    Confirmation {
        title: "Remove plugin",
        message: html! {
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
    match app
        .api
        .send_empty::<Value>(Method::DELETE, &at(&name, ""))
        .await
    {
        Ok(_) => go_to(&request, "/plugins"),
        Err(problem) => question(&name, Some(&problem.detail), &request),
    }
}
