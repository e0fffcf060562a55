//! The routing table of a session: what each tool leads to and costs, what is kept out and why, and
//! what waits for approval. Stays up to date when plugins come and go, and when a tool is held or
//! approved, wherever that is.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use conjure_core::foreign_text::clean;
use conjure_runtime::manager::SessionChangeStream;
use futures_util::stream;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use crate::PageState;
use crate::backend_states::{
    self, BackendInfo, CallSums, PluginHealthInfo, RoutedCalls, calls_in_short,
};
use crate::client::ApiProblem;
use crate::failure::PageFailure;
use crate::held_tools::{HeldToolInfo, HeldToolWatch, ToolDefinitionInfo, held_mark};
use crate::layout::{Nav, PageFrame, layout};
use crate::live::live;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces, toast};
use crate::saved::{FormData, SessionInfo, session};

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/sessions/{session}/routes", get(show))
        .route("/sessions/{session}/routes/live", get(follow))
        .route("/sessions/{session}/routes/approve", post(approve))
}

/// The tools of a session's next request.
#[derive(Deserialize)]
struct RoutingTableInfo {
    version: u64,
    routes: Vec<RouteInfo>,
    shadowed: Vec<ExcludedToolInfo>,
    quarantined: Vec<ExcludedToolInfo>,
    server_tools: Vec<ServerToolInfo>,
    left_out: Vec<ExcludedToolInfo>,
    failed_backends: Vec<FailedBackendInfo>,
    #[serde(default)]
    backends: Vec<BackendInfo>,
}

#[derive(Deserialize)]
struct RouteInfo {
    name: String,
    backend: String,
    kind: String,
    /// The server or the skill behind it.
    skill: Option<String>,
    plugin: Option<String>,
    version: Option<String>,
    mode: String,
    effects: String,
    schema_tokens: u64,
    description: String,
    input_schema: Value,
}

#[derive(Deserialize)]
struct ExcludedToolInfo {
    name: String,
    #[serde(default)]
    source: String,
    reason: String,
}

#[derive(Deserialize)]
struct ServerToolInfo {
    name: String,
    backend: String,
}

#[derive(Deserialize)]
struct FailedBackendInfo {
    backend: String,
    reason: String,
}

/// The plugins, as far as it is said how they are.
#[derive(Deserialize)]
struct PluginHealthsInfo {
    plugins: Vec<PluginHealthInfo>,
}

/// How calls of a public name went lately, in all sessions.
#[derive(Deserialize)]
struct ToolCallsInfo {
    name: String,
    #[serde(flatten)]
    sums: CallSums,
}

async fn show(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let session = session(&app.api, &name).await?;
    let generation = *app.manager.host().registry().subscribe().borrow();
    let held = app.held_tools.list().await;
    // What could not be read is news to the page when it can.
    let mark = held.as_deref().map_or(0, held_mark);
    let title = format!("Routes of {}", session.shown_name());
    let body = html! {
        header."row spread" {
            h1 { (title) }
            div.row {
                a.button #routes-session href=(session.url()) { "To the session" }
                a.button #routes-config href={ (session.url()) "/config" } data-dialog { "Config" }
            }
        }
        div data-stream={ (session.url()) "/routes/live?generation=" (generation) "&settings=" (session.updated_at_ms) "&held=" (mark) } {
            (table(&app, &session, &held).await)
        }
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Sessions, &title),
        &body,
    ))
}

/// Everything that changes: the table, and what is not in it.
async fn table(
    app: &PageState,
    session: &SessionInfo,
    held: &Result<Vec<HeldToolInfo>, ApiProblem>,
) -> Markup {
    let table = app
        .api
        .get::<RoutingTableInfo>(&format!("{}/tools", session.api()))
        .await;
    let calls = recent_calls(app).await;
    let plugins = app.api.get::<PluginHealthsInfo>("/api/v1/plugins").await;
    let plugins = plugins.map(|all| all.plugins).unwrap_or_default();
    html! {
        div #routes {
            @match &table {
                Ok(table) => {
                    (routes_table(table, &calls))
                    (backends(table, &calls, &plugins, &session.url()))
                },
                Err(problem) => { p.form-error role="alert" { (problem.detail) } }
            }
            (held_section(held, &session.url()))
        }
    }
}

