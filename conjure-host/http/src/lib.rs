//! The HTTP API: the host for programs and pages, versioned under `/api/v1`.
//!
//! Everything that a person can do with sessions, threads and saved things, as requests. Listens on this
//! machine unless told otherwise, lets nobody in without a token, checks `Host` and `Origin`, bounds
//! bodies, connections and waits. What each operation takes and gives is in `docs/openapi.json`; [`document`] is the same text.
//! A face: uses what the runtime has in public, and nothing below knows it. Begin at `middleware.rs`,
//! then at the file of a kind of thing, such as `sessions.rs`.

mod approvals;
mod auths;
mod browsers;
mod client_presence;
#[cfg(test)]
mod describing;
mod ended_cookies;
mod entries;
mod events;
mod extract;
mod fetching;
mod files;
mod folds;
mod health;
mod held_tools;
mod idempotency;
mod installed_plugins;
mod mcp_imports;
mod mcp_logins;
mod mcp_servers;
mod metrics;
mod middleware;
mod openapi;
mod operations;
mod page_parts;
mod pages;
mod personas;
mod plugin_events;
mod plugins;
mod problem;
mod providers;
mod questions;
mod queued_turns;
mod ranges;
mod search;
mod session_list;
mod sessions;
mod state;
mod streams;
mod threads;
mod transfer;
mod turns;
mod uploads;
mod usage;
mod usage_report;
mod versions;
mod wording;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use browsers::Browsers;
use conjure_http_server::AccessTokens;
use conjure_http_server::connections::{self, ConnectionBounds};
use conjure_providers::auths::Auths;
use conjure_runtime::manager::Manager;
use conjure_runtime::uploads::ReceiveLimits;
use ended_cookies::EndedCookies;
use metrics::Metrics;
use middleware::Middleware;
use operations::Operations;
use problem::Problem;
use state::{App, AppParts};
use streams::Streams;

pub use conjure_http_server::{HttpAccess, UserTokenError, user_token, user_token_file};
pub use openapi::document;
pub use page_parts::{
    BrowserPage, FollowStream, MakePage, PageParts, ShareThread, SharedThread, ShowProblem,
    ShownProblem,
};
pub use state::ApiOptions;

/// Imports that may be read at the same time.
const MAX_IMPORTS: usize = 2;
/// Times that backends may be made ready at the same time outside of a turn.
const MAX_TRIALS: usize = 4;
/// How long streams have for what is on its way when everything else is over.
const STREAM_GRACE: Duration = Duration::from_secs(2);

