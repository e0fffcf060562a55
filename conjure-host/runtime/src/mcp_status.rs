//! How MCP servers are, as the plugin tells it: started outside any session, looked at, ended.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use serde_json::{Map, Value, json};

use crate::Host;
use crate::StandaloneBackend;
use crate::backend::{is_settled, servers};
use crate::session::SessionError;
use conjure_config::BackendSpec;
use conjure_plugins::PluginCallFailure;

/// The kind of the backends that have MCP servers.
pub const KIND: &str = "mcp";

/// How often it is looked how they are.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a server may take to be ready when it says nothing of that itself, in milliseconds.
const INITIALIZE: u64 = 10_000;
const PROBE: u64 = 3_000;
/// What finding a program and listing may take beside it.
const LOOKUP_MS: u64 = 10_000;
const LISTING: u64 = 5_000;

/// Why nobody knows how servers are.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The backend cannot be opened, such as without its plugin.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The plugin does not say it.
    #[error("{0}")]
    Call(PluginCallFailure),
}

impl Host {
    /// Starts the servers of a backend, says how each is once all have settled or the time is up,
    /// and ends them. What is said has the members that [the catalog's](crate::backend) `servers`
    /// have: `server`, `state`, `why`, `tools` and more.
    ///
    /// # Errors
    /// [`StatusError`].
    #[boxed]
    pub async fn mcp_status(
        &self,
        backend: &BackendSpec,
        working_dir: Option<PathBuf>,
        limit: Duration,
    ) -> Result<Vec<Value>, StatusError> {
        let alone = self.open_backend(backend, working_dir).await?;
        let until = Instant::now() + limit;
        let statuses = loop {
            let statuses = statuses(&alone).await;
            let is_settled = match &statuses {
                Ok(statuses) => statuses.iter().all(is_settled),
                Err(_) => true,
            };
            if is_settled || Instant::now() >= until {
                break statuses;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        alone.close().await;
        statuses.map_err(StatusError::Call)
    }
}

/// Has all servers of a configuration started at once. Gives back how long that may take.
pub fn start_all(servers: &mut Map<String, Value>) -> Duration {
    let mut wait = 0;
    for (_, server) in servers {
        let ms = |name: &str, default| {
            let own = server.get(name).and_then(Value::as_u64);
            own.unwrap_or(default)
        };
        let initialize = ms("initialize_timeout_ms", INITIALIZE);
        let takes = initialize
            .saturating_mul(2)
            .saturating_add(ms("probe_timeout_ms", PROBE));
        wait = wait.max(takes.saturating_add(LOOKUP_MS + LISTING));
        if let Some(server) = server.as_object_mut() {
            server.insert("start".to_owned(), json!("background"));
        }
    }
    Duration::from_millis(wait)
}

/// What a backend says of its servers.
async fn statuses(alone: &StandaloneBackend) -> Result<Vec<Value>, PluginCallFailure> {
    Ok(servers(&alone.catalog().await?, alone.plugin()))
}