/// How the backends of the table are.
fn backends(
    table: &RoutingTableInfo,
    calls: &HashMap<String, ToolCallsInfo>,
    plugins: &[PluginHealthInfo],
    session_url: &str,
) -> Markup {
    let mut routed = RoutedCalls::default();
    for route in &table.routes {
        let sums = calls.get(&route.name).map(|calls| calls.sums);
        let sums = sums.unwrap_or_default();
        let of_backend = routed.backends.entry(route.backend.clone());
        of_backend.or_default().add(sums);
        if let Some(skill) = &route.skill {
            let of_server = (route.backend.clone(), skill.clone());
            routed.servers.entry(of_server).or_default().add(sums);
        }
        if let (Some(plugin), Some(version)) = (&route.plugin, &route.version) {
            let all = routed.plugins.entry(route.backend.clone()).or_default();
            let plugin = format!("{plugin} {version}");
            if !all.contains(&plugin) {
                all.push(plugin);
            }
        }
    }
    for backend in &table.backends {
        // It is named with the backend.
        let own = backend.plugin().map(str::to_owned);
        if let Some(all) = routed.plugins.get_mut(backend.name()) {
            all.retain(|plugin| own.as_ref() != Some(plugin));
        }
    }
    let failed: Vec<(&str, &str)> = table
        .failed_backends
        .iter()
        .map(|failed| (failed.backend.as_str(), failed.reason.as_str()))
        .collect();
    backend_states::backend_list(&table.backends, &failed, &routed, plugins, session_url)
}

/// What is held, where anything is, or why nobody knows.
fn held_section(held: &Result<Vec<HeldToolInfo>, ApiProblem>, session_url: &str) -> Markup {
    html! {
        @match held {
            Ok(held) if held.is_empty() => {}
            Ok(held) => (held_list(held, session_url)),
            Err(problem) => {
                p.form-error role="alert" { "Which tools are held could not be read: " (problem.detail) }
            }
        }
    }
}

async fn recent_calls(app: &PageState) -> HashMap<String, ToolCallsInfo> {
    #[derive(Deserialize)]
    struct RecentUsageInfo {
        tools: Vec<ToolCallsInfo>,
    }
    let usage = app.api.get::<RecentUsageInfo>("/api/v1/usage?days=7").await;
    let tools = usage.map(|usage| usage.tools).unwrap_or_default();
    tools
        .into_iter()
        .map(|tool| (tool.name.clone(), tool))
        .collect()
}

fn routes_table(table: &RoutingTableInfo, calls: &HashMap<String, ToolCallsInfo>) -> Markup {
    let tokens: u64 = table.routes.iter().map(|route| route.schema_tokens).sum();
    let count = table.routes.len();
    html! {
        p #routes-summary {
            (count) @if count == 1 { " tool" } @else { " tools" }
            ", about " (tokens) " tokens in every request. Table version " (table.version) ". Calls are counted over all sessions."
        }
        @if count > 0 {
            section.scroll tabindex="0" aria-label="Routing table" {
                table.table #routes-table {
                    thead { tr {
                        th scope="col" { "Public name" } th scope="col" { "Backend" } th scope="col" { "Plugin" }
                        th scope="col" { "Mode" } th.number scope="col" { "Tokens" }
                        th scope="col" { "Last 7 days" } th scope="col" { "Definition" }
                    } }
                    tbody { @for route in &table.routes { (row(route, calls.get(&route.name))) } }
                }
            }
        }
        @for tool in &table.server_tools {
            p { code { (tool.name) } " runs at the provider, through the backend " (tool.backend) "." }
        }
        (excluded_tools("Shadowed", "routes-shadowed", "Another tool is routed in their place.", &table.shadowed))
        (excluded_tools("Quarantined", "routes-quarantined", "The table would be wrong with them.", &table.quarantined))
        (excluded_tools("Not sent", "routes-left-out", "The provider of this session does not take them.", &table.left_out))
    }
}

