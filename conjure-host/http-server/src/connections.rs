//! Connections over HTTP: how many, and how long one may take to say what it wants.
//!
//! A client that opens many, or sends its headers a byte a minute, costs the others nothing. Nor
//! does one without a token: what it opens makes room for whoever comes next.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::slots::{ConnectionSlotGuard, ConnectionSlots};
use super::write_timeout::WriteTimeoutStream;

/// Response to a connection beyond the limit.
const FULL_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 60\r\n\r\n\
    the server has as many connections as it may; try again soon";
/// Connections beyond the bound that may still ask what [`ConnectionBounds::when_full`] answers. With one more
/// the oldest of them goes, which had its time to ask.
const MAX_EXCESS: usize = 128;
/// How long such a connection may take, all in all.
const EXCESS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long nothing is accepted when the system gives no connection, such as without descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long a client may take nothing of what it asked for.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits on the connections of a server.
#[derive(Debug, Clone)]
pub struct ConnectionBounds {
    /// The most at the same time; further ones are told to come back later.
    pub connections: usize,
    /// How long the headers of a request may take. A connection on which no request comes is
    /// closed after it.
    pub headers: Duration,
    /// What is answered to connections beyond the bound, such as whether the server lives; each
    /// has two seconds. Without it they are told to come back later.
    pub when_full: Option<Router>,
}

/// Serves connections until the token is cancelled and what runs on them is over.
#[boxed]
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: ConnectionBounds,
    end: CancellationToken,
) {
    let slots = ConnectionSlots::new(bounds.connections);
    let mut http = Builder::new();
    http.timer(TokioTimer::new());
    http.header_read_timeout(bounds.headers);
    let open = TaskTracker::new();
    let beyond = ConnectionSlots::new(MAX_EXCESS);
    while let Some(stream) = accept(&listener, &end).await {
        let Some(slot) = slots.take() else {
            match bounds.when_full.clone().zip(beyond.take()) {
                Some((router, slot)) => serve_excess(&open, &http, router, slot, stream),
                None => refuse(stream),
            }
            continue;
        };
        let visitor = slot.handle();
        let service = TowerToHyperService::new(router.clone());
        let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
            request.extensions_mut().insert(visitor.clone());
            hyper::service::Service::call(&service, request)
        });
        let stream = TokioIo::new(WriteTimeoutStream::new(stream, STALL_TIMEOUT));
        // Boxed: a task that pins what it was given has room for it twice.
        let mut connection = Box::pin(http.serve_connection(stream, service));
        let end = end.clone();
        open.spawn(async move {
            let served = tokio::select! {
                served = connection.as_mut() => served,
                () = slot.until_revoked() => {
                    tracing::debug!("a connection without a token made room");
                    return;
                }
                () = end.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                tracing::debug!("a connection ended: {error}");
            }
        });
    }
    drop(listener);
    open.close();
    open.wait().await;
}

/// The next connection; nothing once the token is cancelled.
async fn accept(listener: &TcpListener, end: &CancellationToken) -> Option<TcpStream> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = end.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Without it an answer in pieces on a kept connection comes 40 ms late.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("a connection keeps its delay: {error}");
                }
                return Some(stream);
            }
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Serves a connection beyond the bound, for as long as it has a slot of its own, [`EXCESS_TIMEOUT`] at
/// most.
fn serve_excess(
    open: &TaskTracker,
    http: &Builder,
    router: Router,
    slot: ConnectionSlotGuard,
    stream: TcpStream,
) {
    let service = TowerToHyperService::new(router);
    let mut once = http.clone();
    let once = once.keep_alive(false);
    let connection = once.serve_connection(TokioIo::new(stream), service);
    open.spawn(async move {
        tokio::select! {
            _over = tokio::time::timeout(EXCESS_TIMEOUT, connection) => {}
            () = slot.until_revoked() => {}
        }
    });
}

/// Says that it is one too many, as far as that can be said without waiting.
fn refuse(stream: TcpStream) {
    use std::io::Write as _;

    tracing::debug!("a connection too many was closed");
    if let Ok(mut stream) = stream.into_std() {
        // It does not block, and a fresh connection has room for these few bytes.
        let _ = stream.write_all(FULL_RESPONSE);
    }
}
