//! MCP servers that sessions choose from, in the shape of the session file.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::extract::{Id, JsonBody, Params, PathParams, shown_name};
use super::operations::{Operations, routes};
use super::pages::{Page, Paging};
use super::problem::Problem;
use super::state::App;
use super::versions::{IfMatch, Tagged, VersionCondition};
use conjure_config::BackendSpec;
use conjure_config::mcp_settings::check_server;
use conjure_runtime::mcp_status::{KIND, start_all};

/// The most characters of a name.
pub(super) const MAX_NAME_CHARS: usize = 100;
/// The longest that a server is tried.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list, create))
        .routes(routes!(get, change, remove))
        .routes(routes!(test))
}

/// An MCP server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = McpServer)]
pub(super) struct McpServerView {
    pub(super) id: String,
    name: String,
    /// Settings of the server, as below `backend.config.servers` in a session file. Secrets are named
    /// there (`{"secret": "MCP_…"}`) and saved as auths of the provider `mcp`.
    #[schema(value_type = Object)]
    settings: Value,
    /// Whether sessions may choose the server.
    enabled: bool,
    created_at_ms: i64,
    updated_at_ms: i64,
}

impl From<conjure_store::McpServer> for McpServerView {
    fn from(server: conjure_store::McpServer) -> Self {
        Self {
            id: server.id,
            name: server.name,
            settings: server.settings.0,
            enabled: server.enabled,
            created_at_ms: server.created_at_ms,
            updated_at_ms: server.updated_at_ms,
        }
    }
}

/// An MCP server that is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMcpServer {
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// Settings of the server: `command` with `args` and `env`, or `url` with `headers`. What is typed
    /// into `env`, `headers` and `oauth.client_secret`, and what looks like a secret elsewhere, is
    /// sealed and named from then on.
    #[schema(value_type = Object)]
    settings: Map<String, Value>,
    /// Whether sessions may choose the server; true when absent.
    enabled: Option<bool>,
}

/// What is to be changed; the rest stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangeMcpServer {
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    #[schema(value_type = Option<Object>)]
    settings: Option<Map<String, Value>>,
    enabled: Option<bool>,
}

/// How an MCP server is when it is started.
#[derive(Debug, Serialize, ToSchema)]
struct McpServerTest {
    works: bool,
    /// Such as `ready`, `needs_auth`, `backoff`, `failed`.
    state: String,
    /// Why it does not work, and what to do.
    why: Option<String>,
    /// How many tools it offers.
    tools: Option<u64>,
    /// All that is known: protocol, program, the last lines of its standard error, and more.
    #[schema(value_type = Object)]
    status: Value,
}

/// List MCP servers, the oldest first
#[utoipa::path(get, path = "/api/v1/mcp-servers", operation_id = "list_mcp_servers",
    tag = "mcp-servers", params(Paging),
    responses((status = 200, description = "A page", body = Page<McpServerView>)))]
async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<McpServerView>>, Problem> {
    let limit = paging.limit()?;
    let after = paging.after()?;
    let found = app.store.mcp_servers(after.as_deref(), limit + 1).await?;
    let servers = found.into_iter().map(McpServerView::from).collect();
    Ok(Json(Page::from_items(
        servers,
        limit,
        |one: &McpServerView| &one.id,
    )))
}

/// Save an MCP server
#[utoipa::path(post, path = "/api/v1/mcp-servers", operation_id = "create_mcp_server",
    tag = "mcp-servers", request_body = NewMcpServer,
    responses((status = 201, description = "It is saved", body = McpServerView,
            headers(("Location" = String, description = "Its address"))),
        (status = 409, description = "The name is taken")))]
async fn create(
    State(app): State<App>,
    JsonBody(body): JsonBody<NewMcpServer>,
) -> Result<Response, Problem> {
    let name = shown_name("name", &body.name, MAX_NAME_CHARS)?;
    let mut settings = check_settings(body.settings)?;
    let secrets = app.auths.seal_typed(name, &mut settings, &[]).await?;
    let server = conjure_store::McpServer::new(name, settings, body.enabled.unwrap_or(true));
    let server = match app.store.create_mcp_server(server).await {
        Ok(server) => server,
        Err(error) => {
            app.auths.forget_unless_saved(&secrets, &error).await;
            return Err(error.into());
        }
    };
    let at = [(
        header::LOCATION,
        format!("/api/v1/mcp-servers/{}", server.id),
    )];
    Ok((StatusCode::CREATED, at, tagged_view(server)).into_response())
}

/// Show an MCP server
#[utoipa::path(get, path = "/api/v1/mcp-servers/{server}", operation_id = "get_mcp_server",
    tag = "mcp-servers", params(("server" = String, Path, description = "Its id")),
    responses((status = 200, description = "It", body = McpServerView,
        headers(("ETag" = String, description = "Which version of it this is")))))]