/// A schema as a person reads it.
fn schema_text(schema: &Value) -> String {
    clean(&serde_json::to_string_pretty(schema).unwrap_or_default()).into_owned()
}

fn row(route: &RouteInfo, calls: Option<&ToolCallsInfo>) -> Markup {
    let schema = schema_text(&route.input_schema);
    html! {
        tr id={ "route-" (route.name) } {
            th scope="row" { code { (route.name) } }
            td { (route.backend) @if route.kind != route.backend { " " span.muted { "(" (route.kind) ")" } } }
            td {
                @match (&route.plugin, &route.version) {
                    (Some(plugin), Some(version)) => { (plugin) " " span.muted { (version) } },
                    (Some(plugin), None) => (plugin),
                    _ => "–",
                }
            }
            td { (route.mode) ", " (route.effects) }
            td.number { (route.schema_tokens) }
            td {
                (calls_in_short(calls.map(|calls| calls.sums).unwrap_or_default()))
            }
            td {
                details id={ "route-more-" (route.name) } {
                    summary id={ "route-show-" (route.name) } { "Show" }
                    p.said { (clean(&route.description)) }
                    pre { (schema) }
                }
            }
        }
    }
}

fn excluded_tools(title: &str, id: &str, words: &str, tools: &[ExcludedToolInfo]) -> Markup {
    html! {
        @if !tools.is_empty() {
            section aria-labelledby=(id) {
                h2 id=(id) { (title) }
                p.muted { (words) }
                ul {
                    @for tool in tools {
                        li {
                            code { (tool.name) }
                            @if !tool.source.is_empty() { " " span.muted { "(" (clean(&tool.source)) ")" } }
                            ": " (clean(&tool.reason))
                        }
                    }
                }
            }
        }
    }
}

/// What is held until somebody approves it.
fn held_list(held: &[HeldToolInfo], session_url: &str) -> Markup {
    html! {
        section aria-labelledby="routes-held" {
            h2 #routes-held { "Held" }
            p.muted { "Their definitions are other ones than somebody approved. No session offers them until they are approved again." }
            @for (at, one) in held.iter().enumerate() {
                @let server = one.server.as_deref().unwrap_or(&one.backend);
                @let tool = one.tool.as_deref().unwrap_or("what the server says about its use");
                article.card id={ "held-" (at) } {
                    h3 { (clean(server)) ": " code { (clean(tool)) } }
                    ul { @for change in &one.changed { li { (clean(change)) } } }
                    div.columns {
                        (definition("Approved", &one.approved))
                        (definition("Now", &one.now))
                    }
                    form method="post" action={ (session_url) "/routes/approve" } data-swap {
                        input type="hidden" name="digest" value=(one.digest);
                        button.primary id={ "held-approve-" (at) } aria-label={ "Approve " (clean(tool)) " of " (clean(server)) } { "Approve" }
                    }
                }
            }
        }
    }
}

fn definition(title: &str, definition: &ToolDefinitionInfo) -> Markup {
    let schema = schema_text(&definition.input_schema);
    html! {
        div { h4 { (title) } p.said { (clean(&definition.description)) } pre { (schema) } }
    }
}

async fn approve(
    State(app): State<PageState>,
    Path(name): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let session = session(&app.api, &name).await?;
    let body = json!({ "digests": [sent.text("digest")] });
    app.api
        .send::<Value>(Method::POST, "/api/v1/held-tools/approve", &body)
        .await?;
    if request.pieces {
        let fresh = table(&app, &session, &app.held_tools.list().await).await;
        return Ok(pieces(
            html! { (piece(Swap::Outer, "routes", &fresh)) (toast("Approved")) },
        ));
    }
    Ok(go_to(&request, &format!("{}/routes", session.url())))
}

