//! The plugins of the host.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::operations::{Operations, routes};
use super::state::App;
use conjure_plugins::LoadedPlugin;
use conjure_runtime::describe::{failed_json, loaded_json};

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .merge(super::installed_plugins::router())
        .merge(super::plugin_events::router())
}

/// The plugins at this moment.
#[derive(Debug, Serialize, ToSchema)]
struct Plugins {
    /// Number that grows with every change.
    generation: u64,
    /// Loaded plugins: `name`, `version`, `kind`, `description`, `state`, `tools` and where they come
    /// from.
    #[schema(value_type = Vec<Object>)]
    plugins: Vec<Value>,
    /// Files that are not loaded, each with its `reason`.
    #[schema(value_type = Vec<Object>)]
    failed: Vec<Value>,
}

/// A loaded plugin with what runs of it now.
fn running_json(plugin: &LoadedPlugin) -> Value {
    let mut shown = loaded_json(plugin);
    if let Some(members) = shown.as_object_mut() {
        members.insert("instances".to_owned(), plugin.instances().into());
        members.insert("worker_pids".to_owned(), plugin.worker_pids().into());
    }
    shown
}

/// List the plugins, those that failed among them
#[utoipa::path(get, path = "/api/v1/plugins", operation_id = "list_plugins", tag = "plugins",
    responses((status = 200, description = "All of them", body = Plugins)))]
async fn list(State(app): State<App>) -> Json<Plugins> {
    let snapshot = app.host.registry().snapshot();
    Json(Plugins {
        generation: snapshot.generation,
        plugins: snapshot.plugins().iter().map(|p| running_json(p)).collect(),
        failed: snapshot.failed().iter().map(failed_json).collect(),
    })
}
