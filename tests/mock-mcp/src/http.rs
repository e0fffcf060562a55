//! Streamable HTTP: sessions in the older era, none in the newer one.
//!
//! `POST /mcp` is the endpoint; `POST /forget` forgets all sessions, `POST /cut` ends all
//! subscriptions, and `GET /connections` tells
//! how many TCP connections there were.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::oauth::Login;
use crate::server::{Peer, Server};

#[derive(Clone)]
struct Http {
    server: Arc<Server>,
    login: Arc<Login>,
    sessions: Arc<Mutex<BTreeMap<String, Session>>>,
    connections: Arc<AtomicU64>,
}

/// A session: the way for what belongs to no request, and its other end until it is fetched.
struct Session {
    peer: Peer,
    stream: Option<mpsc::UnboundedReceiver<String>>,
}

pub(crate) async fn serve(server: Arc<Server>) {
    let connections = Arc::new(AtomicU64::new(0));
    let login = Login::new(Arc::clone(&server));
    let routes = login.routes();
    let http = Http {
        server,
        login,
        sessions: Arc::default(),
        connections: Arc::clone(&connections),
    };
    let router = Router::new()
        .route("/mcp", post(take).get(stream_of).delete(end))
        .route("/forget", post(forget))
        .route("/cut", post(cut_subscriptions))
        .route("/connections", get(count))
        .with_state(http)
        .merge(routes);
    let Ok(listener) = tokio::net::TcpListener::bind("127.0.0.1:0").await else {
        return;
    };
    if let Ok(address) = listener.local_addr() {
        use std::io::Write as _;
        let mut out = std::io::stdout();
        let _ = out.write_all(format!("{address}\n").as_bytes());
        let _ = out.flush();
    }
    let listener = listener.tap_io(move |stream| {
        connections.fetch_add(1, Ordering::Relaxed);
        let _ = stream.set_nodelay(true);
    });
    let _ = axum::serve(listener, router).await;
}

async fn take(State(http): State<Http>, headers: HeaderMap, body: Bytes) -> Response {
    if http.server.has("auth") && !headers.contains_key("authorization") {
        let challenge = [("www-authenticate", "Bearer realm=\"mock\"")];
        return (StatusCode::UNAUTHORIZED, challenge, "").into_response();
    }
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if let Some(refusal) = http.login.refusal(&headers, &message) {
        return refusal;
    }
    let head: BTreeMap<_, _> = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("mcp-"))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default()))
        .collect();
    http.server
        .append_log(&json!({ "headers": head, "message": message }));
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let modern = head
        .get("mcp-protocol-version")
        .is_some_and(|version| *version >= "2026");
    if modern && !http.server.has("modern") && !http.server.has("dual") {
        return (StatusCode::BAD_REQUEST, "unsupported").into_response();
    }
    if message["params"]["name"] == "cut" {
        let cut = stream::once(async { Err::<String, _>(std::io::Error::other("cut")) });
        return (
            [("content-type", "text/event-stream")],
            Body::from_stream(cut),
        )
            .into_response();
    }
    let (out, lines) = mpsc::unbounded_channel();
    let mut session = None;
    let peer = if modern {
        Peer::new(out)
    } else if method == "initialize" {
        let id = format!(
            "session-{}",
            http.connections.fetch_add(0, Ordering::Relaxed) + http.sessions().len() as u64
        );
        let (general, stream) = mpsc::unbounded_channel();
        let peer = Peer::new(general);
        http.server.notify_changes(&peer);
        let answers = peer.with_outgoing(out);
        let stream = Some(stream);
        http.sessions().insert(id.clone(), Session { peer, stream });
        session = Some(id);
        answers
    } else {
        let id = head.get("mcp-session-id").copied().unwrap_or_default();
        match http.sessions().get(id) {
            Some(session) => session.peer.with_outgoing(out),
            None if id.is_empty() => return StatusCode::BAD_REQUEST.into_response(),
            None => return StatusCode::NOT_FOUND.into_response(),
        }
    };
    if message.get("id").is_none() || method.is_empty() {
        Server::take(&http.server, &peer, message).await;
        return StatusCode::ACCEPTED.into_response();
    }
    let id = message["id"].clone();
    Server::take(&http.server, &peer, message).await;
    drop(peer);
    let mut response = if http.server.has("json") {
        json_answer(lines, &id).await
    } else {
        events(lines, Some(id))
    };
    if let Some(session) = session.and_then(|session| session.parse().ok()) {
        response.headers_mut().insert("mcp-session-id", session);
    }
    response
}

async fn json_answer(mut lines: mpsc::UnboundedReceiver<String>, id: &Value) -> Response {
    while let Some(line) = lines.recv().await {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if message["id"] == *id || message.is_array() || message.is_null() {
            return ([("content-type", "application/json")], line).into_response();
        }
    }
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Messages as events, up to the answer.
fn events(lines: mpsc::UnboundedReceiver<String>, until: Option<Value>) -> Response {
    let events = stream::unfold((lines, false), move |(mut lines, over)| {
        let until = until.clone();
        async move {
            if over {
                return None;
            }
            let line = lines.recv().await?;
            let message: Value = serde_json::from_str(&line).unwrap_or_default();
            let over =
                until.is_some_and(|id| message["id"] == id && message.get("method").is_none());
            let event = format!("data: {}\n\n", line.trim_end());
            Some((Ok::<_, Infallible>(event), (lines, over)))
        }
    });
    let body = Body::from_stream(events.boxed());
    ([("content-type", "text/event-stream")], body).into_response()
}

async fn stream_of(State(http): State<Http>, headers: HeaderMap) -> Response {
    if let Some(refusal) = http.login.refusal(&headers, &Value::Null) {
        return refusal;
    }
    let id = headers
        .get("mcp-session-id")
        .and_then(|id| id.to_str().ok());
    let stream = http
        .sessions()
        .get_mut(id.unwrap_or_default())
        .and_then(|session| session.stream.take());
    match stream {
        Some(stream) => events(stream, None),
        None => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

async fn end(State(http): State<Http>, headers: HeaderMap) -> Response {
    if let Some(refusal) = http.login.refusal(&headers, &Value::Null) {
        return refusal;
    }
    let id = headers
        .get("mcp-session-id")
        .and_then(|id| id.to_str().ok());
    let by = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    http.server.append_log(&json!({ "deleted": id, "by": by }));
    http.sessions().remove(id.unwrap_or_default());
    StatusCode::OK.into_response()
}

async fn forget(State(http): State<Http>) -> StatusCode {
    http.sessions().clear();
    StatusCode::OK
}

async fn cut_subscriptions(State(http): State<Http>) -> StatusCode {
    http.server.cuts.send_modify(|cut| *cut += 1);
    StatusCode::OK
}

async fn count(State(http): State<Http>) -> String {
    http.connections.load(Ordering::Relaxed).to_string()
}

impl Http {
    fn sessions(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