async fn get(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Response, Problem> {
    Ok(tagged_view(app.store.mcp_server(&id).await?).into_response())
}

/// Change an MCP server, or switch it on or off; sessions keep the copy that they have
#[utoipa::path(patch, path = "/api/v1/mcp-servers/{server}", operation_id = "change_mcp_server",
    tag = "mcp-servers", params(("server" = String, Path, description = "Its id"), IfMatch),
    request_body = ChangeMcpServer,
    responses((status = 200, description = "As it is now", body = McpServerView,
            headers(("ETag" = String, description = "Which version of it this is"))),
        (status = 409, description = "The name is taken"),
        (status = 412, description = "It is another version than the one of `If-Match`")))]
async fn change(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    wanted: VersionCondition,
    JsonBody(body): JsonBody<ChangeMcpServer>,
) -> Result<Response, Problem> {
    let mut server = app.store.mcp_server(&id).await?;
    wanted.check(server.updated_at_ms)?;
    // The name that it has already may be from before there was this rule.
    if let Some(name) = body.name.filter(|name| *name != server.name) {
        server.name = shown_name("name", &name, MAX_NAME_CHARS)?.to_owned();
    }
    let mut secrets = Vec::new();
    if let Some(settings) = body.settings {
        let mut settings = check_settings(settings)?;
        let before = [&server.settings.0];
        let sealed = app.auths.seal_typed(&server.name, &mut settings, &before);
        secrets = sealed.await?;
        server.settings = conjure_store::JsonText(settings);
    }
    server.enabled = body.enabled.unwrap_or(server.enabled);
    match app.store.update_mcp_server(server).await {
        Ok(server) => Ok(tagged_view(server).into_response()),
        Err(error) => {
            app.auths.forget_unless_saved(&secrets, &error).await;
            Err(wanted.explain_conflict(error.into()))
        }
    }
}

/// Remove an MCP server; sessions keep the copy that they have
#[utoipa::path(delete, path = "/api/v1/mcp-servers/{server}", operation_id = "delete_mcp_server",
    tag = "mcp-servers", params(("server" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is removed")))]
async fn remove(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<StatusCode, Problem> {
    app.store.delete_mcp_server(&id).await?;
    app.logins.forget(&id);
    Ok(StatusCode::NO_CONTENT)
}

/// Start an MCP server, say how it is, and end it
#[utoipa::path(post, path = "/api/v1/mcp-servers/{server}/test", operation_id = "test_mcp_server",
    tag = "mcp-servers", params(("server" = String, Path, description = "Its id")),
    responses((status = 200, description = "How it is", body = McpServerTest),
        (status = 409, description = "The plugin for MCP servers is not loaded")))]
async fn test(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<McpServerTest>, Problem> {
    let mut servers = enabled_settings(app.store.mcp_server(&id).await?);
    let limit = start_all(&mut servers).min(TRIAL_TIMEOUT);
    let backend = BackendSpec {
        kind: KIND.to_owned(),
        config: Some(json!({ "servers": servers })),
        ..BackendSpec::default()
    };
    let _trial = app.trial_permit().await?;
    let statuses = app.host.mcp_status(&backend, None, limit).await?;
    let status = statuses.into_iter().next().unwrap_or_default();
    let text = |name: &str| status.get(name).and_then(Value::as_str).map(str::to_owned);
    let state = text("state").unwrap_or_else(|| "failed".to_owned());
    Ok(Json(McpServerTest {
        works: state == "ready" && text("list_error").is_none(),
        state,
        why: text("why").or_else(|| text("list_error")),
        tools: status.get("tools").and_then(Value::as_u64),
        status,
    }))
}

/// The servers of a backend that has this one, switched on: whether sessions may choose it is
/// another matter.
pub(super) fn enabled_settings(server: conjure_store::McpServer) -> Map<String, Value> {
    let mut settings = server.settings.0;
    if let Some(settings) = settings.as_object_mut() {
        settings.remove("enabled");
    }
    Map::from_iter([(server.name, settings)])
}

/// A server with its version.
fn tagged_view(server: conjure_store::McpServer) -> Tagged<McpServerView> {
    Tagged(server.updated_at_ms, server.into())
}

/// Settings of the right types, which name a program or an address. The plugin looks at the rest
/// when it starts the server.
fn check_settings(settings: Map<String, Value>) -> Result<Value, Problem> {
    let settings = Value::Object(settings);
    check_server(&settings).map_err(|unfit| unfit.below("settings"))?;
    Ok(settings)
}
