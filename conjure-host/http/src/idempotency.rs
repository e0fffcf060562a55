//! Requests that may come twice: a POST with an `Idempotency-Key` is done once.
//!
//! What was answered well is kept for a day and given again; what failed did nothing and may be
//! tried with the same key. A request goes on when its client goes away, so that the answer is
//! there when it comes back.

use std::fmt::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use super::extract::{ImportPermit, MAX_BODY_BYTES, MAX_IMPORT_BYTES, is_json, read_body};
use super::middleware::ClientName;
use super::problem::Problem;
use super::state::App;
use super::uploads;
use conjure_store::{KeyStatus, StoredResponse};

/// The header that names a request.
const KEY_HEADER: &str = "idempotency-key";
/// The most bytes of such a name.
const MAX_KEY_BYTES: usize = 255;
/// Says that an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The operations whose body may be large, where it is not JSON.
const LARGE_BODY_OPERATIONS: [&str; 4] = [
    "/api/v1/threads/import",
    "/api/v1/mcp-servers/import",
    "/api/v1/plugins",
    uploads::PATH,
];
/// Headers that belong to an answer.
const REPLAYED_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::LOCATION, header::ETAG];
/// How long answers are kept.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How often old ones are forgotten.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A request that is done once, for whoever can use a name of it.
#[derive(Debug, Clone)]
pub(super) struct Idempotency {
    name: String,
}

impl Idempotency {
    /// An id that this request has whenever it comes.
    pub(super) fn id(&self) -> String {
        format!("once-{}", self.name.get(..32).unwrap_or_default())
    }
}

/// Does a request that has a key once.
pub(super) async fn run_once(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(KEY_HEADER) {
        return next.run(request).await;
    }
    match run_or_replay(app, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn run_or_replay(app: App, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let mut keys = parts.headers.get_all(KEY_HEADER).iter();
    let key = keys.next().and_then(|key| key.to_str().ok());
    let (Some(key), None) = (key, keys.next()) else {
        return Err(Problem::invalid(
            "`Idempotency-Key` is given once, in ordinary characters",
        ));
    };
    if !(1..=MAX_KEY_BYTES).contains(&key.len()) || key.contains(char::is_control) {
        return Err(Problem::invalid(format!(
            "`Idempotency-Key` is 1 to {MAX_KEY_BYTES} bytes without control characters"
        )));
    }
    let key = key.to_owned();
    let client = parts
        .extensions
        .get::<ClientName>()
        .cloned()
        .unwrap_or_default();
    let target = parts.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let scope = format!("{}:{target}", client.0.as_deref().unwrap_or("anyone"));
    let path = parts.extensions.get::<MatchedPath>();
    let is_large = path.is_some_and(|path| LARGE_BODY_OPERATIONS.contains(&path.as_str()));
    // A file may be JSON.
    let is_file = path.is_some_and(|path| path.as_str() == uploads::PATH);
    let is_large = is_large && (is_file || !is_json(&parts.headers));
    let (limit, timeout) = if is_large {
        let room = ImportPermit::wait(&app).await?;
        parts.extensions.insert(room);
        (MAX_IMPORT_BYTES, app.options.import_timeout)
    } else {
        (MAX_BODY_BYTES, app.options.body_timeout)
    };
    let body = read_body(&parts.headers, body, limit, timeout).await?;
    let request = Request::from_parts(parts, Body::from(body.clone()));
    // From here on nothing depends on the client: a key that is begun comes to its end.
    let done = tokio::spawn(run_and_store(app, key, scope, body, request, next));
    done.await
        .map_err(|error| Problem::host(format!("the request ended early: {error}")))?
}

async fn run_and_store(
    app: App,
    key: String,
    scope: String,
    body: Bytes,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let digest_of_body = digest(&body);
    drop(body);
    let begun = app.store.idempotent_begin(&key, &scope, &digest_of_body);
    match begun.await? {
        KeyStatus::Fresh => {}
        KeyStatus::InFlight => {
            return Err(Problem::conflict(
                "in-flight",
                "a request with this `Idempotency-Key` is being done; ask again when it is",
            ));
        }
        KeyStatus::Mismatch => {
            return Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "key-reused",
                "this `Idempotency-Key` was used for another body; take a new one",
            ));
        }
        KeyStatus::Replay(answer) => return replay(answer),
    }
    request.extensions_mut().insert(Idempotency {
        name: digest(format!("{scope}\n{key}").as_bytes()),
    });
    let held = KeyGuard::new(app, key, scope);
    let response = next.run(request).await;
    held.end(response).await
}

