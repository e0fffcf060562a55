//! A server over HTTP: one endpoint, many clients.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::clients::{Clients, Principal};
use super::handler::Handler;
use super::owners::Owners;
use super::whole::whole_tools;
use super::{McpServer, ServeError, connections};

/// The path of the endpoint.
pub const ENDPOINT: &str = "/mcp";

/// Names a session of the old era.
const SESSION: &str = "mcp-session-id";
/// How long connections may take to end with the server.
const ENDING: Duration = Duration::from_secs(5);

/// Who may reach a server over HTTP.
#[derive(Default)]
pub struct HttpAccess {
    /// Tokens, one a client; each has a session of its own where the protocol has none. Without
    /// one only this machine may be listened on.
    pub tokens: Vec<SecretString>,
    /// Names under which the server is reached, beside this machine's and the address that is
    /// listened on: the allowed values of `Host`.
    pub hosts: Vec<String>,
    /// Pages that may call the server from a browser: the allowed values of `Origin`. None by
    /// default.
    pub origins: Vec<String>,
}

impl McpServer {
    /// Listens on an address.
    ///
    /// # Errors
    /// [`ServeError::NeedsToken`] off this machine without a token, [`ServeError::Listen`] when
    /// the address cannot be had.
    pub async fn listen(
        self,
        address: SocketAddr,
        access: HttpAccess,
    ) -> Result<HttpServer, ServeError> {
        if !address.ip().is_loopback() && access.tokens.is_empty() {
            return Err(ServeError::NeedsToken { address });
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
    server: McpServer,
    access: HttpAccess,
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Where it listens.
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
        let clients = Clients::new(self.server.common);
        let options = &clients.common.options;
        let hosts = hosts(self.address.ip(), &self.access.hosts);
        // A page of the server's own address is no stranger.
        let mut origins: Vec<String> = hosts
            .iter()
            .filter_map(|host| origin(host, self.address.port()))
            .collect();
        origins.extend(self.access.origins);
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(options.max_message_bytes);
        config.cancellation_token = clients.common.closing.clone();
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(options.idle);
        let sessions = Arc::new(sessions);
        let making = Arc::clone(&clients);
        let service = StreamableHttpService::new(
            move || Ok(Handler::new(Arc::clone(&making), true)),
            Arc::clone(&sessions),
            config,
        );
        let door = Arc::new(Door {
            tokens: self.access.tokens.iter().map(digest).collect(),
            clients: Arc::clone(&clients),
            sessions,
            owners: Owners::default(),
        });
        let whole = axum::middleware::from_fn_with_state(Arc::clone(&clients), whole_tools);
        let router = Router::new()
            .route_service(ENDPOINT, service)
            .layer(whole)
            .layer(axum::middleware::from_fn_with_state(door, admit));
        let sweeping = Arc::clone(&clients);
        let sweeper = tokio::spawn(async move { sweeping.sweep().await });
        let options = clients.common.options.clone();
        let closing = clients.common.closing.clone();
        let serving = connections::serve(self.listener, router, &options, closing.clone());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = end.cancelled() => {
                // Ends the streams that are open, or nothing would ever be over.
                closing.cancel();
                if tokio::time::timeout(ENDING, serving).await.is_err() {
                    tracing::warn!("some connections did not end within {ENDING:?}");
                }
            }
        }
        clients.close().await;
        sweeper.abort();
        Ok(())
    }
}

/// The allowed values of `Host`.
fn hosts(listening: IpAddr, more: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if !listening.is_unspecified() {
        hosts.push(listening.to_string());
    }
    hosts.extend_from_slice(more);
    hosts
}

/// The origin of pages at a host, on the server's own port.
fn origin(host: &str, port: u16) -> Option<String> {
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!("http://[{host}]:{port}"));
    }
    // One with a port is an authority of somebody else's, such as a proxy.
    (!host.contains(':')).then(|| format!("http://{host}:{port}"))
}

