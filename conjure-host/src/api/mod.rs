//! The HTTP API: the host for programs and pages, versioned under `/api/v1`.
//!
//! Everything that a person can do with saved things and threads, as requests. Listens on this
//! machine unless it has tokens, checks `Host` and `Origin`, bounds bodies, connections and waits.
//! What each operation takes and gives is in `docs/openapi.json`; [`document`] is the same text.

mod auths;
mod door;
mod entries;
mod extract;
mod files;
mod health;
mod mcp_servers;
mod metrics;
mod once;
mod openapi;
mod pages;
mod personas;
mod plugins;
mod problem;
mod providers;
mod ranges;
mod state;
mod threads;
mod transfer;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::Host;
use crate::auths::Auths;
use crate::http_server::connections::{self, Bounds};
use crate::store::Store;
use door::Door;
use metrics::Metrics;
use problem::Problem;
use state::{App, Parts};

pub use crate::http_server::HttpAccess;
pub use openapi::document;
pub use state::ApiOptions;

/// Imports that may be read at the same time.
const IMPORTS: usize = 2;

/// What the API is served over.
pub struct Api {
    /// The host; its threads are those of the store.
    pub host: Host,
    /// The database.
    pub store: Store,
    /// The saved auths, over the same database.
    pub auths: Auths,
    /// How the server behaves.
    pub options: ApiOptions,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// An address that others reach, without a token.
    #[error(
        "{address} can be reached from other machines, and there is no token: give one with \
         `--token-file` or `--token-env`, or listen on 127.0.0.1"
    )]
    NeedsToken {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

impl Api {
    /// Listens on an address; port 0 is any that is free.
    ///
    /// # Errors
    /// [`ApiError::NeedsToken`] off this machine without a token, [`ApiError::Listen`] when the
    /// address cannot be had.
    pub async fn listen(
        self,
        address: SocketAddr,
        access: HttpAccess,
    ) -> Result<ApiServer, ApiError> {
        if !address.ip().is_loopback() && access.tokens.is_empty() {
            return Err(ApiError::NeedsToken { address });
        }
        let failed = |source| ApiError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(ApiServer {
            api: self,
            access,
            listener,
            address,
        })
    }
}

/// A server that listens.
pub struct ApiServer {
    api: Api,
    access: HttpAccess,
    listener: TcpListener,
    address: SocketAddr,
}

impl ApiServer {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Serves until the token is cancelled. Streams end then, requests that run have
    /// [`ApiOptions::grace`] to be answered, and the database is closed after them.
    pub async fn serve(self, end: CancellationToken) {
        let options = self.api.options;
        let bounds = Bounds {
            connections: options.max_connections,
            headers: options.header_timeout,
        };
        let grace = options.grace;
        let closing = CancellationToken::new();
        let store = self.api.store.clone();
        let app = App::new(Parts {
            host: self.api.host,
            store: self.api.store,
            auths: self.api.auths,
            options,
            metrics: Metrics::new(),
            closing: closing.clone(),
            imports: Semaphore::new(IMPORTS),
        });
        let (hosts, origins) = self.access.names(self.address);
        let door = Door {
            hosts,
            origins,
            tokens: self.access.tokens(),
            app: app.clone(),
        };
        let (router, _) = routes().split_for_parts();
        let router = router
            .merge(openapi::router())
            .fallback(unknown)
            .method_not_allowed_fallback(not_allowed)
            .layer(axum::middleware::from_fn_with_state(
                app.clone(),
                once::once,
            ))
            .layer(axum::middleware::from_fn_with_state(
                Arc::new(door),
                door::admit,
            ))
            .with_state(app.clone());
        let forgetting = tokio::spawn(once::forget(app.clone()));
        let serving = connections::serve(self.listener, router, bounds, closing.clone());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = end.cancelled() => {
                // Ends the streams that are open, or nothing would ever be over.
                closing.cancel();
                if tokio::time::timeout(grace, serving).await.is_err() {
                    tracing::warn!("some connections did not end within {grace:?}");
                }
            }
        }
        forgetting.abort();
        store.close().await;
    }
}

/// All operations that the description has.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::base())
        .merge(health::router())
        .merge(auths::router())
        .merge(providers::router())
        .merge(personas::router())
        .merge(mcp_servers::router())
        .merge(plugins::router())
        .merge(threads::router())
        .merge(transfer::export_router())
        .merge(transfer::import_router())
        .merge(files::router())
}

async fn unknown() -> Problem {
    Problem::not_found("there is nothing at this path; `/api/v1/openapi.json` lists what there is")
}

async fn not_allowed(request: Request) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        format!(
            "{} is not done here; `Allow` says what is",
            request.method()
        ),
    )
}