/// An idempotency key in use. Dropped before its request has ended, it makes the key free again.
struct KeyGuard {
    app: App,
    key: String,
    scope: String,
    is_over: bool,
}

impl KeyGuard {
    fn new(app: App, key: String, scope: String) -> Self {
        Self {
            app,
            key,
            scope,
            is_over: false,
        }
    }

    /// Keeps a good answer, and frees the key otherwise.
    async fn end(mut self, response: Response) -> Result<Response, Problem> {
        if !response.status().is_success() {
            self.is_over = true;
            abandon(&self.app, &self.key, &self.scope).await;
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, MAX_IMPORT_BYTES).await;
        let body = body.map_err(|error| Problem::host(error.to_string()))?;
        let headers = REPLAYED_HEADERS.iter().filter_map(|name| {
            let value = parts.headers.get(name)?.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        });
        let answer = StoredResponse {
            status: parts.status.as_u16(),
            headers: headers.collect(),
            body: body.to_vec(),
        };
        self.is_over = true;
        let kept = self
            .app
            .store
            .idempotent_end(&self.key, &self.scope, &answer);
        if let Err(error) = kept.await {
            // It is done; the client may as well know.
            tracing::warn!("an answer could not be kept for its key: {error}");
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let app = self.app.clone();
        let (key, scope) = (
            std::mem::take(&mut self.key),
            std::mem::take(&mut self.scope),
        );
        tokio::spawn(async move { abandon(&app, &key, &scope).await });
    }
}

async fn abandon(app: &App, key: &str, scope: &str) {
    if let Err(error) = app.store.idempotent_abandon(key, scope).await {
        tracing::warn!("a key of a request that failed stays taken for a while: {error}");
    }
}

fn replay(answer: StoredResponse) -> Result<Response, Problem> {
    let damaged = || Problem::host("the answer that was kept cannot be read");
    let status = StatusCode::from_u16(answer.status).map_err(|_| damaged())?;
    let mut response = (status, answer.body).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    for (name, value) in &answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| damaged())?;
        let value = HeaderValue::from_str(value).map_err(|_| damaged())?;
        headers.insert(name, value);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Forgets old keys, now and every hour.
pub(super) async fn forget(app: App) {
    let old = i64::try_from(RETENTION.as_millis()).unwrap_or(i64::MAX);
    loop {
        if let Err(error) = app.store.idempotent_forget(old).await {
            tracing::warn!("old keys of requests are not forgotten: {error}");
        }
        tokio::time::sleep(CLEANUP_INTERVAL).await;
    }
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::openapi::document;

    #[test]
    fn an_operation_that_takes_files_takes_them_with_a_key_too() {
        let document: Value = serde_json::from_str(&document().unwrap()).unwrap();
        let mut with_files = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let content = item["post"]["requestBody"]["content"].as_object();
            let mut kinds = content.into_iter().flatten().map(|(kind, _)| kind);
            if kinds.any(|kind| kind != "application/json") {
                with_files.push(path.as_str());
            }
        }
        let mut large = LARGE_BODY_OPERATIONS;
        large.sort_unstable();
        with_files.sort_unstable();
        assert_eq!(with_files, large);
    }
}
