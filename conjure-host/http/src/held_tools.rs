//! Tools that changed since they were approved: what is held, and its approval.

use std::io;

use axum::Json;
use axum::extract::State;
use conjure_runtime::backend;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::extract::JsonBody;
use super::operations::{Operations, routes};
use super::pages::Page;
use super::problem::Problem;
use super::state::App;
use super::transfer::blocking;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .routes(routes!(approve))
}

/// A tool that is held, since its definition is another one than somebody approved.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldTool)]
struct HeldToolView {
    /// Digest that the definition is approved by: another definition has another one.
    digest: String,
    /// The kind of the backend that offers it, such as `mcp`.
    backend: String,
    /// The server, where the backend has several.
    server: Option<String>,
    /// Own name of the tool; null for what the server says about its use, which is held as a tool is.
    tool: Option<String>,
    /// Differences from the approved definition, in words.
    changed: Vec<String>,
    approved: ToolDefinitionView,
    now: ToolDefinitionView,
}

/// What a model and a person go by when they let a tool run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolDefinition)]
struct ToolDefinitionView {
    title: Option<String>,
    /// What the model is told about it.
    description: String,
    /// JSON Schema of its arguments.
    #[schema(value_type = Object)]
    input_schema: Value,
    /// JSON Schema of its structured result.
    #[schema(value_type = Option<Object>)]
    output_schema: Option<Value>,
    /// What it changes: `read`, `write` or `destructive`.
    #[schema(value_type = String)]
    effects: Value,
    /// What it says of itself, such as MCP's annotations.
    #[schema(value_type = Option<Object>)]
    annotations: Option<Value>,
    /// The further members that its MCP server gives it and MCP clients are served, as JSON; of many
    /// their digest. Null where it was approved before these were compared.
    further: Option<String>,
}

/// What is approved.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApproveTools {
    /// The digests of what is approved, as the list has them: just what was seen there.
    #[schema(min_items = 1)]
    digests: Vec<String>,
}

impl From<backend::HeldTool> for HeldToolView {
    fn from(held: backend::HeldTool) -> Self {
        Self {
            digest: held.digest,
            backend: held.backend,
            server: held.server,
            tool: held.tool,
            changed: held.changed,
            approved: held.approved.into(),
            now: held.now.into(),
        }
    }
}

impl From<backend::KnownDefinition> for ToolDefinitionView {
    fn from(definition: backend::KnownDefinition) -> Self {
        Self {
            title: definition.title,
            description: definition.description,
            input_schema: definition.input_schema,
            output_schema: definition.output_schema,
            effects: serde_json::to_value(definition.effects).unwrap_or_default(),
            annotations: definition.annotations,
            further: definition.further,
        }
    }
}

/// List the tools that are held
///
/// A tool of an MCP server, or of another backend whose tools come from outside, is held when its
/// description, schema, annotations or name is another one than it was when somebody approved it, or
/// when the server was first used: no session offers it until it is approved.
#[utoipa::path(get, path = "/api/v1/held-tools", operation_id = "list_held_tools",
    tag = "mcp-servers",
    responses((status = 200, description = "All of them", body = Page<HeldToolView>)))]
async fn list(State(app): State<App>) -> Result<Json<Page<HeldToolView>>, Problem> {
    let approved = app.host.approved_tools().clone();
    let held = blocking(move || approved.held_tools()).await?;
    page(held)
}

/// Approve tools that are held
///
/// Sessions that run offer them from their next step on.
#[utoipa::path(post, path = "/api/v1/held-tools/approve", operation_id = "approve_held_tools",
    tag = "mcp-servers", request_body = ApproveTools,
    responses((status = 200, description = "What is approved", body = Page<HeldToolView>),
        (status = 404, description = "No such tool is held")))]
async fn approve(
    State(app): State<App>,
    JsonBody(body): JsonBody<ApproveTools>,
) -> Result<Json<Page<HeldToolView>>, Problem> {
    let approved = app.host.approved_tools().clone();
    let done = blocking(move || approved.approve(&body.digests)).await?;
    if done.as_ref().is_ok_and(Vec::is_empty) {
        return Err(Problem::not_found(
            "nothing with such a digest is held; `GET /api/v1/held-tools` lists what is",
        ));
    }
    page(done)
}

fn page(held: io::Result<Vec<backend::HeldTool>>) -> Result<Json<Page<HeldToolView>>, Problem> {
    let held = held.map_err(|error| Problem::host(error.to_string()))?;
    Ok(Json(Page {
        items: held.into_iter().map(HeldToolView::from).collect(),
        next: None,
    }))
}