/// What a request has to get past.
struct Door {
    tokens: Vec<[u8; 32]>,
    clients: Arc<Clients>,
    sessions: Arc<LocalSessionManager>,
    owners: Owners,
}

/// Lets a request in that has a token, where one is needed, and says whose it is.
async fn admit(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let Some(principal) = door.principal(request.headers()) else {
        let unauthorised = (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer")],
            "a token is needed: `Authorization: Bearer TOKEN`\n",
        );
        return unauthorised.into_response();
    };
    if begins_session(request.headers()) && door.is_full().await {
        let full = "the server has as many sessions as it may; try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, full).into_response();
    }
    if let Some(session) = session_of(request.headers())
        && door.owners.is_anothers(session, &principal)
    {
        let unknown = "there is no such session; begin a new one\n";
        return (StatusCode::NOT_FOUND, unknown).into_response();
    }
    request.extensions_mut().insert(principal.clone());
    let is_delete = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    if let Some(opened) = session_of(response.headers()) {
        let open = door.sessions.sessions.read().await;
        let is_open = |session: &str| open.contains_key(session);
        door.owners.opened(opened, &principal, is_open);
    }
    // Clients take any other good answer to the end of a session for a failure.
    if is_delete && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}

/// Whether a request may begin a session of the old era: it names none, and no era without them.
fn begins_session(headers: &HeaderMap) -> bool {
    let version = headers.get("mcp-protocol-version");
    let is_modern = version.is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
    !headers.contains_key(SESSION) && !is_modern
}

/// The session of the old era that is named.
fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}

impl Door {
    /// Whether no further session may begin; one that was only begun counts too.
    async fn is_full(&self) -> bool {
        let begun = self.sessions.sessions.read().await.len();
        begun >= self.clients.common.options.max_sessions || self.clients.is_full()
    }

    fn principal(&self, headers: &HeaderMap) -> Option<Principal> {
        if self.tokens.is_empty() {
            return Some(Principal(Arc::from("anybody")));
        }
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = given.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let given = digest(&SecretString::from(token.trim()));
        // Every token is looked at whole, whichever fits.
        let mut found = None;
        for (number, known) in self.tokens.iter().enumerate() {
            if same(known, &given) {
                found = Some(number);
            }
        }
        found.map(|number| Principal(Arc::from(format!("token-{number}"))))
    }
}

fn digest(token: &SecretString) -> [u8; 32] {
    Sha256::digest(token.expose_secret().as_bytes()).into()
}

/// Compares in a time that does not depend on where two hashes differ.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_this_machines_the_address_and_what_is_named() {
        let named = ["mcp.example".to_owned()];
        let of = |ip: &str| hosts(ip.parse().unwrap(), &named);
        assert_eq!(
            of("0.0.0.0"),
            ["localhost", "127.0.0.1", "::1", "mcp.example"]
        );
        assert!(of("192.0.2.1").contains(&"192.0.2.1".to_owned()));
        assert_eq!(origin("::1", 80).as_deref(), Some("http://[::1]:80"));
        assert_eq!(
            origin("localhost", 80).as_deref(),
            Some("http://localhost:80")
        );
        assert_eq!(origin("mcp.example:443", 80), None);
    }

    #[test]
    fn only_a_request_of_the_old_era_without_a_session_begins_one() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter();
            let headers = pairs.map(|(name, value)| {
                (
                    header::HeaderName::from_static(name),
                    value.parse().unwrap(),
                )
            });
            headers.collect::<HeaderMap>()
        };
        assert!(begins_session(&headers(&[])));
        assert!(begins_session(&headers(&[(
            "mcp-protocol-version",
            "2025-11-25"
        )])));
        assert!(!begins_session(&headers(&[(
            "mcp-protocol-version",
            "2026-07-28"
        )])));
        assert!(!begins_session(&headers(&[("mcp-session-id", "x")])));
    }

    #[test]
    fn hashes_are_the_same_or_not() {
        let token = |text: &str| digest(&SecretString::from(text));
        assert!(same(&token("a"), &token("a")));
        assert!(!same(&token("a"), &token("b")));
    }
}
