//! A server over HTTP: one endpoint, many clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::clients::{ClientSessions, Principal};
use super::handler::McpHandler;
use super::owners::Owners;
use super::passthrough::passthrough_layer;
use super::session_manager::{AdmittedRequest, BoundedSessions};
use super::{McpHost, ServeError};
use conjure_http_server::connections::{self, ConnectionBounds};
use conjure_http_server::{AccessTokens, AllowedHosts, ConnectionHandle};
pub use conjure_http_server::{HttpAccess, UserTokenError, user_token, user_token_file};

/// The path of the endpoint.
pub const ENDPOINT: &str = "/mcp";

/// Names a session of the old era.
const SESSION_HEADER: &str = "mcp-session-id";
/// How long connections may take to end with the server.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl McpHost {
    /// Listens on an address.
    ///
    /// # Errors
    /// [`ServeError::NeedsToken`] without a token, [`ServeError::Listen`] when
    /// the address cannot be had.
    pub async fn listen(
        self,
        address: SocketAddr,
        access: HttpAccess,
    ) -> Result<HttpServer, ServeError> {
        if access.tokens.is_empty() {
            return Err(ServeError::NeedsToken);
        }
        let failed = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(HttpServer {
            server: self,
            access,
            listener,
            address,
        })
    }
}

/// A server that listens.
pub struct HttpServer {
    server: McpHost,
    access: HttpAccess,
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Address at which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{ENDPOINT}", self.address)
    }

    /// Serves until the token is cancelled, and ends everything that its sessions started then.
    ///
    /// # Errors
    /// None so far.
    pub async fn serve(self, end: CancellationToken) -> Result<(), ServeError> {
        let clients = ClientSessions::new(self.server.common, self.access.tokens.len());
        let options = &clients.common.options;
        let (hosts, origins) = self.access.names(self.address);
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts.names().to_vec())
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(options.max_message_bytes);
        config.cancellation_token = clients.common.closing.clone();
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(options.idle);
        let sessions = Arc::new(BoundedSessions::new(sessions, clients.slots.clone()));
        let making = Arc::clone(&clients);
        let service = StreamableHttpService::new(
            move || Ok(McpHandler::new(Arc::clone(&making), true)),
            Arc::clone(&sessions),
            config,
        );
        let admission = Arc::new(AdmissionState {
            hosts,
            tokens: self.access.tokens(),
            sessions,
            owners: Owners::default(),
        });
        let whole = axum::middleware::from_fn_with_state(Arc::clone(&clients), passthrough_layer);
        let router = Router::new()
            .route_service(ENDPOINT, service)
            .layer(whole)
            .layer(axum::middleware::from_fn_with_state(admission, admit));
        let sweeping = Arc::clone(&clients);
        let sweeper = tokio::spawn(async move { sweeping.sweep().await });
        let bounds = ConnectionBounds {
            connections: clients.common.options.max_connections,
            headers: clients.common.options.request_timeout,
            when_full: None,
        };
        let closing = clients.common.closing.clone();
        let serving = connections::serve(self.listener, router, bounds, closing.clone());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = end.cancelled() => {
                // Ends the streams that are open, or nothing would ever be over.
                closing.cancel();
                if tokio::time::timeout(SHUTDOWN_TIMEOUT, serving).await.is_err() {
                    tracing::warn!("some connections did not end within {SHUTDOWN_TIMEOUT:?}");
                }
            }
        }
        clients.close().await;
        sweeper.abort();
        Ok(())
    }
}

/// State of the admission: what is let in, and whose it is.
struct AdmissionState {
    hosts: AllowedHosts,
    tokens: AccessTokens,
    sessions: Arc<BoundedSessions>,
    owners: Owners,
}

/// Lets a request in that asks for this server and has a token, and says whose it is.
async fn admit(
    State(admission): State<Arc<AdmissionState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| admission.hosts.allows(host)) {
        let unknown = "this server is not known by the name in `Host`\n";
        return (StatusCode::FORBIDDEN, unknown).into_response();
    }
    let Some(principal) = admission.principal(request.headers()) else {
        let unauthorised = (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer")],
            "a token is needed: `Authorization: Bearer TOKEN`\n",
        );
        return unauthorised.into_response();
    };
    if let Some(session) = session_of(request.headers())
        && admission.owners.belongs_to_other(session, &principal)
    {
        let unknown = "there is no such session; begin a new one\n";
        return (StatusCode::NOT_FOUND, unknown).into_response();
    }
    let visitor = request.extensions().get::<ConnectionHandle>();
    if visitor.is_some_and(|visitor| !visitor.identify(&principal.0)) {
        let full = "this client has as many connections as it may; close some\n";
        let close = [(header::CONNECTION, "close")];
        return (StatusCode::SERVICE_UNAVAILABLE, close, full).into_response();
    }
    let admitted = AdmittedRequest::new(principal.clone());
    request.extensions_mut().insert(Arc::clone(&admitted));
    let is_delete = request.method() == Method::DELETE;
    let mut response = admitted.serve(next.run(request)).await;
    if let Some(refused) = admitted.refused() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{refused}\n")).into_response();
    }
    if let Some(opened) = session_of(response.headers()) {
        let open = admission.sessions.local.sessions.read().await;
        let is_open = |session: &str| open.contains_key(session);
        admission.owners.record_owner(opened, &principal, is_open);
    }
    // Clients take any other good answer to the end of a session for a failure.
    if is_delete && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}

/// The session of the old era that is named.
fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_HEADER)?.to_str().ok()
}

impl AdmissionState {
    fn principal(&self, headers: &HeaderMap) -> Option<Principal> {
        let number = self.tokens.number_of(headers)?;
        Some(Principal(Arc::from(format!("token-{number}"))))
    }
}