/// What the API is served over.
pub struct Api {
    /// The sessions of a host.
    pub manager: Manager,
    /// The saved auths, over the same database.
    pub auths: Auths,
    /// How the server behaves.
    pub options: ApiOptions,
    /// A page for browsers beside the API.
    pub page: Option<MakePage>,
    /// Makes the file of a thread that is given to others.
    pub share: Option<ShareThread>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Nothing would keep anybody out.
    #[error(
        "a server needs a token, also on 127.0.0.1, where other users of this machine are: give it \
         one, such as that of `conjure_http::user_token`"
    )]
    NeedsToken,
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Api {
    /// Listens on an address; port 0 is any that is free.
    ///
    /// # Errors
    /// [`ApiError::NeedsToken`] without a token, [`ApiError::Listen`] when the
    /// address cannot be had.
    pub async fn listen(
        self,
        address: SocketAddr,
        access: HttpAccess,
    ) -> Result<ApiServer, ApiError> {
        if access.tokens.is_empty() {
            return Err(ApiError::NeedsToken);
        }
        let failed = |source| ApiError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tokens = access.tokens();
        Ok(ApiServer {
            browsers: Browsers::new(
                address,
                tokens.key("cookies of browsers"),
                self.page.is_some(),
                EndedCookies::of(self.manager.host().data_dir()),
            ),
            api: self,
            tokens,
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
    tokens: AccessTokens,
    browsers: Browsers,
    listener: TcpListener,
    address: SocketAddr,
}

impl ApiServer {
    /// Address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A link that lets a browser in: once, within ten minutes.
    #[must_use]
    pub fn browser_link(&self) -> String {
        self.browsers.link().url
    }

    /// Serves until the token is cancelled. Turns and requests that run have
    /// [`ApiOptions::grace`] then; streams tell of the turns' ends, and end. The manager is shut
    /// down and the database closed after them.
    pub async fn serve(self, end: CancellationToken) {
        let options = self.api.options;
        let grace = options.grace;
        let (closing, ended) = (CancellationToken::new(), CancellationToken::new());
        let manager = self.api.manager;
        let app = App::new(AppParts {
            host: manager.host().clone(),
            store: manager.store().clone(),
            manager: manager.clone(),
            auths: self.api.auths,
            options: options.clone(),
            metrics: Metrics::new(),
            closing: closing.clone(),
            shutdown: ended.clone(),
            imports: Arc::new(Semaphore::new(MAX_IMPORTS)),
            trials: Semaphore::new(MAX_TRIALS),
            fetches: Semaphore::new(fetching::MAX_FETCHES),
            fetching: Default::default(),
            logins: Default::default(),
            browsers: self.browsers,
            share: self.api.share,
            streams: Streams::new(options.max_connections),
            undeclared_turns: Default::default(),
        });
        let url = conjure_http_server::url(self.address);
        if let Err(error) = manager.announce(&url).await {
            tracing::warn!("other processes do not know where this server is: {error}");
        }
        let (hosts, origins) = self.access.names(self.address);
        let page = self.api.page.map(|make| {
            make(PageParts {
                api: operations(app.clone()).layer(from_fn(page_parts::as_browser)),
                manager: manager.clone(),
                shutdown: ended.clone(),
                follow: page_parts::follow(&app),
            })
        });
        let limits = ReceiveLimits {
            most_bytes: extract::MAX_IMPORT_BYTES,
            at_once: MAX_IMPORTS,
            queue_timeout: options.body_timeout,
            arrival_timeout: options.import_timeout,
        };
        // What a browser sends to the page is received as what is sent to the API.
        let page = page.map(|page| (page.router.layer(Extension(limits)), page.problem));
        let (page, problem) = page.unzip();
        let middleware = Arc::new(Middleware {
            hosts,
            origins,
            tokens: self.tokens,
            app: app.clone(),
            problem,
        });
        let router = router(app.clone(), page, Arc::clone(&middleware));
        let bounds = ConnectionBounds {
            connections: options.max_connections,
            headers: options.header_timeout,
            when_full: Some(router_when_full(app.clone(), middleware)),
        };
        let forgetting = tokio::spawn(idempotency::forget(app));
        let serving = connections::serve(self.listener, router, bounds, closing.clone());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = end.cancelled() => {
                closing.cancel();
                let until = Instant::now() + grace;
                let shutting = manager.clone();
                // Also when it fails: whoever waits for the end must not wait for ever.
                let over = ended.clone().drop_guard();
                tokio::spawn(async move {
                    shutting.shutdown(grace).await;
                    drop(over);
                });
                let late = async {
                    ended.cancelled().await;
                    // What a turn's end told is on its way.
                    tokio::time::sleep_until(until.max(Instant::now() + STREAM_GRACE)).await;
                };
                tokio::select! {
                    () = &mut serving => ended.cancelled().await,
                    () = late => tracing::warn!("some connections did not end within {grace:?}"),
                }
            }
        }
        forgetting.abort();
        manager.store().close().await;
    }
}

/// What is still answered when there are as many connections as there may be: a supervisor that
/// hears nothing would end a server that is only busy.
fn router_when_full(app: App, checks: Arc<Middleware>) -> Router {
    Operations::new()
        .merge(health::supervised())
        .into_router()
        .fallback(full_problem)
        .method_not_allowed_fallback(full_problem)
        .layer(from_fn_with_state(checks, middleware::admit))
        .with_state(app)
}

async fn full_problem() -> Problem {
    let soon = axum::http::HeaderValue::from_static("5");
    Problem::unavailable(
        "too-many-connections",
        "the server has as many connections as it may (`--max-connections`); try again soon",
    )
    .header(axum::http::header::RETRY_AFTER, soon)
}

fn router(app: App, page: Option<Router>, checks: Arc<Middleware>) -> Router {
    let all = operations(app);
    let all = match page {
        Some(page) => all.merge(page),
        None => all,
    };
    all.fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(checks, middleware::admit))
}

/// The operations, without their admission.
fn operations(app: App) -> Router {
    routes()
        .into_router()
        .merge(openapi::router())
        .layer(from_fn_with_state(app.clone(), idempotency::run_once))
        .with_state(app)
}

/// All operations that the description has.
fn routes() -> Operations {
    Operations::new()
        .merge(health::router())
        .merge(browsers::router())
        .merge(auths::router())
        .merge(providers::router())
        .merge(personas::router())
        .merge(mcp_servers::router())
        .merge(mcp_imports::router())
        .merge(mcp_logins::router())
        .merge(held_tools::router())
        .merge(plugins::router())
        .merge(sessions::router())
        .merge(turns::router())
        .merge(queued_turns::router())
        .merge(uploads::router())
        .merge(approvals::router())
        .merge(questions::router())
        .merge(events::router())
        .merge(threads::router())
        .merge(folds::router())
        .merge(search::router())
        .merge(usage::router())
        .merge(transfer::export_router())
        .merge(transfer::shared_router())
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
