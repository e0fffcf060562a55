//! What becomes of the plugins, as it happens.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event as Sent;
use conjure_plugins::{PluginId, RegistryChange, RegistryEvent};
use futures_util::stream;
use serde_json::{Value, json};

use super::events::{Streamed, event_stream};
use super::middleware::ClientName;
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;

pub(super) fn router() -> Operations {
    Operations::new().routes(routes!(follow))
}

/// Follow the plugins
///
/// Server-sent events of the kinds `added`, `replaced`, `reloaded` (the very build, again),
/// `removed`, `failed` and `missed`, each with the `generation` that it led to. It begins with
/// `missed`: the list of plugins is to be read anew, as whenever it comes.
#[utoipa::path(get, path = "/api/v1/plugins/events", operation_id = "follow_plugins",
    tag = "plugins", responses((status = 200, description = "The stream", body = Streamed,
        content_type = "text/event-stream")))]
async fn follow(
    State(app): State<App>,
    Extension(client): Extension<ClientName>,
) -> Result<Response, Problem> {
    let following = app.streams.follow(&client)?;
    let generations = app.host.registry().subscribe();
    let seen = *generations.borrow();
    let begin = vec![sse_event("missed", seen, json!({}))];
    Ok(event_stream(stream::unfold(
        (begin, generations, seen, app, following),
        |(mut waiting, mut generations, mut seen, app, following)| async move {
            while waiting.is_empty() {
                tokio::select! {
                    biased;
                    () = app.shutdown.cancelled() => return None,
                    changed = generations.changed() => changed.ok()?,
                }
                let snapshot = app.host.registry().snapshot();
                let mut changes: Vec<_> = snapshot.changes_since(seen).collect();
                changes.reverse();
                waiting = changes.into_iter().map(event).collect();
                if !snapshot.is_complete_since(seen) {
                    waiting = vec![sse_event("missed", snapshot.generation, json!({}))];
                }
                seen = snapshot.generation;
            }
            let next = waiting.pop()?;
            Some((Ok(next), (waiting, generations, seen, app, following)))
        },
    )))
}

fn event(change: &RegistryChange) -> Sent {
    let named = |id: &PluginId| json!({ "plugin": &*id.name, "version": id.version.to_string() });
    let (kind, said) = match &change.event {
        RegistryEvent::Added(id) => ("added", named(id)),
        RegistryEvent::Replaced { old, new } => {
            let mut said = named(new);
            if let Value::Object(said) = &mut said {
                said.insert("from".to_owned(), named(old));
            }
            ("replaced", said)
        }
        RegistryEvent::Reloaded(id) => ("reloaded", named(id)),
        RegistryEvent::Removed(id) => ("removed", named(id)),
        RegistryEvent::Failed {
            path,
            reason,
            still_loaded: kept,
        } => (
            "failed",
            json!({
                "file": path,
                "reason": reason.to_string(),
                "kept": kept.as_ref().map(ToString::to_string),
            }),
        ),
    };
    sse_event(kind, change.generation, said)
}

fn sse_event(kind: &str, generation: u64, mut said: Value) -> Sent {
    if let Value::Object(said) = &mut said {
        said.insert("generation".to_owned(), generation.into());
    }
    Sent::default().event(kind).data(said.to_string())
}
