//! What all requests share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::browsers::Browsers;
use super::client_presence::UndeclaredTurns;
use super::fetching::Fetching;
use super::mcp_logins::Logins;
use super::metrics::Metrics;
use super::page_parts::ShareThread;
use super::problem::Problem;
use super::streams::Streams;
use conjure_config::SyncBox;
use conjure_providers::auths::Auths;
use conjure_runtime::Host;
use conjure_runtime::manager::Manager;
use conjure_store::Store;

/// How a server over HTTP behaves; each default is stated where it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiOptions {
    /// The most connections at the same time; 1024 by default. Further ones are told to come back
    /// later.
    pub max_connections: usize,
    /// How long the headers of a request may take to arrive; 30 s by default. A connection on which
    /// no request comes is closed after it.
    pub header_timeout: Duration,
    /// How long the body of a request may take to arrive after them; 30 s by default.
    pub body_timeout: Duration,
    /// How long the body of an import may take; 10 minutes by default.
    pub import_timeout: Duration,
    /// How long turns and requests that run have at the end of the server; 10 s by default.
    pub grace: Duration,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            import_timeout: Duration::from_secs(600),
            grace: Duration::from_secs(10),
        }
    }
}

/// What all requests share. Cloning it is cheap.
#[derive(Clone)]
pub(super) struct App(Arc<SyncBox<AppParts>>);

/// The parts of the state.
pub(super) struct AppParts {
    pub(super) manager: Manager,
    pub(super) host: Host,
    pub(super) store: Store,
    pub(super) auths: Auths,
    pub(super) options: ApiOptions,
    pub(super) metrics: Metrics,
    /// Cancelled when the server is to end: nobody waits for anything from then on.
    pub(super) closing: CancellationToken,
    /// Cancelled when no turn runs any more: streams end then.
    pub(super) shutdown: CancellationToken,
    /// Imports that may be read at the same time: each is whole in memory.
    pub(super) imports: Arc<Semaphore>,
    /// Times that backends may be made ready at the same time outside of a turn: each may start
    /// programs.
    pub(super) trials: Semaphore,
    /// Files that may be fetched from backends at the same time.
    pub(super) fetches: Semaphore,
    /// Files that are being fetched from backends.
    pub(super) fetching: Fetching,
    /// Logins to MCP servers.
    pub(super) logins: Logins,
    pub(super) browsers: Browsers,
    /// Makes the file of a thread that is given to others, where there is a page.
    pub(super) share: Option<ShareThread>,
    /// Streams of events that are open.
    pub(super) streams: Streams,
    /// Turns whose clients may be asked.
    pub(super) undeclared_turns: UndeclaredTurns,
}

impl App {
    pub(super) fn new(parts: AppParts) -> Self {
        Self(Arc::new(SyncBox::new(parts)))
    }

    /// Waits until backends may be made ready, for as long as a body may take.
    pub(super) async fn trial_permit(&self) -> Result<SemaphorePermit<'_>, Problem> {
        match tokio::time::timeout(self.options.body_timeout, self.trials.acquire()).await {
            Ok(Ok(trial)) => Ok(trial),
            _ => Err(Problem::unavailable(
                "busy",
                "other backends are being made ready; try again when they are",
            )),
        }
    }
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}
