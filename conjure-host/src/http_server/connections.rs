//! Connections over HTTP: how many, and how long one may take to say what it wants.
//!
//! A client that opens many, or sends its headers a byte a minute, costs the others nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::patient::Patient;

/// What a connection too many gets.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 60\r\n\r\n\
    the server has as many connections as it may; try again soon";
/// Connections beyond the bound that may still ask what [`Bounds::when_full`] answers.
const BEYOND: usize = 32;
/// How long such a connection may take, all in all.
const BEYOND_TIME: Duration = Duration::from_secs(2);
/// How long nothing is accepted when the system gives no connection, such as without descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take nothing of what it asked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What connections may take.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The most at the same time; further ones are told to come back later.
    pub(crate) connections: usize,
    /// How long the headers of a request may take. A connection on which no request comes is
    /// closed after it.
    pub(crate) headers: Duration,
    /// What is answered to connections beyond the bound, such as whether the server lives; each
    /// has two seconds. Without it they are told to come back later.
    pub(crate) when_full: Option<Router>,
}

/// Serves connections until the token is cancelled and what runs on them is over.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    end: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(bounds.connections));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new());
    http.header_read_timeout(bounds.headers);
    let open = TaskTracker::new();
    let beyond = Arc::new(Semaphore::new(BEYOND));
    loop {
        let accepted = tokio::select! {
            biased;
            () = end.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Without it an answer in pieces on a kept connection comes 40 ms late.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("a connection keeps its delay: {error}");
        }
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            let slot = Arc::clone(&beyond).try_acquire_owned();
            match bounds.when_full.clone().zip(slot.ok()) {
                Some((router, slot)) => {
                    let service = TowerToHyperService::new(router);
                    let mut once = http.clone();
                    let once = once.keep_alive(false);
                    let connection = once.serve_connection(TokioIo::new(stream), service);
                    open.spawn(async move {
                        let _slot = slot;
                        let _over = tokio::time::timeout(BEYOND_TIME, connection).await;
                    });
                }
                None => refuse(stream),
            }
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        let connection =
            http.serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), service);
        let end = end.clone();
        open.spawn(async move {
            let _slot = slot;
            tokio::pin!(connection);
            let served = tokio::select! {
                served = connection.as_mut() => served,
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

/// Says that it is one too many, as far as that can be said without waiting.
fn refuse(stream: TcpStream) {
    use std::io::Write as _;

    tracing::debug!("a connection too many was closed");
    if let Ok(mut stream) = stream.into_std() {
        // It does not block, and a fresh connection has room for these few bytes.
        let _ = stream.write_all(FULL);
    }
}
