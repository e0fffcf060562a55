//! How the servers behind the backends of a session are, as the backends say themselves.

use std::sync::Arc;

use conjure_config::SessionSpec;
use conjure_skill_sdk::protocol::{CatalogReply, op};
use serde_json::Value;

use super::derived::whom;
use crate::backend::ToolSnapshot;
use crate::backend::lease::ask;
use crate::backend::request_context::RequestContext;
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
    pub(super) known: Arc<CatalogReply>,
    pub(super) newest: CatalogReply,
}

impl NewestCatalog {
    /// What the backend says of its servers.
    pub(super) fn servers(&self) -> &[Value] {
        let meta = self.newest.meta.as_ref();
        let servers = meta.and_then(|meta| meta.get("servers")?.as_array());
        servers.map_or(&[], Vec::as_slice)
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
        let asked = ask(instance, request_context, op::BACKEND_CATALOG, whom(spec));
        if let Ok(newest) = asked.await {
            catalogs.push(NewestCatalog {
                backend: name.clone(),
                known: Arc::clone(known),
                newest,
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
    let states = catalogs.into_iter().map(|catalog| BackendServers {
        servers: catalog.servers().to_vec(),
        backend: catalog.backend,
    });
    states.filter(|states| !states.servers.is_empty()).collect()
}
