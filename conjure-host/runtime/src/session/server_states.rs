//! How the servers behind the backends of a session are, as the backends say themselves.

use std::sync::Arc;

use conjure_config::SessionSpec;
use conjure_plugins::LoadedPlugin;
use conjure_skill_sdk::protocol::{CatalogReply, op};
use serde_json::Value;

use super::derived::catalog_request;
use crate::backend::ToolSnapshot;
use crate::backend::lease::ask;
use crate::backend::request_context::RequestContext;
use crate::backend::servers;
use crate::backend::sources::CatalogSource;

/// The servers behind a backend, such as those of MCP.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendServers {
    /// The instance's name.
    pub backend: String,
    /// What the backend says of each, with its name in `server` and its state in `state`.
    pub servers: Vec<Value>,
}

/// A backend with its lists: those that a snapshot knows, and those of now.
pub(super) struct NewestCatalog {
    pub(super) backend: String,
    pub(super) cached: Arc<CatalogReply>,
    pub(super) current: CatalogReply,
    plugin: Arc<LoadedPlugin>,
}

impl NewestCatalog {
    /// What the backend says of its servers.
    pub(super) fn servers(&self) -> Vec<Value> {
        servers(&self.current, &self.plugin)
    }
}

/// Asks the backends of a snapshot for their lists; one that does not answer is left out.
pub(super) async fn newest_catalogs(
    snapshot: &ToolSnapshot,
    spec: &SessionSpec,
    request_context: &RequestContext,
) -> Vec<NewestCatalog> {
    let mut catalogs = Vec::new();
    for source in snapshot.sources() {
        let CatalogSource::Backend {
            name,
            lease,
            catalog: known,
        } = source
        else {
            continue;
        };
        let instance = lease.instance();
        let asked = ask(
            instance,
            request_context,
            op::BACKEND_CATALOG,
            catalog_request(spec),
        );
        if let Ok(newest) = asked.await {
            catalogs.push(NewestCatalog {
                backend: name.clone(),
                cached: Arc::clone(known),
                current: newest,
                plugin: Arc::clone(instance.plugin()),
            });
        }
    }
    catalogs
}

/// The servers behind the backends of a snapshot, as they are now.
pub(super) async fn server_states(
    snapshot: &ToolSnapshot,
    spec: &SessionSpec,
    request_context: &RequestContext,
) -> Vec<BackendServers> {
    let catalogs = newest_catalogs(snapshot, spec, request_context).await;
    let catalogs = catalogs.iter();
    states(catalogs.map(|catalog| (&catalog.backend, catalog.servers())))
}

/// The servers behind the backends of a snapshot, as they were when its lists were made: nobody is
/// asked.
pub(super) fn cached_server_states(snapshot: &ToolSnapshot) -> Vec<BackendServers> {
    let sources = snapshot.sources().iter();
    states(sources.filter_map(|source| match source {
        CatalogSource::Backend {
            name,
            lease,
            catalog,
        } => Some((name, servers(catalog, lease.instance().plugin()))),
        CatalogSource::Skill(_) => None,
    }))
}

/// The backends that have servers.
fn states<'a>(backends: impl Iterator<Item = (&'a String, Vec<Value>)>) -> Vec<BackendServers> {
    backends
        .filter(|(_, servers)| !servers.is_empty())
        .map(|(backend, servers)| BackendServers {
            backend: backend.clone(),
            servers,
        })
        .collect()
}