/// What the page shows already.
#[derive(Deserialize)]
struct RoutesStreamQuery {
    /// The plugins, by their registry's generation.
    #[serde(default)]
    generation: u64,
    /// The session's settings, by when they were changed.
    #[serde(default)]
    settings: i64,
    /// What is held: see [`held_mark`].
    #[serde(default)]
    held: u64,
}

/// For how long changes are gathered: a turn that begins or ends is several.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// For how long a stream waits for others that make tables, which a backend may hold up.
const REDRAW_WAIT: Duration = Duration::from_millis(300);

/// Makes a table in its turn. Where that does not come in time, it is made all the same.
async fn with_redraw_permit<T>(redraws: &Semaphore, made: impl Future<Output = T>) -> T {
    let _turn = timeout_at(Instant::now() + REDRAW_WAIT, redraws.acquire()).await;
    made.await
}

/// What a stream of a session's routes knows.
struct RoutesStream {
    app: PageState,
    session: SessionInfo,
    generations: watch::Receiver<u64>,
    changes: SessionChangeStream,
    held: HeldToolWatch,
    /// What the page shows is another one already.
    is_due: bool,
}

impl RoutesStream {
    /// The table when it may be another one next; nothing at the end.
    async fn next(&mut self) -> Option<Markup> {
        if !std::mem::take(&mut self.is_due) {
            self.wait_for_change().await?;
            let until = Instant::now() + GATHER_TIME;
            while let Ok(more) = timeout_at(until, self.wait_for_change()).await {
                more?;
            }
        }
        // A tool that is held or approved is news to every page at the same moment.
        let made = Box::pin(async {
            let held = self.app.held_tools.list().await;
            table(&self.app, &self.session, &held).await
        });
        let fresh = with_redraw_permit(&self.app.redraws, made).await;
        Some(piece(Swap::Outer, "routes", &fresh))
    }

    /// Waits until a plugin comes or goes, something of the session changes, such as its settings, or
    /// other tools are held.
    async fn wait_for_change(&mut self) -> Option<()> {
        tokio::select! {
            () = self.changes.of(&self.session.id) => Some(()),
            changed = self.generations.changed() => changed.ok(),
            () = self.held.wait_for_change() => Some(()),
        }
    }
}

async fn follow(
    State(app): State<PageState>,
    Path(name): Path<String>,
    Query(shown): Query<RoutesStreamQuery>,
    request: Request,
) -> Result<Response, PageFailure> {
    let mut generations = app.manager.host().registry().subscribe();
    // Before the session is read, so that no change falls between.
    let mut changes = app.manager.changes();
    changes.ready().await;
    let session = session(&app.api, &name).await?;
    let generation = *generations.borrow_and_update();
    let following = RoutesStream {
        is_due: generation != shown.generation || session.updated_at_ms != shown.settings,
        held: app.held_tools.follow(shown.held),
        app: app.clone(),
        session,
        generations,
        changes,
    };
    let pieces = stream::unfold(following, |mut following| async move {
        let next = following.next().await?;
        Some((next, following))
    });
    Ok(live(&app, request.extensions(), pieces))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::saved::invalid;

    #[tokio::test(start_paused = true)]
    async fn a_table_that_is_never_made_holds_up_no_other() {
        let redraws = Semaphore::new(1);
        let mut never_made = pin!(with_redraw_permit(&redraws, std::future::pending::<()>()));
        assert!(never_made.as_mut().now_or_never().is_none());
        // It has the only turn.
        assert_eq!(redraws.available_permits(), 0);
        let mut waits = pin!(with_redraw_permit(&redraws, async { "made" }));
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(waits.await, "made");
    }

    #[test]
    fn held_tools_that_cannot_be_read_are_not_none() {
        let broken = held_section(&Err(invalid("the disk is full")), "/sessions/a").into_string();
        assert!(broken.contains("form-error"), "{broken}");
        assert!(broken.contains("the disk is full"), "{broken}");
        assert_eq!(
            held_section(&Ok(Vec::new()), "/sessions/a").into_string(),
            ""
        );
    }
}
